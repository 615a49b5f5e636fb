"""Files that are not what they should be, locks that are not given up, disks without room: each a specific error."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from standfast._src.base.errors import (
    CallerError,
    InvalidNameError,
    InvalidSessionIdError,
    NotADatabaseError,
    OutcomeUnknownError,
    SchemaTooNewError,
    SessionClosedError,
    StoreFullError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from tests.sessions.backends.sqlite.inside import Gate, broken, carrier_to, connections, value

__all__ = ["connections"]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


@contextmanager
def write_lock(path: Path) -> Iterator[None]:
    """Another program in the middle of a long transaction."""
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        yield
        db.execute("ROLLBACK")


# --- before anything is opened ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        {"sessions_table": "a b"}, {"messages_table": ""}, {"messages_table": 'x"y'}, {"sessions_table": "sqlite_x"},
        {"sessions_table": "t", "messages_table": "T"}, {"sessions_table": "agent_messages_standfast_cells"},
        {"sessions_table": "idx_agent_messages_session_id"}, {"sessions_table": "standfast_schema"},
    ],
)  # fmt: skip
def test_table_names_that_cannot_work_are_refused_by_the_constructor(path: Path, names: dict[str, str]) -> None:
    with pytest.raises(InvalidNameError):
        SQLiteSession("s", path, **names)
    assert not path.exists()


def test_bad_arguments_are_refused_and_constructing_touches_nothing(path: Path) -> None:
    for bad in ("", None, "\ud800"):
        with pytest.raises(InvalidSessionIdError):
            SQLiteSession(bad, path)  # type: ignore[arg-type]
    for timeout_s in (0, -1, float("nan"), "5"):
        with pytest.raises(CallerError):
            SQLiteSession("s", path, timeout_s=timeout_s)  # type: ignore[arg-type]
    SQLiteSession("s", path)
    assert os.listdir(path.parent) == []


async def test_a_relative_path_leads_where_it_led_when_the_session_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    monkeypatch.chdir(tmp_path / "a")
    session = SQLiteSession("s", "x.db")
    monkeypatch.chdir(tmp_path / "b")
    await session.add_items([message("1")])
    session.close()
    assert (tmp_path / "a" / "x.db").exists()
    assert os.listdir(tmp_path / "b") == []


# --- files that are something else ------------------------------------------------------------------------------


async def test_a_file_that_is_no_database_is_named_and_left_as_it_is(path: Path) -> None:
    path.write_bytes(b"these are my notes, not a database\n" * 200)
    before = path.read_bytes()
    session = SQLiteSession("s", path)
    for operation in (session.get_items, session.pop_item, lambda: session.add_items([message("x")])):
        with pytest.raises(NotADatabaseError):
            await operation()
    session.close()
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


async def test_a_newer_layout_is_refused_before_anything_is_changed(path: Path) -> None:
    session = SQLiteSession("s", path, linger_s=0)
    await session.add_items([message("x")])
    session.close()
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("UPDATE standfast_schema SET version = 99")
        db.execute("PRAGMA journal_mode=DELETE")
    before = path.read_bytes()
    session = SQLiteSession("s", path)
    with pytest.raises(SchemaTooNewError, match="99"):
        await session.get_items()
    other = SQLiteSession("s", path, sessions_table="other_sessions", messages_table="other_messages")
    session.close()
    assert path.read_bytes() == before
    await other.add_items([message("y")])  # another pair of tables in the file is another layout
    assert await other.get_items() == [message("y")]
    other.close()


async def test_a_missing_folder_and_a_folder_as_file_say_so(tmp_path: Path) -> None:
    for bad, said in ((tmp_path / "nowhere" / "s.db", "does not exist"), (tmp_path, "is a folder")):
        session = SQLiteSession("s", bad)
        with pytest.raises(StoreUnavailableError, match=said):
            await session.add_items([message("x")])
        session.close()


READ_ONLY = """
    import asyncio, os, sys
    from standfast._src.base.errors import StoreReadOnlyError
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

    path = sys.argv[1]
    if os.getuid() == 0:
        os.setgid(65534); os.setuid(65534)  # for root nothing is read-only

    async def main():
        for name in ("old.db", "new.db"):
            session = SQLiteSession("s", os.path.join(path, name))
            try:
                await session.add_items([{"a": 1}])
            except StoreReadOnlyError as error:
                assert error.remedy
            else:
                sys.exit(f"{name} was written")
            session.close()
    asyncio.run(main())
