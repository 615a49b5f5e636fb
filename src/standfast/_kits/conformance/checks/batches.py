"""A5, A6, A8, A9, A10: batches are whole under concurrent writers, and a refused batch leaves no trace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import Lab, batch, close, message, torn
from standfast._kits.conformance.faults import in_threads
from standfast._kits.conformance.processes import start, together
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import OutcomeUnknownError

if TYPE_CHECKING:
    from standfast._src.sessions.protocol import Session


@proves("A5")
async def a_large_batch_keeps_its_order(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("large", 700))
    await lab.holds(session, batch("large", 700), "a batch of 700")
    lab.same(await session.get_items(limit=650), batch("large", 700)[-650:], "a batch of 700, limit=650")


@proves("A5")
async def no_reader_in_this_process_sees_part_of_a_batch(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("first", 2))
    finished = asyncio.Event()
    reads = 0

    async def read() -> None:
        nonlocal reads
        reader = lab.another(session)
        while not finished.is_set() or reads < 5:
            lab.expect(not (seen := torn(await reader.get_items())), f"a reader saw a torn batch: {seen}")
            reads += 1
            await asyncio.sleep(0)

    async def write(name: int) -> None:
        writer = lab.another(session)
        for turn in range(6):
            await writer.add_items(batch(f"writer {name} turn {turn}", 1 + 7 * turn))
            await asyncio.sleep(0)

    async def work() -> None:
        await asyncio.gather(*(write(name) for name in range(4)))
        await asyncio.to_thread(in_threads, [_make_writer(lab, session, f"thread {name}", 4, 9) for name in range(3)])
        finished.set()

    await asyncio.gather(read(), read(), work())
    lab.expect(not (seen := torn(await session.get_items())), f"a torn batch was left: {seen}")


@proves("A5", "processes")
async def no_reader_in_another_process_sees_part_of_a_batch(lab: Lab) -> None:
    session = lab.open()
    with start(lab.backend, "append_batches", name="child", size=40, method="add_items") as child:
        await asyncio.to_thread(child.next)
        for number in range(8):
            child.go()
            lab.same(await asyncio.to_thread(child.next), {"begin": number}, "asking the child to write")
            done = asyncio.create_task(asyncio.to_thread(child.next))
            while not done.done():
                lab.expect(not (seen := torn(await session.get_items())), f"while another process wrote: {seen}")
                await asyncio.sleep(0)
            await done
            history = await session.get_items()
            lab.expect(not (seen := torn(history)), f"after another process wrote: {seen}")
            lab.expect(len(history) == 40 * (number + 1), f"an acknowledged batch is not there: {len(history)} items")


@proves("A6")
async def a_batch_that_is_not_json_leaves_nothing(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("before", 2))
    wrong: list[Any] = [
        [message("good"), {"role": "user", "content": object()}],
        [{"role": "user", "content": object()}, message("good")],
        [message("good")] * 30 + [{"n": {1, 2}}],
    ]
    for items in wrong:
        await lab.refuses(session.add_items(items), "a batch with an item that is not JSON")
        await lab.holds(session, batch("before", 2), "a batch was refused")
    await session.add_items(batch("after", 1))
    await lab.holds(lab.another(session), batch("before", 2) + batch("after", 1), "a batch was refused, then another")


@proves("A6", "lose_acknowledgement")
async def a_lost_acknowledgement_is_said_to_be_an_unknown_outcome(lab: Lab) -> None:
    session = lab.open_impatient()
    await session.add_items(batch("before", 1))
    with lab.backend.lose_acknowledgement():
        try:
            await session.add_items(batch("lost", 3))
        except OutcomeUnknownError:
            pass
        except Exception as error:
            lab.broken(f"a write whose answer was lost raised {type(error).__name__}, not OutcomeUnknownError")
    history = await session.get_items()
    lab.expect(not (seen := torn(history)), f"after a lost acknowledgement: {seen}")
    await session.add_items(batch("after", 1))
    history = await session.get_items()
    lab.expect(not (seen := torn(history)), f"after a lost acknowledgement and another write: {seen}")


@proves("A8", "stall")
async def a_write_that_had_to_wait_is_done_once(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("before", 3))
    stalled = lab.backend.stall()
    with stalled:
        adding = asyncio.create_task(session.add_items(batch("waited", 2)))
        await asyncio.sleep(0.3)
    await adding
    await lab.holds(session, batch("before", 3) + batch("waited", 2), "a write that waited for the store")
    with lab.backend.stall():
        popping = asyncio.create_task(session.pop_item())
        await asyncio.sleep(0.3)
    lab.same(await popping, batch("waited", 2)[1], "a pop that waited for the store")
    await lab.holds(session, batch("before", 3) + batch("waited", 2)[:1], "a pop that waited for the store")


@proves("A8", "lose_acknowledgement")
async def a_pop_whose_answer_was_lost_takes_one_item_at_most(lab: Lab) -> None:
    session = lab.open_impatient()
    await session.add_items(batch("history", 5))
    with lab.backend.lose_acknowledgement():
        try:
            await session.pop_item()
        except Exception:  # that it says so is A6's and A13's business; here only the count matters
            pass
    left = await session.get_items()
    lab.expect(len(left) >= 4, f"one pop removed {5 - len(left)} items")
    lab.same(left, batch("history", 5)[: len(left)], "a pop whose answer was lost")


@proves("A9", "shared")
async def first_writers_among_tasks_and_threads_all_succeed(lab: Lab) -> None:
    for _ in range(3):
        async with lab.elsewhere() as there:
            sessions = [there.open(f"task {number % 3}") for number in range(9)]
            works = [session.add_items(batch(f"task {n}", 2)) for n, session in enumerate(sessions)]
            await asyncio.gather(*works)
            for name in range(3):
                history = await there.open(f"task {name}").get_items()
                lab.expect(len(history) == 6 and not torn(history), f"three first tasks left {len(history)} items of 6")
        async with lab.elsewhere() as there:
            works = [_make_writer(there, there.open(), f"thread {number}", 1, 2) for number in range(6)]
            _all_succeeded(lab, await asyncio.to_thread(in_threads, works), "thread")
            history = await there.open().get_items()
            lab.expect(len(history) == 12 and not torn(history), f"six first threads left {len(history)} items of 12")


@proves("A9", "processes")
async def first_writers_among_processes_all_succeed(lab: Lab) -> None:
    for _ in range(max(3, lab.options.rounds // 5)):
        async with lab.elsewhere() as there:
            with together(there.backend, 5, "write_first", size=3) as children:
                for child in children:
                    try:
                        facts = await asyncio.to_thread(child.rest)
                    except RuntimeError as error:
                        lab.broken(f"one of five first processes failed {str(error).splitlines()[0]}")
                    lab.same(facts, [{"wrote": 1}], "five processes wrote first")
            history = await there.open().get_items()
            lab.expect(not (seen := torn(history)), f"five first processes: {seen}")
            lab.expect(len(history) == 15, f"five first processes left {len(history)} items of 15")


@proves("A9", "files")
async def opening_a_session_touches_nothing_before_its_first_operation(lab: Lab) -> None:
    session = lab.backend.open("untouched")
    found = sorted(path.name for path in lab.backend.folder.rglob("*"))
    await close(session)
    lab.expect(not found, f"constructing a session made {', '.join(found)}")


@proves("A10")
async def concurrent_writers_lose_nothing_and_do_not_interleave(lab: Lab) -> None:
    session = lab.open()

    async def write(name: int) -> None:
        writer = lab.another(session)
        for turn in range(5):
            await writer.add_items(batch(f"task {name} turn {turn}", 1 + (name + turn) % 5))

    tasks = asyncio.gather(*(write(name) for name in range(8)))
    works = [_make_writer(lab, session, f"thread {name}", 5, 3) for name in range(4)]
    _all_succeeded(lab, await asyncio.to_thread(in_threads, works), "thread")
    await tasks
    wanted = sum(1 + (name + turn) % 5 for name in range(8) for turn in range(5)) + 4 * 5 * 3
    history = await session.get_items()
    lab.expect(not (seen := torn(history)), f"twelve concurrent writers: {seen}")
    lab.expect(len(history) == wanted, f"twelve concurrent writers left {len(history)} items of {wanted}")
    _in_own_order(lab, history)


@proves("A10", "processes")
async def concurrent_writers_in_processes_lose_nothing(lab: Lab) -> None:
    session = lab.open()
    with together(lab.backend, 3, "write_first", size=3, batches=8) as children:
        for turn in range(8):
            await session.add_items(batch(f"here turn {turn}", 2))
        for child in children:
            lab.same(await asyncio.to_thread(child.rest), [{"wrote": 8}], "three processes wrote at once")
    history = await session.get_items()
    lab.expect(not (seen := torn(history)), f"four processes writing at once: {seen}")
    lab.expect(len(history) == 3 * 8 * 3 + 16, f"four processes left {len(history)} items of 88")
    _in_own_order(lab, history)


@proves("A10")
async def a_batch_that_fails_or_is_cancelled_touches_no_other(lab: Lab) -> None:
    session = lab.open()
    for turn in range(10):
        good = [session.add_items(batch(f"turn {turn} good {number}", 3)) for number in range(6)]
        bad = [session.add_items([message("bad"), {"content": object()}]) for _ in range(3)]
        gone = [asyncio.ensure_future(session.add_items(batch(f"turn {turn} gone {n}", 2))) for n in range(3)]
        for task in gone[1:]:
            asyncio.get_running_loop().call_soon(task.cancel)
        outcomes = await asyncio.gather(*good, *bad, *gone, return_exceptions=True)
        failed = [outcome for outcome in outcomes[:6] if outcome is not None]
        lab.expect(not failed, f"a good batch beside failing ones raised {failed[:1]}")
        history = await session.get_items()
        names = {item.get("batch") for item in history}
        lab.expect(not (seen := torn(history)), f"good, failing and cancelled batches at once: {seen}")
        missing = [n for n in range(6) if f"turn {turn} good {n}" not in names]
        lab.expect(not missing, f"acknowledged batches {missing} are not there, beside failing and cancelled ones")


def _make_writer(
    lab: Lab, session: Session, name: str, turns: int, size: int
) -> Callable[[], Coroutine[Any, Any, None]]:
    """Make a writer for a separate thread, with a separate session object if objects share a history."""

    async def write() -> None:
        mine = lab.backend.open(session.session_id) if lab.backend.shared else session
        for turn in range(turns):
            await mine.add_items(batch(f"{name} turn {turn}", size))
        if mine is not session:
            await close(mine)

    return write


def _all_succeeded(lab: Lab, outcomes: list[Any], kind: str) -> None:
    for outcome in outcomes:
        lab.expect(
            not isinstance(outcome, BaseException), f"one {kind} failed with {type(outcome).__name__}: {outcome}"
        )


def _in_own_order(lab: Lab, history: list[Any]) -> None:
    """Expect each writer's batches in their order of writing."""
    latest: dict[str, int] = {}
    for item in history:
        name, _, turn = item["batch"].rpartition(" turn ")
        lab.expect(latest.get(name, 0) <= int(turn), f"batches of {name!r} are not in the order they were written")
        latest[name] = int(turn)
