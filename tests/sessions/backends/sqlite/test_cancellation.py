"""Callers that stop waiting at any moment: nothing is lost, doubled, half done or left locked (A11, A13)."""

from __future__ import annotations

import asyncio
import random
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from tests.sessions.backends.sqlite.inside import Gate, broken, carrier_to


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s.db"


async def test_a_pop_cancelled_while_queued_is_never_done(path: Path) -> None:
    session, gate = SQLiteSession("s", path), Gate()
    await session.add_items([message("1")])
    with carrier_to(path) as carrier:
        blocker = asyncio.create_task(carrier.carry(gate, 30))
        await asyncio.to_thread(gate.entered.wait, 30)
        pop = asyncio.create_task(session.pop_item())
        await asyncio.sleep(0.02)
        pop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pop
        gate.go_on.set()
        await blocker
    assert await session.get_items() == [message("1")]
    session.close()


async def test_a_pop_cancelled_inside_its_transaction_is_undone_in_it(path: Path) -> None:
    session, gate = SQLiteSession("s", path), Gate()
    await session.append([message("1"), message("2")], writer="run", start=0)
    head = await session.head()
    with carrier_to(path) as carrier:
        pop = asyncio.create_task(session.pop_item())
        behind = asyncio.create_task(carrier.carry(gate, 30))  # the same group: the pop is begun and must wait
        await asyncio.to_thread(gate.entered.wait, 30)
        pop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pop
        gate.go_on.set()
        await behind
    assert await session.head() == head
    assert await session.written("run") == [message("1"), message("2")]
    session.close()


async def test_a_pop_whose_answer_nobody_takes_is_put_back_before_the_next_write(path: Path) -> None:
    """Cancelled between the commit and the moment its task runs again: the answer is there and not taken."""
    session = SQLiteSession("s", path)
    await session.append([message("1"), message("2")], writer="run", start=0)
    head = await session.head()
    for _ in range(20):
        pop = asyncio.create_task(session.pop_item())
        await asyncio.sleep(0)
        while True:  # without giving control back, until the store has done it
            with closing(sqlite3.connect(path)) as db:
                if db.execute("SELECT count(*) FROM agent_messages").fetchone() == (1,):
                    break
        pop.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pop
        await session.add_items([message("next")])
        assert [item["content"] for item in await session.get_items()] == ["1", "2", "next"]
        assert await session.pop_item() == message("next")
        assert await session.head() == head
    session.close()


async def test_an_undo_survives_the_failure_of_the_group_it_was_in(path: Path) -> None:
    session, gate = SQLiteSession("s", path), Gate()
    await session.add_items([message("1")])
    with carrier_to(path) as carrier:
        pop = asyncio.create_task(session.pop_item())
        behind = asyncio.create_task(carrier.carry(gate, 30))
        failing = asyncio.create_task(carrier.carry(broken, 30))
        await asyncio.to_thread(gate.entered.wait, 30)
        pop.cancel()
        gate.go_on.set()
        await asyncio.gather(pop, behind, failing, return_exceptions=True)
    assert pop.cancelled()
    assert isinstance(failing.exception(), ZeroDivisionError)
    await session.add_items([message("2")])
    assert await session.get_items() == [message("1"), message("2")]
    session.close()


async def test_a_lease_whose_acquisition_was_cancelled_is_given_up(path: Path) -> None:
    session = SQLiteSession("s", path)
    await session.add_items([message("1")])
    for delay in (0, 0.0005, 0.001, 0.002, 0.004):
        task = asyncio.create_task(session.lease(ttl_s=600, wait_s=10))
        await asyncio.sleep(delay)
        if not task.cancel():
            await (await task).release()
        else:
            await asyncio.wait([task])
            if not task.cancelled():
                await task.result().release()
        async with await session.lease(ttl_s=600, wait_s=10):
            pass
    session.close()