"""


async def test_a_read_only_folder_says_so_and_nothing_in_it_changes(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    folder.mkdir()
    session = SQLiteSession("s", folder / "old.db")
    await session.add_items([message("x")])
    session.close()
    (folder / "old.db").chmod(0o444)
    before = {name: (folder / name).read_bytes() for name in os.listdir(folder)}
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.getuid() and parent != Path("/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    folder.chmod(0o555)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", textwrap.dedent(READ_ONLY), str(folder)]
    ran = await asyncio.to_thread(subprocess.run, command, env=environment, capture_output=True, text=True)
    folder.chmod(0o755)
    assert ran.returncode == 0, ran.stderr
    assert {name: (folder / name).read_bytes() for name in os.listdir(folder)} == before


# --- files that go away ------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["deleted", "replaced"])
async def test_nothing_is_acknowledged_into_a_file_that_is_gone(path: Path, how: str) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message("1")])
    if how == "deleted":
        path.unlink()
    else:
        other = SQLiteSession("s", path.with_name("other.db"))
        await other.add_items([message("another history")])
        other.close()
        os.replace(path.with_name("other.db"), path)
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        await session.add_items([message("2")])
    with pytest.raises(StoreUnavailableError, match="deleted or replaced"):
        await session.get_items()
    session.close()
    for leftover in ("-wal", "-shm"):
        Path(f"{path}{leftover}").unlink(missing_ok=True)
    again = SQLiteSession("s", path)
    assert await again.get_items() == ([] if how == "deleted" else [message("another history")])
    again.close()


async def test_a_new_session_object_opens_the_new_file_while_old_objects_still_refuse(path: Path) -> None:
    old = SQLiteSession("s", path)
    await old.add_items([message("1")])
    for name in os.listdir(path.parent):
        (path.parent / name).unlink()
    with pytest.raises(StoreUnavailableError):
        await old.get_items()
    new = SQLiteSession("s", path)
    await new.add_items([message("new")])
    with pytest.raises(StoreUnavailableError):
        await old.add_items([message("2")])
    assert await new.get_items() == [message("new")]
    old.close()
    await new.add_items([message("still")])
    new.close()


# --- locks and deadlines ------------------------------------------------------------------------------


async def test_a_write_that_waits_for_a_lock_gives_up_in_time_and_is_never_done_later(path: Path) -> None:
    session = SQLiteSession("s", path, timeout_s=0.3)
    await session.add_items([message("1")])
    with write_lock(path):
        with pytest.raises(StoreTimeoutError):
            await session.add_items([message("late")])
        with pytest.raises(StoreTimeoutError):
            await session.pop_item()
        assert await session.get_items() == [message("1")], "readers do not wait for writers"
    patient = SQLiteSession("s", path)
    await patient.add_items([message("2")])
    assert await patient.get_items() == [message("1"), message("2")]
    session.close()
    patient.close()


async def test_the_first_read_of_a_process_does_not_wait_for_a_writer(path: Path) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message("1")])
    session.close()
    with write_lock(path):
        again = SQLiteSession("s", path, timeout_s=5)
        assert await again.get_items() == [message("1")]
        again.close()


async def test_a_cancelled_caller_gets_control_back_at_once_while_the_store_stalls(path: Path) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message("1")])
    with write_lock(path):
        writes = [asyncio.create_task(session.add_items([message(f"late {n}")])) for n in range(5)]
        pop = asyncio.create_task(session.pop_item())
        await asyncio.sleep(0.05)
        for task in (*writes, pop):
            task.cancel()
        done, _ = await asyncio.wait({*writes, pop}, timeout=10)
        assert len(done) == 6
        assert all(task.cancelled() for task in done)
    await session.add_items([message("2")])
    assert await session.get_items() == [message("1"), message("2")]
    session.close()


async def test_a_commit_past_its_deadline_is_an_unknown_outcome_and_repeating_the_append_is_safe(path: Path) -> None:
    slow, session = SQLiteSession("s", path), SQLiteSession("s", path, timeout_s=0.2)
    await slow.add_items([message("1")])
    batch = [message("2")]
    with carrier_to(path) as carrier:
        gate = Gate()
        stalled = asyncio.create_task(carrier.carry(gate, 30))
        await asyncio.to_thread(gate.entered.wait, 30)
        with pytest.raises(StoreTimeoutError):  # it never left the queue
            await session.append(batch, writer="run", start=0)
        gate.go_on.set()
        await stalled
        gate = Gate()
        appending = asyncio.create_task(session.append(batch, writer="run", start=0))
        stalled = asyncio.create_task(carrier.carry(gate, 30))  # in the same transaction
        with pytest.raises(OutcomeUnknownError):  # which is under way
            await appending
        gate.go_on.set()
        await stalled
    await slow.append(batch, writer="run", start=0)
    assert await slow.get_items() == [message("1"), message("2")]
    slow.close()
    session.close()


async def test_a_program_that_hangs_in_a_checkpoint_stalls_no_caller_beyond_its_deadline(path: Path) -> None:
    """The lock file of the checkpoint rule must not become a place to hang in (A13)."""
    if not database_file.has_reset_fault():
        return  # this SQLite needs no lock file, so there is none to hang on
    import fcntl

    session = SQLiteSession("s", path, timeout_s=0.3)
    await session.add_items([message("1")])
    descriptor = os.open(f"{path}-standfast-lock", os.O_RDWR)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(StoreTimeoutError):
            await session.add_items([message("late")])
        assert await session.get_items() == [message("1")]
    finally:
        os.close(descriptor)
    await SQLiteSession("s", path).add_items([message("2")])
    assert await session.get_items() == [message("1"), message("2")]
    session.close()


# --- no room ------------------------------------------------------------------------------


async def test_a_batch_the_disk_has_no_room_for_touches_no_other_batch_of_its_group(
    path: Path, connections: list[sqlite3.Connection]
) -> None:
    """SQLite's own page limit is a full disk to it: SQLITE_FULL in the middle of a grouped transaction (A6, A10)."""
    session = SQLiteSession("big", path)
    await session.add_items([message("1")])
    connections[0].execute(f"PRAGMA max_page_count={value(connections[0], 'page_count') + 40}")
    small = [SQLiteSession(f"small {n}", path) for n in range(20)]
    with carrier_to(path) as carrier:
        gate = Gate()
        held = asyncio.create_task(carrier.carry(gate, 30))  # the rest queues up behind it: one group
        await asyncio.to_thread(gate.entered.wait, 30)
        writing = asyncio.gather(
            *(one.add_items([message("a"), message("b")]) for one in small[:10]),
            session.add_items([message("x" * 400_000)]),
            session.append([message("y" * 400_000)], writer="run", start=0),
            *(one.add_items([message("a"), message("b")]) for one in small[10:]),
            return_exceptions=True,
        )
        await asyncio.sleep(0)
        gate.go_on.set()
        await held
        results = await writing
    failures = [result for result in results if isinstance(result, BaseException)]
    assert [type(failure) for failure in failures] == [StoreFullError, StoreFullError]
    assert await session.get_items() == [message("1")]
    assert await session.accepted("run") == 0
    for one in small:
        assert await one.get_items() == [message("a"), message("b")]
    for one in (session, *small):
        one.close()


