"""A13: a caller may leave at any moment, and no call waits for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from standfast._kits.conformance.check_context import AnySession, Lab, batch, message, torn
from standfast._kits.conformance.faults import Cut, Operation, cancelled_at
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import OutcomeUnknownError, StoreTimeoutError

if TYPE_CHECKING:
    from standfast._src.base.json_values import Item
    from standfast._src.sessions.protocol import Session

T = TypeVar("T")

AWAITS_MAX = 50
# An operation that waits more often than this polls something; its later awaits are like its earlier ones.


@proves("A13")
async def a_cancelled_call_leaves_the_store_as_before_or_after(lab: Lab) -> None:
    """Add, read, pop and clear, each cancelled at every await it has."""
    operations: dict[str, Callable[[Any], Awaitable[Any]]] = {
        "add_items": lambda session: session.add_items(batch("added", 3)),
        "get_items": lambda session: session.get_items(),
        "pop_item": lambda session: session.pop_item(),
        "clear_session": lambda session: session.clear_session(),
    }
    before = batch("before", 3)
    after = {
        "add_items": before + batch("added", 3),
        "get_items": before,
        "pop_item": before[:-1],
        "clear_session": [],
    }
    for name, operation in operations.items():
        session = lab.open(f"cancelled {name}")

        async def prepare(
            session: Session = session, operation: Callable[[Session], Awaitable[Any]] = operation, name: str = name
        ) -> Operation:
            await _works(lab, session, f"a cancelled {name}")
            await session.clear_session()
            await session.add_items(before)
            return lambda: operation(session)

        async def judge(moment: str, cut: Cut, session: Session = session, name: str = name) -> None:
            history = await session.get_items()
            lab.expect(
                history in (before, after[name]),
                f"{name} cancelled at {moment} left {len(history)} items, neither the old nor the new state",
            )

        await _sweep(lab, prepare, judge, moments=6)
        await _works(lab, session, f"a cancelled {name}")


@proves("A13")
async def a_cancelled_pop_loses_nothing(lab: Lab) -> None:
    session = lab.open()
    history = batch("history", 4)

    async def prepare() -> Operation:
        await session.clear_session()
        await session.add_items(history)
        return lambda: session.pop_item()

    async def judge(moment: str, cut: Cut) -> None:
        await session.add_items([message("next")])
        wanted = [*history, message("next")] if cut.cancelled else [*history[:-1], message("next")]
        seen = await session.get_items()
        lab.expect(
            seen == wanted,
            f"a pop cancelled at {moment} {'was cancelled' if cut.cancelled else 'returned'}, and after the next write "
            f"there are {len(seen)} items instead of {len(wanted)}"
            + ("" if history[-1] in seen or not cut.cancelled else ": the item is lost"),
        )

    await _sweep(lab, prepare, judge, moments=12)


@proves("A13", "append", "rewind", "replace")
async def a_cancelled_change_leaves_the_store_as_before_or_after(lab: Lab) -> None:
    """Append, rewind and replace, each cancelled at each of its awaits."""
    before, summary = batch("before", 3), [message("summary")]
    for name in ("append", "rewind", "replace"):
        session = lab.open(f"cancelled {name}")
        writers: list[str] = []

        async def prepare(session: AnySession = session, name: str = name, writers: list[str] = writers) -> Operation:
            writers.append(writer := f"run {len(writers)}")
            await session.clear_session()
            await session.append(before, writer=writer, start=0)
            head = await session.head()
            if name == "append":
                return lambda: session.append(batch("added", 2), writer=writer, start=3, expect=head)
            if name == "rewind":
                return lambda: session.rewind(writer=writer, to=1)
            return lambda: session.replace(summary, upto=head)

        after = {"append": before + batch("added", 2), "rewind": before[:1], "replace": summary}[name]

        async def judge(
            moment: str,
            cut: Cut,
            session: AnySession = session,
            name: str = name,
            after: list[Item] = after,
            writers: list[str] = writers,
        ) -> None:
            async def look() -> tuple[Any, int, int]:
                history, count = await session.get_items(), await session.accepted(writers[-1])
                return history, count, len(await session.generations())

            # What had left may still be done while we look, so only what two looks agree on is compared.
            seen, again = await look(), await look()
            while seen != again:
                seen, again = again, await look()
            kept = before, len(before), 0
            done = after, {"append": 5, "rewind": 1, "replace": 3}[name], int(name == "replace")
            lab.expect(
                seen in (kept, done),
                f"{name} cancelled at {moment} left {len(seen[0])} items, count {seen[1]} and {seen[2]} generations",
            )

        await _sweep(lab, prepare, judge, moments=4)


@proves("A13", "stall")
async def a_cancelled_caller_gets_control_back_from_a_store_that_stalls(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("before", 3))
    for name, operation in _writes(session).items():
        with lab.backend.stall():
            task = asyncio.ensure_future(operation())
            await asyncio.sleep(0.1)
            lab.expect(not task.done(), f"{name} ended while the store was stalled: {task}")
            task.cancel()
            waited_s = await _at_once(task)
            lab.expect(task.done(), f"{name} was cancelled and had not given control back after {waited_s:.1f} s")
            lab.expect(task.cancelled(), f"{name} was cancelled in a stalled store and ended as {task}")
        await session.add_items([message("next")])
        if lab.backend.remote:
            await _expect_settled(lab, session, f"a {name} that was cancelled in a stalled store")
            continue
        await lab.holds(session, [*batch("before", 3), message("next")], f"a {name} cancelled in a stalled store")
        lab.same(await session.pop_item(), message("next"), f"a {name} cancelled in a stalled store")


async def _expect_settled(lab: Lab, session: Session, after: str) -> None:
    """Expect an abandoned write to be complete or absent, and not behind the next one; then reset the session."""
    history = await session.get_items()
    lab.same(history[-1], message("next"), f"{after}, then a write")
    lab.expect(not (seen := torn([item for item in history if "batch" in item])), f"{after}: {seen}")
    await asyncio.sleep(0.05)
    lab.same(await session.get_items(), history, f"{after}, a write, and some time")
    await session.clear_session()
    await session.add_items(batch("before", 3))


@proves("A13", "stall", "deadlines")
async def a_call_past_its_deadline_says_so(lab: Lab) -> None:
    # What is not about the deadline goes through an object that has time: on a busy machine 0.3 s is little.
    hasty = lab.open(timeout_s=0.3)
    session = lab.open() if lab.backend.shared else hasty
    await session.add_items(batch("before", 3))
    for name, operation in _writes(hasty).items():
        with lab.backend.stall():
            started = time.monotonic()
            error = await lab.refuses(
                asyncio.wait_for(operation(), 2 * lab.options.soon_s),
                f"{name} in a stalled store, past its deadline",
                StoreTimeoutError,
                OutcomeUnknownError,
            )
            took_s = time.monotonic() - started
        lab.expect(took_s < 0.3 + lab.options.soon_s, f"{name} with timeout_s=0.3 took {took_s:.1f} s")
        await session.add_items([message("next")])
        history = await session.get_items()
        lab.same(history[-1], message("next"), f"a {name} that ran out of time, then a write")
        if isinstance(error, StoreTimeoutError):
            wanted = [*batch("before", 3), message("next")]
            lab.same(history, wanted, f"a {name} that said that nothing was done, then a write")
        lab.expect(not (seen := torn([i for i in history if "batch" in i])), f"a {name} that ran out of time: {seen}")
        await session.clear_session()
        await session.add_items(batch("before", 3))


@proves("A13", "stall")
async def readers_and_other_sessions_work_after_a_stall(lab: Lab) -> None:
    session, other = lab.open(), lab.open("another conversation")
    await session.add_items(batch("before", 2))
    with lab.backend.stall():
        tasks = [asyncio.ensure_future(session.add_items(batch(f"queued {n}", 2))) for n in range(4)]
        await asyncio.sleep(0.05)
        for task in tasks[1:3]:
            task.cancel()
        await asyncio.wait(tasks[1:3], timeout=lab.options.soon_s)
    await asyncio.gather(tasks[0], tasks[3])
    await other.add_items([message("theirs")])
    await lab.holds(other, [message("theirs")], "a stall of the store, by another session")
    names = [item["batch"] for item in await session.get_items()]
    if lab.backend.remote:  # what had left may be done
        names = [name for name in names if name not in ("queued 1", "queued 2")]
    lab.same(sorted(set(names)), ["before", "queued 0", "queued 3"], "two of four queued writes were cancelled")


def _writes(session: Session) -> dict[str, Callable[[], Awaitable[Any]]]:
    return {
        "add_items": lambda: session.add_items(batch("added", 2)),
        "pop_item": lambda: session.pop_item(),
        "clear_session": lambda: session.clear_session(),
    }


async def _at_once(task: asyncio.Future[Any]) -> float:
    """Wait for a task that should end at once: for two seconds, and for many iterations of the loop in that time.

    Counting the loop's turns makes a slow machine wait longer instead of accusing the store.
    """
    started, turns = time.monotonic(), 0
    while not task.done() and (time.monotonic() - started < 2 or turns < 150):
        await asyncio.sleep(0.01)
        turns += 1
    return time.monotonic() - started


async def _works(lab: Lab, session: Session, after: str) -> None:
    """The session can be written to and read from, soon."""

    async def use() -> None:
        await session.add_items([message("works")])
        lab.same((await session.get_items(limit=1)), [message("works")], after)

    try:
        await asyncio.wait_for(use(), lab.options.soon_s)
    except TimeoutError:
        lab.broken(f"after {after} the session did not work within {lab.options.soon_s:g} s: something is still held")


async def _sweep(
    lab: Lab,
    prepare: Callable[[], Awaitable[Operation]],
    judge: Callable[[str, Cut], Awaitable[None]],
    moments: int,
) -> None:
    """Cancel an operation at each of its awaits, at several moments of the wait, and judge each result."""

    async def soon(work: Awaitable[T], what: str) -> T:
        try:
            return await asyncio.wait_for(work, 3 * lab.options.soon_s)
        except TimeoutError:
            lab.broken(f"{what} did not come back: a cancelled call has left something held")

    calm = await soon(cancelled_at(await prepare(), -1), "a calm call")
    for number in range(AWAITS_MAX):
        reached = False
        for moment in range(moments):
            delay_s = calm.took_s * 1.4 * moment / moments
            operation = await soon(prepare(), "preparing a call")
            cut = await soon(cancelled_at(operation, number, delay_s), "a cancelled call")
            where = f"its await {number} after {delay_s * 1000:.2f} ms"
            lab.expect(cut.error is None, f"a call cancelled at {where} raised {cut.error!r}")
            await soon(judge(where, cut), "the call after a cancelled one")
            reached = reached or cut.reached
        if not reached:
            return
