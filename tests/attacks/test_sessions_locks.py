"""Locks others hold for too long: nobody else is kept waiting, no fork is spoilt, no outcome is lied about."""

from __future__ import annotations

import asyncio
import fcntl
import os
import sqlite3
import threading
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from standfast._src.base.errors import OutcomeUnknownError, SessionBusyError, StoreTimeoutError, StoreUnavailableError
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.backends.sqlite import database_file, file_engine, process_liveness as processes
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from tests.helpers.children import DEADLINE_S, program

PATIENCE_S = 60


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_process_stopped_in_a_checkpoint_keeps_nobody_from_writing_and_no_session_from_closing(
    tmp_path: Path,
) -> None:
    path = tmp_path / "history.db"
    before = threading.enumerate()
    session = SQLiteSession("s", path, timeout_s=0.5, linger_s=0)
    await session.add_items([item("1")])
    writers = [one for one in threading.enumerate() if one not in before and one.name == "standfast-writer"]
    stopped = os.open(f"{path}-standfast-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(stopped, fcntl.LOCK_EX)
    adding = asyncio.create_task(session.add_items([item("2")]))
    await asyncio.sleep(0.1)
    assert await asyncio.to_thread(_write_soon, path)
    if database_file.has_reset_fault():  # a fixed SQLite needs no lock, and then nobody waits for it
        with pytest.raises(StoreTimeoutError):
            await adding
    await asyncio.wait({adding})
    session.close()
    assert [one.is_alive() for one in writers] == [False], "its thread has ended"
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


def _report_count(path: Path, writing: int, timeout_s: float = PATIENCE_S) -> None:
    """In the child: read the session in a loop of its own, and end."""

    async def count() -> int:
        return len(await SQLiteSession("s", path, timeout_s=timeout_s).get_items())

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
    is_to_move = threading.Event()

    class Moving(sqlite3.Connection):
        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            done = super().execute(statement, *values)
            if statement == "COMMIT" and is_to_move.is_set():
                is_to_move.clear()
                os.rename(path, away)
            return done

    monkeypatch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Moving))
    session = SQLiteSession("s", path)
    await session.append([item("1")], writer="w", start=0)
    is_to_move.set()
    with pytest.raises(OutcomeUnknownError):
        await session.append([item("2")], writer="w", start=1)
    assert not is_to_move.is_set()
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
    me = processes.this_process()
    assert me is not None
    hidden = me.split(" ")
    hidden[3] = "1"
    with monkeypatch.context() as as_another:
        as_another.setattr(processes, "this_process", lambda: " ".join(hidden))
        held = await one.lease(ttl_s=PATIENCE_S, wait_s=0)
    # As with hidepid: the other user's process (here process 1, which lives) is not shown.
    shown = tmp_path / "proc"
    shown.mkdir()
    (shown / "sys").symlink_to("/proc/sys")
    (shown / str(os.getpid())).symlink_to(f"/proc/{os.getpid()}")
    (shown / "self").symlink_to(str(os.getpid()))
    monkeypatch.setattr(processes, "PROC", str(shown))
    assert processes.this_process() == me
    with pytest.raises(SessionBusyError):
        await other.lease(ttl_s=1, wait_s=0)
    await held.release()
    one.close()
    other.close()


def test_a_process_has_no_name_where_the_process_table_is_that_of_another_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pid in (str(os.getpid()), "1"):  # all that a name is made of can be read there
        (tmp_path / pid).symlink_to(f"/proc/{os.getpid()}")
    (tmp_path / "sys").symlink_to("/proc/sys")
    (tmp_path / "self").symlink_to("1")
    monkeypatch.setattr(processes, "PROC", str(tmp_path))
    assert processes.this_process() is None


async def test_the_writer_gives_up_its_hold_on_forks_even_while_the_file_is_being_opened(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE taken (x)")
        other.execute("BEGIN EXCLUSIVE")
        session = SQLiteSession("s", path, timeout_s=PATIENCE_S)
        adding = asyncio.create_task(session.add_items([item("1")]))
        await asyncio.sleep(0.1)
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            _report_count(path, writing, timeout_s=0.1)
        os.close(writing)
        said = await asyncio.to_thread(os.read, reading, 1_000)
        os.close(reading)
        os.waitpid(child, 0)
        assert b"StoreTimeoutError" in said, "the child may open the file, and waits for the lock as anybody would"
        other.execute("ROLLBACK")
    await adding
    assert len(await session.get_items()) == 1
    session.close()


class _Handed:
    """The lock of the registry: another thread takes it, for a fork of its own, in the moment it is given back."""

    def __init__(self) -> None:
        self.lock, self.process = threading.RLock(), os.getpid()
        self.is_taken_again, self.is_first_done = threading.Event(), threading.Event()
        self.taken: list[str] = []
        self.released: list[str] = []

    def acquire(self) -> None:
        self.lock.acquire()
        self.taken.append(threading.current_thread().name)
        if len(self.taken) == 2:
            self.is_taken_again.set()

    def release(self) -> None:
        self.lock.release()
        if os.getpid() == self.process:
            self.released.append(threading.current_thread().name)
            if len(self.released) == 1:
                assert self.is_taken_again.wait(PATIENCE_S)


class _Database:
    """Something in memory whose lock a fork takes too: the second thread stands there until the first is done."""

    def __init__(self, registry: _Handed) -> None:
        self.registry, self.lock = registry, self

    def acquire(self, timeout: float) -> bool:
        if len(self.registry.taken) == 2:
            assert self.registry.is_first_done.wait(PATIENCE_S)
        return True

    def release(self) -> None:
        pass


def fork_in_two_threads() -> None:
    """For a process of its own: let two threads fork, and print who took the lock and who gave it back."""
    registry: Any = _Handed()
    database: Any = _Database(registry)
    file_engine.registry_lock = registry
    file_engine.memory_databases.add(database)

    def fork() -> None:
        child = os.fork()
        if not child:
            os._exit(0)
        registry.is_first_done.set()
        os.waitpid(child, 0)

    threads = [threading.Thread(target=fork, name=name) for name in ("first", "second")]
    threads[0].start()
    while not registry.taken:
        time.sleep(0.001)
    threads[1].start()
    for thread in threads:
        thread.join(PATIENCE_S)
    print(*registry.taken, *registry.released)


def test_a_thread_that_has_forked_gives_back_its_own_locks_and_not_those_of_the_next() -> None:
    child = program("from tests.attacks.test_sessions_locks import fork_in_two_threads; fork_in_two_threads()")
    assert child.communicate(timeout=DEADLINE_S)[0].split() == ["first", "second", "first", "second"]


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
