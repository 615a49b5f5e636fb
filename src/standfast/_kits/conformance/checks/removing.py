"""A7, A11, A12: batches of nothing, pops and clears."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import Lab, batch, close, message
from standfast._kits.conformance.faults import in_threads
from standfast._kits.conformance.processes import together
from standfast._kits.conformance.registry import proves

if TYPE_CHECKING:
    from standfast._src.base.json_values import Item
    from standfast._src.runs.engine.run_store import RunStore
    from standfast._src.sessions.protocol import Session


@proves("A7")
async def an_empty_batch_changes_nothing(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([])
    await lab.holds(session, [], "an empty batch on an empty session")
    await session.add_items(batch("history", 2))
    await session.add_items([])
    await lab.holds(session, batch("history", 2), "an empty batch")


@proves("A7", "append", "times")
async def an_empty_batch_moves_neither_head_nor_time(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([])
    lab.same(await session.info(), None, "an empty batch on an empty session, by info()")
    await session.add_items(batch("history", 2))
    before = (await session.head(), await session.info())
    await session.add_items([])
    await session.append([], writer="run", start=0)
    lab.same((await session.head(), await session.info()), before, "empty batches, by head and times")


@proves("A11")
async def pop_gives_the_newest_item_until_there_is_none(lab: Lab) -> None:
    session = lab.open()
    lab.same(await session.pop_item(), None, "pop_item() on an empty session")
    await session.add_items(batch("history", 3))
    for left in (2, 1, 0):
        lab.same(await session.pop_item(), batch("history", 3)[left], f"a pop that leaves {left}")
        await lab.holds(session, batch("history", 3)[:left], f"a pop that leaves {left}")
    lab.same(await session.pop_item(), None, "pop_item() on an emptied session")
    await session.add_items([message("again")])
    await lab.holds(session, [message("again")], "writing after the last pop")


@proves("A11")
async def concurrent_pops_never_return_the_same_item(lab: Lab) -> None:
    session = lab.open()
    wanted = batch("history", 60)
    await session.add_items(wanted)
    others = [lab.another(session) for _ in range(3)]

    async def pops() -> list[Any]:
        return [await others[number % 3].pop_item() for number in range(4)]

    tasks = await asyncio.gather(*(pops() for _ in range(6)))
    threads = await asyncio.to_thread(in_threads, [_make_popper(lab, session, 9) for _ in range(4)])
    popped = [item for found in (*tasks, *_results(lab, threads)) for item in found]
    places = sorted(item["place"] for item in popped if item is not None)
    lab.expect(len(popped) == 60, f"{len(popped)} pops were made instead of 60")
    lab.same(places, list(range(60)), "60 concurrent pops of 60 items, by the items' places")
    await lab.holds(session, [], "60 concurrent pops of 60 items")


@proves("A11", "processes")
async def pops_of_several_processes_never_return_the_same_item(lab: Lab) -> None:
    session = lab.open()
    wanted = batch("history", 45)
    await session.add_items(wanted)
    popped: list[str] = []
    with together(lab.backend, 3, "pop_all") as children:
        for child in children:
            popped += [fact["popped"] for fact in await asyncio.to_thread(child.rest)]
    lab.same(sorted(popped), sorted(item["content"] for item in wanted), "three processes popped 45 items")
    await lab.holds(session, [], "three processes popped everything")


@proves("A12")
async def clearing_removes_this_session_and_no_other(lab: Lab) -> None:
    ids = ("a", "A", "a%", "a_", "_", "%", "*", "a:messages", "a b", "ab", "a:b", "a.b")
    sessions = {name: lab.open(name) for name in ids}
    for name, session in sessions.items():
        await session.add_items([message(f"of {name}")])
    for cleared in ("a", "a%", "%", "_"):
        await sessions[cleared].clear_session()
        await lab.holds(sessions[cleared], [], f"clearing {cleared!r}")
        lab.same(await sessions[cleared].pop_item(), None, f"clearing {cleared!r} and popping")
        gone = ids[: ids.index(cleared) + 1] if cleared == "a" else ()
        for name, session in sessions.items():
            if name not in gone and name not in ("a", "a%", "%", "_"):
                await lab.holds(session, [message(f"of {name}")], f"clearing {cleared!r}, by session {name!r}")
    await sessions["a"].add_items([message("new")])
    await lab.holds(lab.another(sessions["a"]), [message("new")], "writing to a cleared session")


@proves("A12", "inject_record", "records")
async def clearing_removes_corrupt_records_too(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 2))
    lab.backend.inject_record(session.session_id, b"{broken")
    await session.clear_session()
    if lab.has(session, "corrupt"):
        lab.same(await session.corrupt_records(), [], "clearing, by corrupt_records()")
    if lab.backend.can("raw_records"):
        lab.same(lab.backend.raw_records(session.session_id), [], "clearing, by the stored records")


@proves("A12", "replace", "append")
async def clearing_removes_generations(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 3))
    await session.replace([message("summary")], upto=await session.head())
    kept = (await session.generations())[0]
    await session.clear_session()
    lab.same(await session.generations(), [], "clearing a session with a generation")
    await lab.refuses(session.read_generation(kept.id), "reading a cleared generation", LookupError)


@proves("A12", "times", "list")
async def a_cleared_session_begins_anew(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 1))
    before = await session.info()
    await session.clear_session()
    lab.same(await session.info(), None, "clearing, by info()")
    lab.same(await session.count_sessions(), 0, "clearing the only session, by count_sessions()")
    await asyncio.sleep(0.002)  # so that "new" and "old" are different instants
    await session.add_items(batch("history", 1))
    after = await session.info()
    lab.expect(
        after is not None and after.created_at > before.created_at,
        f"a cleared and rewritten session says it was created at {after and after.created_at}, as before the clear",
    )


@proves("A12", "runs")
async def clearing_removes_the_runs_that_nobody_holds(lab: Lab) -> None:
    session, other = lab.open(), lab.open("another conversation")
    runs = session.run_store()
    for status in ("running", "paused", "done"):
        await _save(runs, status, status, session.session_id)
    await _save(runs, "of another", "paused", other.session_id)
    await _save(runs, "of nobody", "paused", None)
    await session.clear_session()
    for status in ("running", "paused", "done"):
        lab.same(await runs.load_run(status), None, f"clearing a session with a run that is {status}")
    for kept in ("of another", "of nobody"):
        lab.expect(await runs.load_run(kept) is not None, f"clearing a session removed the run {kept!r}")


@proves("A12", "runs", "lease")
async def clearing_leaves_a_run_that_holds_its_session(lab: Lab) -> None:
    session = lab.open()
    runs = session.run_store()
    async with await session.lease(ttl_s=60, wait_s=0):
        await _save(runs, "under way", "running", session.session_id)
        await _save(runs, "paused", "paused", session.session_id)
        await session.clear_session()
        lab.expect(await runs.load_run("under way") is not None, "clearing removed the run that holds the session")
        lab.same(await runs.load_run("paused"), None, "clearing under a lease, by a paused run")
    await session.clear_session()
    lab.same(await runs.load_run("under way"), None, "clearing after the lease was given up")


async def _save(runs: RunStore, run_id: str, status: str, session_id: str | None) -> None:
    await runs.save_run(run_id, expect=0, head=b"{}", tails={}, status=status, agent="a", session_id=session_id)


def _make_popper(lab: Lab, session: Session, count: int) -> Callable[[], Coroutine[Any, Any, list[Item | None]]]:
    async def pops() -> list[Any]:
        mine = lab.backend.open(session.session_id) if lab.backend.shared else session
        found = [await mine.pop_item() for _ in range(count)]
        if mine is not session:
            await close(mine)
        return found

    return pops


def _results(lab: Lab, outcomes: list[Any]) -> list[Any]:
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            lab.broken(f"a thread's pop raised {type(outcome).__name__}: {outcome}")
    return outcomes
