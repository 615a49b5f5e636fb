"""What a second pair of eyes found after the session core was rewritten, one test for each defect."""

from __future__ import annotations

import asyncio
import gc
import os
import sqlite3
import threading
import time
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.children import DEADLINE_S, program

from standfast._src.base.errors import SessionBusyError, SessionClosedError, SessionConflictError, StoreTimeoutError
from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.rules import history, leases
from standfast._src.sessions.storage import Name, ReadAnswer, ReadRequest

NAME = Name("session", "a")

Make = Callable[[str], Any]


def item(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture(params=["memory", "sqlite"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    """Makes session objects of one store."""
    if request.param == "memory":
        store = InMemoryStore()
        return lambda session_id: InMemorySession(session_id, store=store)
    return lambda session_id: SQLiteSession(session_id, tmp_path / "history.db")


# --- a lease that nobody would give back -----------------------------------------------------------------------------


async def test_a_lease_that_arrives_while_its_session_is_closed_is_given_back(make: Make) -> None:
    session = make("a")
    await session.add_items([item("1")])
    asking = asyncio.create_task(session.lease(ttl_s=600.0, wait_s=5.0))
    await asyncio.sleep(0)  # submitted, and not answered
    session.close()
    await asyncio.wait([asking])  # refused; or memory was quicker, and closing has released it
    assert isinstance(asking.exception(), SessionClosedError | None)
    other = make("a")
    lease = await other.lease(ttl_s=5.0, wait_s=0.0)
    await lease.release()
    other.close()


async def test_a_lease_keeps_the_session_that_only_it_knows(make: Make) -> None:
    lease = await make("a").lease(ttl_s=600.0, wait_s=0.0)
    gc.collect()
    await asyncio.sleep(0.1)  # time for an engine that nobody uses to end
    await lease.release()
    other = make("a")
    async with await other.lease(ttl_s=5.0, wait_s=0.0):
        pass
    other.close()


NO_THREADS = """
    import asyncio, sys, threading
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
    from standfast._src.base.errors import StoreUnavailableError

    def without_new_threads(size=1 << 46):  # there is no room for a stack of that size
        threading.stack_size(size)
        return True

    async def main(path, what):
        session = SQLiteSession("a", path, timeout_s=20.0)
        try:
            if what == "lease":
                await session.add_items([{"a": 0}])
            without_new_threads()
            await (session.lease(ttl_s=600.0, wait_s=0.0) if what == "lease" else session.add_items([{"a": 1}]))
        except StoreUnavailableError:
            print("no thread", flush=True)
        without_new_threads(0)
        if what == "write":
            await session.add_items([{"a": 2}])
            print(await session.get_items(), flush=True)
        else:
            lease = await session.lease(ttl_s=4.5, wait_s=0.0)
            await asyncio.sleep(5.0)
            print(lease.number, lease.is_held, flush=True)

    asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize(("what", "then"), [("write", "[{'a': 2}]"), ("lease", "2 True")])
def test_threads_that_could_not_be_started_once_are_started_later(what: str, then: str, tmp_path: Path) -> None:
    """A moment without threads must not leave a file that nobody writes, nor a lease that nobody renews."""
    child = program(NO_THREADS, tmp_path / "history.db", what, errors=True)
    said, errors = child.communicate(timeout=DEADLINE_S)
    assert said.splitlines() == ["no thread", then], errors
    assert not errors


# --- those who wait --------------------------------------------------------------------------------------------------


async def test_one_who_gave_up_waiting_keeps_nobody_behind_it(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that never asked the store itself: the first in the process had left its ticket there."""
    monkeypatch.setattr(leases, "TICKET_S", 600.0)  # a ticket that was left behind does not lapse by itself
    held = await make("a").lease(ttl_s=600.0, wait_s=0.0)
    sessions = [make("a") for _ in range(3)]
    first, second, third = [asyncio.create_task(one.lease(ttl_s=600.0, wait_s=60.0)) for one in sessions]
    await asyncio.sleep(0.5)  # all three tickets are there
    second.cancel()
    await asyncio.wait([second])
    await held.release()
    await (await first).release()
    await (await third).release()


def test_a_waiter_whose_loop_stands_still_keeps_nobody_behind_it(make: Make) -> None:
    session = make("a")
    loop = asyncio.new_event_loop()
    held = loop.run_until_complete(session.lease(ttl_s=600.0, wait_s=0.0))
    waiting = loop.create_task(session.lease(ttl_s=600.0, wait_s=600.0))
    loop.run_until_complete(asyncio.sleep(0.1))  # it waits, and its loop stops without being closed
    held.release_now()

    async def other() -> int:
        lease = await make("a").lease(ttl_s=600.0, wait_s=60.0)
        await lease.release()
        return lease.number  # type: ignore[no-any-return]

    assert asyncio.run(other()) == 2
    lease = loop.run_until_complete(waiting)  # it comes back, and is served
    assert lease.number == 3
    loop.run_until_complete(lease.release())
    session.close()
    loop.close()


async def test_who_waited_in_vain_is_told_who_holds_the_session_and_not_that_it_is_behind_itself(make: Make) -> None:
    session, other = make("a"), make("a")
    async with await session.lease(ttl_s=600.0, wait_s=0.0, holder="the first one"):
        with pytest.raises(SessionBusyError, match="the first one"):
            await other.lease(ttl_s=600.0, wait_s=0.3)
    other.close()
    session.close()


# --- what can never be undone ----------------------------------------------------------------------------------------


async def test_a_pop_that_can_never_be_undone_stops_nobody_else(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    session, doomed = SQLiteSession("a", path), SQLiteSession("a", path, "others", "other_messages")
    await session.add_items([item("1")])
    await doomed.add_items([item("1")])
    popping = asyncio.create_task(doomed.pop_item())
    await asyncio.sleep(0)
    time.sleep(0.3)
    with closing(sqlite3.connect(path)) as db:
        db.execute("DROP TABLE other_messages")
    popping.cancel()
    await asyncio.wait([popping])
    await session.add_items([item("2")])
    assert await session.get_items() == [item("1"), item("2")]
    session.close()
    doomed.close()


class LateStore(InMemoryStore):
    """Memory behind threads that answers a look only when it is told to."""

    def __init__(self, may_go: threading.Event) -> None:
        super().__init__()
        self._may_go = may_go

    def look(self, look: ReadRequest) -> ReadAnswer:
        assert self._may_go.wait(DEADLINE_S)
        return super().look(look)


async def test_a_read_that_is_too_late_says_so_though_its_loop_was_too_busy_to_notice() -> None:
    """It gave None, which is no list of items."""
    may_go = threading.Event()
    store = LateStore(may_go)
    carrier = ThreadedExecutor(lambda: store, readers=1)
    first = asyncio.create_task(carrier.carry(partial(history.get_items, NAME, None, print), 60.0, kind="read"))
    second = asyncio.create_task(carrier.carry(partial(history.get_items, NAME, None, print), 0.2, kind="read"))
    await asyncio.sleep(0)
    time.sleep(0.3)
    may_go.set()
    time.sleep(0.3)
    assert await first == []
    with pytest.raises(StoreTimeoutError):
        await second
    carrier.close()


async def test_an_undo_that_raises_leaves_the_thread_that_writes_alive() -> None:
    store = InMemoryStore()
    carrier = ThreadedExecutor(lambda: store)

    def undo(_: object) -> Any:
        raise ValueError("nothing can undo this")

    adding = partial(history.add, NAME, [b"{}"], None)
    task = asyncio.create_task(carrier.carry(adding, 5.0, undo=undo))
    await asyncio.sleep(0)
    time.sleep(0.2)
    task.cancel()
    await asyncio.wait([task])
    await carrier.carry(adding, 5.0)
    carrier.close()


# --- a file that another program uses too ----------------------------------------------------------------------------


async def large_then_small(path: Path, *, more: bool) -> SQLiteSession:
    """A session whose file was seen large, and was then made smaller; `more`: and written to."""
    session = SQLiteSession("a", path)
    await session.add_items([item("x" * 10_000)] * 50)
    await session.clear_session()
    await session.add_items([item("1")])
    with closing(sqlite3.connect(path)) as db:
        while path.stat().st_size < 400_000:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        await session.add_items([item("2")])
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < 200_000
        if more:
            db.execute("CREATE TABLE theirs (text)")
            db.execute("INSERT INTO theirs VALUES (?)", ("y" * 50_000,))
            db.commit()
    return session


@pytest.mark.parametrize("more", [False, True])
async def test_a_file_made_smaller_is_the_same_for_a_reader_that_has_no_connection_yet(
    more: bool, tmp_path: Path
) -> None:
    session = await large_then_small(tmp_path / "history.db", more=more)
    assert await session.get_items() == [item("1"), item("2")]
    session.close()


@pytest.mark.parametrize("more", [False, True])
async def test_a_file_made_smaller_is_the_same_though_it_grows_again_in_the_log(more: bool, tmp_path: Path) -> None:
    session = await large_then_small(tmp_path / "history.db", more=more)
    await session.add_items([item("y" * 50_000)])
    assert len(await session.get_items()) == 3
    session.close()


async def test_a_file_made_smaller_while_its_connections_were_closed_is_the_same(tmp_path: Path) -> None:
    session = await large_then_small(tmp_path / "history.db", more=False)
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    await session.add_items([item("3")])
    assert len(await session.get_items()) == 3
    session.close()


ODD_ID = "INSERT INTO agent_sessions (session_id) VALUES (CAST(x'ff61' AS TEXT))"
ODD_ROW = "INSERT INTO agent_messages (session_id, message_data) VALUES (CAST(x'ff61' AS TEXT), '{}')"


@pytest.mark.parametrize("moment", ["before", "between"])
async def test_a_session_id_that_is_no_text_stops_no_other_session(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    session = SQLiteSession("a", path)
    with closing(sqlite3.connect(path)) as db:
        if moment == "before":
            db.execute(
                "CREATE TABLE agent_sessions (session_id TEXT PRIMARY KEY, created_at TIMESTAMP, updated_at TIMESTAMP)"
            )
            db.execute(
                "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
                "message_data TEXT NOT NULL, created_at TIMESTAMP)"
            )
        else:
            await session.add_items([item("1")])
        db.execute(ODD_ID)
        db.execute(ODD_ROW)
        db.commit()
    await session.add_items([item("2")])
    listed = (await session.list_sessions(limit=10)).sessions
    assert [one.session_id for one in listed] == ["a", "\\xffa"]
    session.close()


async def test_a_time_that_another_program_wrote_as_a_number_stops_no_write(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    session = SQLiteSession("a", path)
    await session.add_items([item("1")])
    with closing(sqlite3.connect(path)) as db:
        db.execute("UPDATE agent_sessions SET updated_at = 1700000000")
        db.commit()
    await session.add_items([item("2")])
    assert len(await session.get_items()) == 2
    session.close()


# --- saved runs ------------------------------------------------------------------------------------------------------


async def test_pruning_leaves_a_failed_run_that_is_resumed_at_that_moment(tmp_path: Path) -> None:
    """Both are in one group; the save was acknowledged, and the run was gone."""
    path = tmp_path / "history.db"
    session = SQLiteSession("a", path)
    runs = session.run_store()
    told: dict[str, Any] = {"head": b"{}", "tails": {}, "agent": "A", "session_id": "a"}
    await runs.save_run("r", expect=0, status="failed", **told)
    with closing(sqlite3.connect(path)) as db:
        db.execute("BEGIN IMMEDIATE")
        before = asyncio.create_task(session.add_items([item("1")]))
        await asyncio.sleep(0.1)  # the writer waits for the lock with this one; the next two come together
        saving = asyncio.create_task(runs.save_run("r", expect=1, status="running", **told))
        pruning = asyncio.create_task(runs.prune_runs(keep=0))
        await asyncio.sleep(0.1)
        db.rollback()
    await before
    assert (await saving, await pruning) == (2, 0)
    assert await runs.load_run("r") is not None
    session.close()


@pytest.mark.parametrize("session_id", ["a\0b", "\x1b0", "\x1b", "é🧪", 'q"\\'])
async def test_runs_are_found_by_any_session_id(session_id: str, make: Make) -> None:
    """`json_extract` ends a text at NUL: the runs of such a session were not listed, and a clear left them."""
    session, other = make(session_id), make(session_id.replace("\0", "\x1b0") + "?")
    for one, run_id in ((session, "mine"), (other, "other")):
        await one.run_store().save_run(
            run_id, expect=0, head=b"{}", tails={}, status="done", agent="A", session_id=one.session_id
        )
    listed, _ = await session.run_store().list_runs(session_id=session_id)
    assert [(one.run_id, one.session_id) for one in listed] == [("mine", session_id)]
    await session.clear_session()
    assert await session.run_store().load_run("mine") is None
    assert await session.run_store().load_run("other") is not None
    other.close()
    session.close()


# --- what grows ------------------------------------------------------------------------------------------------------


async def test_a_pop_from_memory_does_not_go_through_the_whole_history() -> None:
    """Counted, not timed: a pop takes less memory than one pointer for each of the rows that it leaves alone."""
    session, size = InMemorySession("a"), 20_000
    await session.add_items([item(str(number)) for number in range(size)])
    await session.pop_item()  # what is made once is there from now on
    tracemalloc.start()
    try:
        assert await session.pop_item() == item(str(size - 2))
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 8 * size
    assert len(await session.get_items()) == size - 2


async def test_a_fork_of_nothing_but_counts_knows_what_its_writers_said(make: Make) -> None:
    """Memory kept the count and forgot the digest: another item under the same number was taken for a repeat."""
    session = make("a")
    await session.append([item("1")], writer="w", start=0)
    await session.pop_item()
    forked = await session.fork("b")
    with pytest.raises(SessionConflictError):
        await forked.append([item("another"), item("2")], writer="w", start=0)
    await forked.append([item("1"), item("2")], writer="w", start=0)
    assert await forked.get_items() == [item("2")]
    forked.close()
    session.close()