async def test_an_operation_that_breaks_half_way_leaves_nothing_and_hurts_nobody(path: Path) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message("1")])
    with carrier_to(path) as carrier:
        results = await asyncio.gather(
            session.add_items([message("2")]), carrier.carry(broken, 30), session.add_items([message("3")]),
            return_exceptions=True,
        )  # fmt: skip
    assert [type(result) for result in results] == [type(None), ZeroDivisionError, type(None)]
    assert await session.get_items() == [message("1"), message("2"), message("3")]
    session.close()


# --- closing ------------------------------------------------------------------------------


def test_closing_works_without_a_loop_and_use_after_it_says_so(path: Path) -> None:
    session = SQLiteSession("s", path, linger_s=0)
    asyncio.run(session.add_items([message("1")]))
    session.close()
    session.close()
    for operation in (session.get_items, session.pop_item, session.head, lambda: session.add_items([])):
        with pytest.raises(SessionClosedError):
            asyncio.run(operation())
    # Not those that never started: tests that interrupt `Thread.start` leave such objects in this list.
    running = [thread.name for thread in threading.enumerate() if thread.is_alive()]
    assert not {"standfast-writer", "standfast-reader"} & set(running)
    assert not Path(f"{path}-wal").exists(), "the last user's connections are closed when close returns"


async def test_closing_one_session_leaves_the_others_and_what_is_queued_is_still_done(path: Path) -> None:
    first, second = SQLiteSession("s", path), SQLiteSession("s", path)
    await first.add_items([message("1")])
    tasks = [asyncio.create_task(second.add_items([message(f"q{n}")])) for n in range(10)]
    await asyncio.sleep(0)
    await first.close()
    second.close()
    await asyncio.gather(*tasks)
    again = SQLiteSession("s", path)
    assert len(await again.get_items()) == 11
    again.close()
