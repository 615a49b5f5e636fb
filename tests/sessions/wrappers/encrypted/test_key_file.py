"""The file of sessions' own keys: forks, its mode, and what a destroyed key leaves on the disk."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from standfast import EncryptedSession, KeyFile, SQLiteSession
from standfast._src.base.errors import SessionErasedError, StoreUnavailableError
from standfast.conformance import message

LOCKING = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN EXCLUSIVE")
print("locked", flush=True)
sys.stdin.read()
"""

MAKING = """
import os, sys
modes = []
def note(event, arguments):
    if event == "sqlite3.connect":
        modes.append(oct(os.stat(sys.argv[1]).st_mode & 0o777))
sys.addaudithook(note)
os.umask(0)
from standfast import KeyFile
KeyFile(sys.argv[1]).key_of("", "session/a", make=True)
print(*modes)
"""


def test_a_child_of_a_fork_while_a_thread_waits_for_the_key_file_works(tmp_path: Path) -> None:
    """The thread does not exist in the child, and the lock it held was never released there (A13, A22)."""
    keys = KeyFile(tmp_path / "keys.db")

    def add(name: str) -> None:
        session = EncryptedSession(
            name, SQLiteSession(name, tmp_path / f"{name}.db"), os.urandom(32), session_keys=keys
        )
        asyncio.run(session.add_items([message(name)]))

    add("first")
    with subprocess.Popen(
        [sys.executable, "-c", LOCKING, tmp_path / "keys.db"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        waiting = threading.Thread(target=lambda: keys.key_of("", "session/second", make=True))
        waiting.start()
        waiting.join(0.3)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                add("third")
                code = 0
            finally:
                os._exit(code)
        other.kill()  # its lock ends with it
        assert os.waitpid(child, 0)[1] == 0
        waiting.join()
    assert keys.key_of("", "session/second", make=False)
    assert keys.key_of("", "session/third", make=False)
    keys.close()


def test_a_child_of_a_fork_while_this_process_has_the_file_locked_works(tmp_path: Path) -> None:
    """SQLite remembers the locks of its process: to a child they seemed to be held for ever (A22)."""
    keys = KeyFile(tmp_path / "keys.db")
    first = keys.key_of("", "session/first", make=True)
    other = sqlite3.connect(tmp_path / "keys.db", isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            made = keys.key_of("", "session/second", make=True)
            with ThreadPoolExecutor(4) as threads:
                again = set(threads.map(lambda _: KeyFile(keys.path).key_of("", "session/second", make=True), range(9)))
            keys.destroy("", "session/third")
            code = int(again != {made} or keys.key_of("", "session/first", make=False) != first)
        finally:
            os._exit(code)
    time.sleep(0.1)
    other.execute("ROLLBACK")
    assert os.waitpid(child, 0)[1] == 0
    assert keys.key_of("", "session/second", make=False)
    with pytest.raises(SessionErasedError):
        keys.key_of("", "session/third", make=True)
    other.close()
    keys.close()


def test_children_of_forks_and_their_parent_make_one_key_of_a_session(tmp_path: Path) -> None:
    keys = KeyFile(tmp_path / "keys.db")
    keys.key_of("", "session/first", make=True)
    children = []
    for number in range(4):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                found = [keys.key_of("", f"session/{one}", make=True) or b"" for one in range(40)]
                (tmp_path / f"of {number}").write_bytes(b"".join(found))
                code = 0
            finally:
                os._exit(code)
        children.append(child)
    mine = b"".join(keys.key_of("", f"session/{one}", make=True) or b"" for one in range(40))
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    assert {(tmp_path / f"of {number}").read_bytes() for number in range(4)} == {mine}
    keys.close()


def test_a_key_file_is_for_its_owner_alone_before_anything_is_written_to_it(tmp_path: Path) -> None:
    """A program that opened it between its making and a chmod read every key that came later."""
    command = [sys.executable, "-c", MAKING, tmp_path / "keys.db"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["0o600"]


def test_a_destroyed_key_is_in_no_journal(tmp_path: Path) -> None:
    """A journal that was deleted left its blocks on the disk, and in them the page with the key."""
    keys, journal = KeyFile(tmp_path / "keys.db"), tmp_path / "keys.db-journal"
    own = keys.key_of("", "session/a", make=True)
    assert own is not None
    os.link(journal, tmp_path / "second name")  # by which a journal that is deleted would still be found
    assert keys.key_of("", "session/b", make=True)  # the journal saves the page as it was before: with the first key
    assert own in journal.read_bytes()
    keys.destroy("", "session/a")
    assert keys.key_of("", "session/c", make=True)
    keys.close()
    assert journal.stat().st_nlink == 2
    assert not [file for file in tmp_path.iterdir() if own in file.read_bytes()]


@pytest.mark.parametrize("folder", ["there.txt", "x" * 300, "not/there"])
def test_a_key_file_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path, folder: str) -> None:
    """A file in place of the folder, and a name that is too long, were errors of the operating system."""
    (tmp_path / "there.txt").write_text("")
    with pytest.raises(StoreUnavailableError, match="cannot be used") as caught:
        KeyFile(tmp_path / folder / "keys.db").key_of("", "session/a", make=True)
    assert caught.value.remedy == "Check its folder, rights and disk."
