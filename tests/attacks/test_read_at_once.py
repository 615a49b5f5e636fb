"""Whoever reads at once, in the same process, sees what was submitted before it (A13, C14).

What closes a run that was stopped twice is a request that needs nobody who waits. A read took a connection of its own
and overtook it: after Ctrl-C the history was empty, and half a second later the turn was there.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from helpers.crashing_runs import STORED, Hang
from helpers.ledger_oracle import short

from standfast import Runner
from standfast._src.sessions.client.arguments import encoded_of
from standfast._src.sessions.rules import history
from standfast._src.sessions.rules.saved_runs import RunSave
from standfast._src.sessions.storage import Name, Plan, ReadRequest
from tests.helpers import servers
from tests.helpers.stores import SERVERS, opened, place, two_ways
from tests.sessions.backends.sqlite.inside import carrier_to

KINDS = [
    "sqlite",
    "sqlalchemy",
    *SERVERS,
    pytest.param("sealed", marks=pytest.mark.redis),
]
LOCKABLE = ["sqlite", "sqlalchemy", pytest.param("postgres", marks=pytest.mark.postgres)]
"""The stores in which another program's lock keeps whoever writes waiting, and lets readers through."""

HELLO: Any = {"role": "user", "content": "hello"}

WHILE_S = 0.3
"""For how long a read that must wait is looked at. One that does not has its answer within a few milliseconds."""


@contextmanager
def locked(where: str) -> Iterator[None]:
    """While another program keeps everybody from writing there."""
    kind, _, rest = where.partition(" ")
    if kind == "postgres":
        name = rest.partition(" ")[0]
        with psycopg.connect(servers.postgres_url()) as other:
            other.execute(f"LOCK TABLE {name}_m IN SHARE MODE".encode())
            yield
        return
    with closing(sqlite3.connect(rest, isolation_level=None)) as file:
        file.execute("BEGIN IMMEDIATE")
        yield


async def is_kept_waiting(reading: asyncio.Task[Any]) -> bool:
    return not (await asyncio.wait([reading], timeout=WHILE_S))[0]


@pytest.mark.parametrize("kind", KINDS)
def test_the_turn_of_a_stream_that_ctrl_c_ended_is_read_at_once(kind: str, tmp_path: Path) -> None:
    """C14: Ctrl-C cancels whoever watches, and then, when the loop ends, the run as well."""
    session, hang = opened(place(kind, tmp_path)), Hang(tmp_path / "book")

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        hang.when_hanging(task.cancel)  # as the handler of `asyncio.run` does
        async for _ in Runner.run_streamed(hang.agent(), "go", session=session).stream_events():
            pass

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert short(asyncio.run(read_and_closed(session))) == STORED


async def read_and_closed(session: Any) -> list[Any]:
    try:
        items: list[Any] = await session.get_items()
        return items
    finally:
        await session.close()


@pytest.mark.parametrize("kind", [*SERVERS, pytest.param("client", marks=pytest.mark.redis)])
async def test_a_read_waits_for_what_needs_several_round_trips(kind: str, tmp_path: Path) -> None:
    """A13: what this process knew of the writer's count is not true any more, and it has to look first."""
    async with two_ways(place(kind, tmp_path)) as (elsewhere, here):
        for count in range(0, 20, 2):
            await elsewhere.append([HELLO], writer="w", start=count)
            here.record(items=[HELLO], writer="w", start=count + 1, detached=True).close()
            assert len(await here.get_items()) == count + 2


@pytest.mark.parametrize("kind", LOCKABLE)
async def test_a_read_waits_for_what_was_submitted_and_one_of_another_session_does_not(
    kind: str, tmp_path: Path
) -> None:
    """A13: another program keeps the store busy. What a run submits when it is stopped twice is such a record."""
    where = place(kind, tmp_path)
    session, other = opened(where), opened(where, "other")
    await session.add_items([HELLO])
    await other.add_items([HELLO])
    assert await other.get_items() == [HELLO]  # to open a file is to look for its tables, and to make what is missing
    with locked(where):
        session.record(items=[HELLO], writer="w", start=0, detached=True).close()
        reading = asyncio.create_task(session.get_items())
        assert await is_kept_waiting(reading), reading.result()
        assert await asyncio.wait_for(other.get_items(), 20) == [HELLO]
    assert await reading == [HELLO, HELLO]
    await session.close()
    await other.close()


