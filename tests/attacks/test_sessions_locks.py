"""Locks others hold for too long: nobody else is kept waiting, no fork is spoilt, no outcome is lied about."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast.backends.memory.session import InMemorySession
from standfast.backends.sqlite import commit_thread, engine, files, holders as processes
from standfast.backends.sqlite.commit_thread import CommitThread
from standfast.backends.sqlite.session import SQLiteSession
from standfast.ground.errors import OutcomeUnknownError, SessionBusyError, StoreTimeoutError, StoreUnavailableError

PATIENCE_S = 60


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_process_stopped_in_a_checkpoint_keeps_nobody_from_writing_and_no_session_from_closing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.db"
    session = SQLiteSession("s", path, timeout_s=0.5)
    await session.add_items([item("1")])
    carrier: Any = session._carrier()
    threads = carrier.engine.threads
    stopped = os.open(f"{path}-standfast-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    adding = asyncio.create_task(session.add_items([item("2")]))
    await asyncio.sleep(0.1)
    assert await asyncio.to_thread(_write_soon, path)
    if files.has_reset_fault():  # a fixed SQLite needs no lock, and then nobody waits for it
        with pytest.raises(StoreTimeoutError):
            await adding
    await asyncio.wait({adding})
    session.close()
    assert threads.join(0), "its thread has ended"
    os.close(stopped)


def _write_soon(path: Path) -> bool:
    """Whether another program gets the write lock while ours waits for the checkpoint."""
    with closing(sqlite3.connect(path, isolation_level=None, timeout=0.3)) as db:
        try:
            db.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError:
            return False
        db.execute("ROLLBACK")
        return True


async def test_a_process_forked_while_a_write_waits_for_another_programs_lock_can_use_the_file(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    session = SQLiteSession("s", path, timeout_s=PATIENCE_S)
    await session.add_items([item("1")])
    reading, writing = os.pipe()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        adding = asyncio.create_task(session.add_items([item("2")]))
        await asyncio.sleep(0.1)  # now the writer waits for that lock
        child = os.fork()
        if not child:
            _report_count(path, writing)
        os.close(writing)
        said = await asyncio.to_thread(os.read, reading, 1_000)
        os.waitpid(child, 0)
        other.execute("ROLLBACK")
    assert said == b"1"
    await adding
    assert len(await session.get_items()) == 2, "what waited was done, once, by the process that was asked"
    session.close()
    os.close(reading)


def _report_count(path: Path, writing: int) -> None:
    """In the child: read the session in a loop of its own, and end."""

    async def count() -> int:
        return len(await SQLiteSession("s", path).get_items())

    def report() -> None:
        try:
            os.write(writing, str(asyncio.run(count())).encode())
        except BaseException as error:
            os.write(writing, repr(error).encode())

    thread = threading.Thread(target=report)
    thread.start()
    thread.join(PATIENCE_S)
    os._exit(0)


async def test_a_file_that_is_moved_in_the_moment_of_the_commit_leaves_an_unknown_outcome(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, away = tmp_path / "history.db", tmp_path / "away.db"
    session = SQLiteSession("s", path)
    await session.append([item("1")], writer="w", start=0)
    commit = CommitThread._commit

    def commit_and_lose(self: CommitThread, db: sqlite3.Connection) -> None:
        commit(self, db)
        os.rename(path, away)

    monkeypatch.setattr(CommitThread, "_commit", commit_and_lose)
    with pytest.raises(OutcomeUnknownError):
        await session.append([item("2")], writer="w", start=1)
    monkeypatch.undo()
    with pytest.raises(StoreUnavailableError):
        await session.append([item("2")], writer="w", start=1)
    session.close()
    os.rename(away, path)
    again = SQLiteSession("s", path)
    await again.append([item("2")], writer="w", start=1)
    assert len(await again.get_items()) == 2, "repeating it is safe"
    again.close()


async def test_a_lease_is_not_taken_from_a_living_process_that_only_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "history.db"
    one, other = SQLiteSession("s", path), SQLiteSession("s", path)
    me, start_of = processes.this_one(), processes._start_of
    assert me is not None
    # As with hidepid: the other user's process (here process 1, which lives) is not shown.
    hidden = me.split(" ")
    hidden[2] = "1"
    with monkeypatch.context() as as_another:
        as_another.setattr(processes, "this_one", lambda: " ".join(hidden))
        held = await one.lease(ttl_s=PATIENCE_S, wait_s=0)
    monkeypatch.setattr(processes, "_start_of", lambda pid: None if pid == 1 else start_of(pid))
    with pytest.raises(SessionBusyError):
        await other.lease(ttl_s=1, wait_s=0)
    await held.release()
    one.close()
    other.close()


def test_a_process_has_no_name_where_the_process_table_is_that_of_another_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / str(os.getpid())).mkdir()
    (tmp_path / str(os.getpid()) / "stat").write_text(f"{os.getpid()} (x) S " + "0 " * 30)
    (tmp_path / "self").symlink_to("1")
    monkeypatch.setattr(processes, "_PROC", str(tmp_path))
    processes._name_of.cache_clear()
    try:
        assert processes.this_one() is None
    finally:
        processes._name_of.cache_clear()


async def test_the_writer_gives_up_its_hold_on_forks_even_while_the_file_is_being_opened(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE taken (x)")
        other.execute("BEGIN EXCLUSIVE")
        session = SQLiteSession("s", path, timeout_s=PATIENCE_S)
        adding = asyncio.create_task(session.add_items([item("1")]))
        await asyncio.sleep(0.1)
        child = os.fork()
        if not child:
            os._exit(1 if commit_thread.unsafe_after_fork else 0)
        assert os.waitpid(child, 0)[1] == 0, "the child may open the file"
        other.execute("ROLLBACK")
    await adding
    assert len(await session.get_items()) == 1
    session.close()


class _Handed:
    """A lock that another thread takes, for a fork of its own, in the moment it is given back."""

    def __init__(self, waiting: list[Any]) -> None:
        self.waiting, self.released = waiting, 0

    def release(self) -> None:
        self.released += 1
        if self.waiting:
            engine._held_for_fork.callback(self.waiting.pop().release)


def test_a_thread_that_has_forked_gives_back_its_own_locks_and_not_those_of_the_next() -> None:
    next_ones = _Handed([])
    own = _Handed([next_ones])
    engine._held_for_fork.callback(own.release)
    engine._give_back()
    assert (own.released, next_ones.released) == (1, 0)
    engine._give_back()
    assert (own.released, next_ones.released) == (1, 1)


def test_threads_that_fork_at_once_leave_every_store_usable(tmp_path: Path) -> None:
    session, stores = SQLiteSession("s", tmp_path / "history.db"), [InMemorySession(str(n)) for n in range(5)]
    asyncio.run(session.add_items([item("1")]))

    def fork_often() -> None:
        for _ in range(10):
            child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)

    threads = [threading.Thread(target=fork_often, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)
    for one in (session, *stores):
        asyncio.run(one.add_items([item("2")]))
        one.close()
