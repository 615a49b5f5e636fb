"""The files themselves: who may read them, what many open ones cost, and what happens when one goes away under us."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast._src.base.errors import CallerError, StoreUnavailableError
from standfast._src.sessions.backends.sqlite import commit_thread, database_file
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


def mode_of(path: Path | str) -> int:
    return stat.S_IMODE(os.stat(path).st_mode)


def holdings() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), threading.active_count()


def becomes_true(condition: Callable[[], bool]) -> bool:
    """Whether it does, in a time that only a hang takes."""
    deadline = time.monotonic() + 60
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


# --- many files ------------------------------------------------------------------------------


async def test_many_open_files_cost_what_a_few_cost(tmp_path: Path) -> None:
    """Only the files used last keep threads and descriptors; the others rest, and wake when they are used (A21)."""
    before = await asyncio.to_thread(holdings)
    sessions = [SQLiteSession("s", tmp_path / f"{number}.db", linger_s=0) for number in range(200)]
    for start in range(0, 200, 20):
        await asyncio.gather(*(one.add_items([message("1")]) for one in sessions[start : start + 20]))
        await asyncio.gather(*(one.get_items() for one in sessions[start : start + 20]))

    def is_bounded() -> bool:
        descriptors, threads = holdings()
        # A writer and a reader each; database, log, shared memory and lock, and the reader's database and log.
        return (
            threads - before[1] <= 2 * commit_thread.AWAKE_MAX
            and descriptors - before[0] <= 6 * commit_thread.AWAKE_MAX
        )

    assert await asyncio.to_thread(becomes_true, is_bounded), (before, holdings())
    for one in sessions:
        await one.append([message("2")], writer="run", start=0)
    for one in sessions:
        assert await one.get_items() == [message("1"), message("2")]
    assert await asyncio.to_thread(becomes_true, is_bounded), (before, holdings())
    for one in sessions:
        one.close()
    assert await asyncio.to_thread(becomes_true, lambda: max(*_less(holdings(), before)) <= 0), (before, holdings())


def _less(now: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    return now[0] - before[0], now[1] - before[1]


async def test_a_pop_cancelled_on_a_file_at_rest_is_put_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit_thread, "AWAKE_MAX", 1)
    first, second = (SQLiteSession("s", tmp_path / f"{number}.db") for number in range(2))
    for _ in range(10):
        for session in (first, second):
            await session.add_items([message("1")])
            pop = asyncio.create_task(session.pop_item())
            await asyncio.sleep(0)
            pop.cancel()
            await asyncio.wait([pop])
            assert pop.cancelled()
    assert len(await first.get_items()) == len(await second.get_items()) == 10
    first.close()
    second.close()


async def test_sessions_dropped_while_their_file_rests_give_it_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commit_thread, "AWAKE_MAX", 1)
    before = await asyncio.to_thread(holdings)
    session = SQLiteSession("s", tmp_path / "0.db", linger_s=0)
    await session.add_items([message("1")])
    other = SQLiteSession("s", tmp_path / "1.db", linger_s=0)
    await other.add_items([message("1")])
    rests = lambda: not os.path.exists(tmp_path / "0.db-wal")  # noqa: E731 — its last connection is closed
    assert await asyncio.to_thread(becomes_true, rests)
    del session
    gc.collect()
    again = SQLiteSession("s", tmp_path / "0.db", linger_s=0)
    assert await again.get_items() == [message("1")]
    again.close()
    other.close()
    assert await asyncio.to_thread(becomes_true, lambda: max(*_less(holdings(), before)) <= 0)


# --- whose they are ------------------------------------------------------------------------------


async def test_a_new_database_is_its_owners_alone_unless_a_mode_is_given(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        for name, mode, expected in (("a", None, 0o600), ("b", 0o660, 0o660), ("c", 0o644, 0o644)):
            session = SQLiteSession("s", tmp_path / name, file_mode=mode)
            await session.add_items([message("1")])
            await session.get_items()
            beside = [tmp_path / name, *tmp_path.glob(f"{name}-*")]
            assert {file.name: mode_of(file) for file in beside} == dict.fromkeys(
                (one.name for one in beside), expected
            )
            assert len(beside) >= 3
            session.close()
    finally:
        os.umask(before)


async def test_a_database_that_is_there_keeps_its_mode_and_its_lock_gets_it(path: Path) -> None:
    before = os.umask(0o077)
    try:
        sqlite3.connect(path).close()
        path.touch()
        os.chmod(path, 0o664)
        session = SQLiteSession("s", path, file_mode=0o600)
        await session.add_items([message("1")])
        session.close()
        assert mode_of(path) == 0o664
        if database_file.has_reset_fault():
            assert mode_of(f"{path}-standfast-lock") == 0o664
    finally:
        os.umask(before)


@pytest.mark.parametrize("mode", [0, 0o77, 0o4000, True, "600"])
def test_a_mode_that_shuts_the_owner_out_is_refused(path: Path, mode: Any) -> None:
    with pytest.raises(CallerError):
        SQLiteSession("s", path, file_mode=mode)


def test_who_may_not_give_a_file_away_gives_it_to_the_databases_group(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As any user but root: the owner stays, the group is what a second user of the database needs."""
    path.touch(mode=0o660)
    given: list[tuple[int, int]] = []

    def fchown(descriptor: int, owner: int, group: int) -> None:
        given.append((owner, group))
        if owner != -1:
            raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "fchown", fchown)
    os.close(database_file.open_beside(str(path), f"{path}-beside"))
    found = os.stat(path)
    assert given == [(found.st_uid, found.st_gid), (-1, found.st_gid)]
    assert mode_of(f"{path}-beside") == mode_of(path)