@pytest.mark.parametrize("kind", LOCKABLE[:2])
async def test_a_session_is_read_while_a_run_that_no_session_has_waits_to_be_saved(kind: str, tmp_path: Path) -> None:
    """A13: what a run without a session submits when it is stopped twice kept every read of its store waiting."""
    where = place(kind, tmp_path)
    session = opened(where)
    await session.add_items([HELLO])
    runs = session.run_store()
    assert await runs.load_run("r") is None
    with locked(where):
        runs.save_detached(RunSave("r", 0, b"head", status="cancelled")).close()
        reading = asyncio.create_task(runs.load_run("r"))
        assert await is_kept_waiting(reading), reading.result()
        assert await asyncio.wait_for(session.get_items(), 20) == [HELLO]
    assert (await reading).head == b"head"
    await session.close()


async def test_a_session_is_read_while_another_ones_cancelled_pop_waits_to_be_put_back(tmp_path: Path) -> None:
    """A13: the writer stands at another program's lock, for what it must do first, and reads stood behind it."""
    where = place("sqlite", tmp_path)
    session, other, third = opened(where), opened(where, "other"), opened(where, "third")
    for one in (session, other, third):
        await one.add_items([HELLO])
    popping = asyncio.create_task(session.pop_item())
    await asyncio.sleep(0)
    with closing(sqlite3.connect(where.partition(" ")[2], isolation_level=None)) as file:
        while file.execute("SELECT count(*) FROM agent_messages").fetchone() == (3,):
            pass  # without giving control back, until it is done
    with locked(where):
        popping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await popping
        other.record(items=[HELLO], writer="w", start=0, detached=True).close()
        assert await asyncio.wait_for(third.get_items(), 20) == [HELLO]
    assert await session.get_items() == [HELLO]
    assert await other.get_items() == [HELLO, HELLO]
    for one in (session, other, third):
        await one.close()


async def test_a_read_stands_behind_no_other_ones_write_that_waits(tmp_path: Path) -> None:
    """A13: queued behind a write that had begun, a read came into one group with a third session's detached write."""
    where = place("sqlite", tmp_path)
    session, other, third = opened(where), opened(where, "other"), opened(where, "third")
    for one in (session, other, third):
        await one.add_items([HELLO])
    begun, may_end, others_may_end = asyncio.Event(), threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly(name: str, until: threading.Event) -> Plan[None]:
        yield ReadRequest(Name("session", name))  # as every rule begins: it tells whose write it is
        yield from history.add(Name("session", name), encoded_of([HELLO]), None)
        loop.call_soon_threadsafe(begun.set)
        until.wait(60)

    writing = asyncio.create_task(session.changed(partial(slowly, "s", may_end)))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    with carrier_to(Path(where.partition(" ")[2])) as carrier:
        written = carrier.carry(partial(slowly, "other", others_may_end), 30, detached=True)
    reading = asyncio.create_task(third.get_items())
    try:
        await asyncio.sleep(0)  # it is queued now
        may_end.set()
        assert await asyncio.wait_for(reading, 50) == [HELLO]
        assert not others_may_end.is_set()
    finally:
        may_end.set()
        others_may_end.set()
    await written
    for one in (session, other, third):
        await one.close()


@pytest.mark.parametrize("kind", KINDS[:4])
async def test_a_read_waits_for_a_cancelled_write_that_has_begun(kind: str, tmp_path: Path) -> None:
    """A13: it is done or not when this process asks the next time, and not after that."""
    session = opened(place(kind, tmp_path))
    await session.get_items()
    begun, may_end = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def slowly() -> Plan[None]:
        yield from history.add(Name("session", "s"), encoded_of([HELLO]), None)
        loop.call_soon_threadsafe(begun.set)
        may_end.wait(20)

    writing = asyncio.create_task(session.changed(slowly))
    await begun.wait()
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    reading = asyncio.create_task(session.get_items())
    try:
        assert await is_kept_waiting(reading), reading.result()
    finally:
        may_end.set()
    assert await reading == [HELLO]
    await session.close()