def test_a_loop_that_ends_with_operations_under_way_leaves_nothing_behind(path: Path) -> None:
    session = SQLiteSession("s", path)

    async def start_and_leave() -> None:
        await session.add_items([message("1"), message("2")])
        pops = [asyncio.ensure_future(session.pop_item()) for _ in range(20)]
        await asyncio.sleep(0)  # asyncio.run cancels them all
        assert len(pops) == 20

    for _ in range(5):
        asyncio.run(start_and_leave())
        items = asyncio.run(session.get_items())
        assert items == [message("1"), message("2")]
        asyncio.run(session.clear_session())
    session.close()


def test_a_loop_that_is_closed_under_a_pop_does_not_take_the_item_with_it(path: Path) -> None:
    session = SQLiteSession("s", path)
    asyncio.run(session.add_items([message("1")]))
    loop = asyncio.new_event_loop()
    pop = session.pop_item()
    task = loop.create_task(pop)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")  # the pop is done when its loop stands still, and not before
        loop.run_until_complete(asyncio.sleep(0))
        other.execute("ROLLBACK")
    while True:
        with closing(sqlite3.connect(path)) as db:
            if db.execute("SELECT count(*) FROM agent_messages").fetchone() == (0,):
                break
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]  # it is the point of this test
    asyncio.run(session.add_items([message("2")]))
    assert asyncio.run(session.get_items()) == [message("1"), message("2")]
    session.close()


LOOPS, TASKS, STEPS = 3, 8, 60


def test_a_storm_of_cancelled_operations_on_three_loops_loses_and_doubles_nothing(path: Path) -> None:
    """Every item is in the history or was handed to somebody, exactly once, and batches stay whole."""
    sessions = [SQLiteSession("s", path) for _ in range(LOOPS)]
    added: list[set[str]] = [set() for _ in range(LOOPS)]
    maybe: list[set[str]] = [set() for _ in range(LOOPS)]
    popped: list[list[str]] = [[] for _ in range(LOOPS)]

    async def one(place: int, task: int) -> None:
        chance = random.Random(place * 1000 + task)
        for step in range(STEPS):
            name = f"{place}.{task}.{step}"
            if chance.random() < 0.5:
                work = asyncio.ensure_future(sessions[place].add_items([message(f"{name}a"), message(f"{name}b")]))
            else:
                work = asyncio.ensure_future(sessions[place].pop_item())
            adding = work.get_coro().__name__ == "add_items"  # type: ignore[union-attr]
            for _ in range(chance.choice((0, 0, 1, 2, 5))):
                await asyncio.sleep(0)
            if chance.random() < 0.3:
                await asyncio.sleep(chance.random() * 0.004)
            work.cancel()
            try:
                result = await work
            except asyncio.CancelledError:
                if adding:
                    maybe[place] |= {f"{name}a", f"{name}b"}
                continue
            if adding:
                added[place] |= {f"{name}a", f"{name}b"}
            elif result is not None:
                popped[place].append(result["content"])

    async def many(place: int) -> None:
        await asyncio.gather(*(one(place, task) for task in range(TASKS)))

    threads = [threading.Thread(target=asyncio.run, args=(many(place),)) for place in range(LOOPS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    asyncio.run(sessions[0].add_items([message("end")]))  # whatever was owed is put back before this
    left = [item["content"] for item in asyncio.run(sessions[0].get_items())]
    assert left.pop() == "end"
    taken = [text for texts in popped for text in texts]
    seen = Counter(left + taken)
    assert [text for text, count in seen.items() if count > 1] == []
    assert set.union(*added) <= set(seen)
    assert set(seen) <= set.union(*added, *maybe)
    for text in seen:  # of a batch that was cancelled too late, both or none were ever there
        assert text[:-1] + "a" in seen
        assert text[:-1] + "b" in seen
    for session in sessions:
        session.close()
    with closing(sqlite3.connect(path)) as db:
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