SECOND_USER = """
    import asyncio, os, sys
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
    import standfast._src.sessions.client.stored_session, standfast._src.base.errors, asyncio.runners
    os.setgroups([4242]); os.setgid(4242); os.setuid(int(sys.argv[1])); os.umask(0o022)
    async def main():
        session = SQLiteSession("s", sys.argv[2])
        await session.add_items([{"user": sys.argv[1]}])
        print(len(await session.get_items()), flush=True)
        session.close()
    asyncio.run(main())
"""


def test_users_of_one_group_share_a_database(tmp_path: Path) -> None:
    """What the first one leaves beside it, the second one can use."""
    if os.geteuid() != 0:
        return  # nobody else can become two other users; the test above tries the same with functions
    folder = Path("/tmp") / f"standfast-group-{os.getpid()}"
    folder.mkdir()
    try:
        os.chown(folder, 0, 4242)
        os.chmod(folder, 0o2775)
        path = folder / "s.db"
        path.touch()
        os.chown(path, 0, 4242)
        os.chmod(path, 0o664)
        for count, user in enumerate(("4001", "4002", "4001"), 1):
            program = [sys.executable, "-c", textwrap.dedent(SECOND_USER), user, str(path)]
            done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
            assert (done.stdout, done.stderr) == (f"{count}\n", "")
    finally:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()


# --- going away ------------------------------------------------------------------------------


def _remove_log(path: Path) -> None:
    os.remove(f"{path}-wal")


def _remove_both(path: Path) -> None:
    os.remove(f"{path}-wal")
    os.remove(f"{path}-shm")


def _another_log(path: Path) -> None:
    os.remove(f"{path}-wal")
    Path(f"{path}-wal").touch()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    os.truncate(path, 4096)


@pytest.mark.parametrize("harm", [_remove_log, _remove_both, _another_log, _empty, _cut])
async def test_nothing_is_acknowledged_once_the_log_or_the_contents_are_gone(
    path: Path, harm: Callable[[Path], None]
) -> None:
    """What SQLite would go on writing into a deleted log is gone with the process (A23)."""
    session = SQLiteSession("s", path)
    await session.add_items([message("x" * 1000)] * 100)
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA wal_checkpoint(PASSIVE)")  # so that the file itself holds something to lose
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM agent_messages LIMIT 1").fetchone()
        await session.add_items([message("1")])
        harm(path)
        for _ in range(3):
            with pytest.raises(StoreUnavailableError):
                await session.add_items([message("2")])
        with pytest.raises(StoreUnavailableError):
            await session.append([message("2")], writer="run", start=0)
    session.close()


async def test_a_file_that_another_program_made_smaller_is_still_the_same(path: Path) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message("x" * 10_000)] * 50)
    await session.clear_session()
    await session.add_items([message("1")])
    with closing(sqlite3.connect(path)) as db:
        size = 0
        while not size:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            size = path.stat().st_size
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < size
    await session.add_items([message("2")])
    assert await session.get_items() == [message("1"), message("2")]
    session.close()


# --- other systems ------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [None, 0o640])
async def test_a_file_is_made_where_only_root_may_make_one_without_opening_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, mode: int | None
) -> None:
    """On macOS there is an `os.mknod`, and it refuses everybody else."""

    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "mknod", refused, raising=False)
    session = SQLiteSession("s", path, file_mode=mode)
    await session.add_items([{"a": 1}])
    assert stat.S_IMODE(path.stat().st_mode) == (mode or 0o600)
    assert await session.get_items() == [{"a": 1}]
    session.close()


BARE_SYSTEM = """
    import asyncio, builtins, os, sys
    sys.modules["fcntl"] = None
    del os.fork, os.register_at_fork, os.mknod
    real = builtins.open
    def without_proc(file, *args, **more):
        if str(file).startswith("/proc"):
            raise FileNotFoundError(file)
        return real(file, *args, **more)
    builtins.open = without_proc
    read = os.readlink
    os.readlink = lambda path, *args, **more: read("/nowhere" if str(path).startswith("/proc") else path, *args, **more)
    from standfast import InMemorySession, SQLiteSession
    from standfast._src.sessions.backends.sqlite import process_liveness
    assert process_liveness.this_process() is None and not process_liveness.is_gone("anybody")
    async def main():
        session = SQLiteSession("s", sys.argv[1])
        async with await session.lease(ttl_s=5, wait_s=1) as lease:
            await session.append([{"a": 1}], writer="run", start=0, lease=lease)
        await InMemorySession("s").add_items([{"a": 1}])
        print(await session.get_items())
        session.close()
    asyncio.run(main())
"""


def test_a_system_without_file_locks_fork_hooks_or_proc_is_enough(path: Path) -> None:
    program = [sys.executable, "-W", "error", "-c", textwrap.dedent(BARE_SYSTEM), str(path)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "[{'a': 1}]\n"), done.stderr


async def test_a_closed_file_stands_alone_however_many_read_it_before(tmp_path: Path) -> None:
    """Whoever copies or compares a file after closing it must not find a log beside it, some of the time."""
    for number in range(60):
        path = tmp_path / f"{number}.db"
        session = SQLiteSession("talk", path)
        await session.add_items([{"role": "user", "content": "hello"}])
        await asyncio.gather(*(session.get_items() for _ in range(8)))
        await session.close()
        assert not path.with_name(f"{number}.db-wal").stat().st_size
