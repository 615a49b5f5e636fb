"""B6, B8, B9: forks, pages and listings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from standfast._kits.conformance.check_context import Lab, batch, message
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import NotFoundError, SessionConflictError
from standfast._src.sessions.protocol import CanPage, Position


@proves("B6")
async def a_fork_continues_from_any_position(lab: Lab) -> None:
    session = lab.open()
    whole = batch("history", 5)
    await session.add_items(whole)
    for index in (0, 1, 3, 5):
        fork = await session.fork(f"fork at {index}", at=Position(index))
        lab.same(fork.session_id, f"fork at {index}", "forking, by the session id")
        await lab.holds(fork, whole[:index], f"a fork at {index}")
        await fork.add_items([message("further")])
        await lab.holds(
            lab.open(f"fork at {index}"), [*whole[:index], message("further")], f"writing to a fork at {index}"
        )
    await lab.holds(await session.fork("whole"), whole, "a fork of everything")
    await lab.holds(session, whole, "forks and writes to them, by the original")


@proves("B6", "replace")
async def a_fork_continues_from_a_kept_generation(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 4))
    await session.replace([message("summary")], upto=await session.head())
    await session.add_items(batch("since", 1))
    kept = (await session.generations())[0]
    await lab.holds(await session.fork("all", at=Position(4, kept.id)), batch("old", 4), "a fork of a generation")
    await lab.holds(await session.fork("some", at=Position(2, kept.id)), batch("old", 4)[:2], "a fork in a generation")
    await lab.refuses(session.fork("none", at=Position(0, "no such")), "a fork of no generation", NotFoundError)
    lab.same(await lab.open("all").generations(), [], "a fork, by its own generations")


@proves("B6")
async def a_fork_and_its_original_never_meet_again(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("run", 3), writer="run", start=0)
    fork = await session.fork("fork")
    await session.add_items([message("original")])
    await fork.pop_item()
    await fork.add_items([message("fork")])
    await lab.holds(session, [*batch("run", 3), message("original")], "both sides of a fork wrote")
    await lab.holds(fork, [*batch("run", 3)[:2], message("fork")], "both sides of a fork wrote")
    await session.clear_session()
    await lab.holds(fork, [*batch("run", 3)[:2], message("fork")], "the original of a fork was cleared")
    other = await fork.fork("fork of a fork")
    await fork.clear_session()
    await lab.holds(other, [*batch("run", 3)[:2], message("fork")], "a fork was cleared, by its own fork")


@proves("B6", "append")
async def a_fork_knows_how_much_each_writer_had_written_there(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("a", 3), writer="a", start=0)
    await session.append(batch("b", 2), writer="b", start=0)
    fork = await session.fork("middle", at=Position(4))
    lab.same((await fork.accepted("a"), await fork.accepted("b")), (3, 1), "a fork inside a batch, by its counts")
    await fork.append(batch("a", 3), writer="a", start=0)
    await fork.append(batch("b", 2), writer="b", start=0)
    await lab.holds(fork, batch("a", 3) + batch("b", 2), "repeats on a fork")
    early = await session.fork("early", at=Position(1))
    lab.same((await early.accepted("a"), await early.accepted("b")), (1, 0), "an early fork, by its counts")


@proves("B6")
async def a_fork_into_a_session_that_is_not_empty_is_refused(lab: Lab) -> None:
    session, taken = lab.open(), lab.open("taken")
    await session.add_items(batch("history", 3))
    await taken.add_items([message("mine")])
    await lab.refuses(session.fork("taken"), "a fork into a session with items", SessionConflictError)
    await lab.refuses(session.fork(session.session_id), "a fork into itself", SessionConflictError)
    await lab.refuses(session.fork(""), "a fork into no id", ValueError)
    for index in (-1, 4):
        await lab.refuses(session.fork("new", at=Position(index)), f"a fork at {index} of 3", NotFoundError)
    await lab.holds(taken, [message("mine")], "a refused fork")
    await lab.holds(lab.open("new"), [], "a refused fork")
    outcomes = await asyncio.gather(*(session.fork("raced") for _ in range(4)), return_exceptions=True)
    lost = [outcome for outcome in outcomes if isinstance(outcome, SessionConflictError)]
    lab.expect(len(lost) == 3, f"of four forks into one id {4 - len(lost)} succeeded: {outcomes}")
    await lab.holds(lab.open("raced"), batch("history", 3), "four forks into one id")


@proves("B8", "replace", "append")
async def a_page_of_a_history_that_is_gone_is_refused(lab: Lab) -> None:
    for how in ("replaced", "cleared"):
        session = lab.open(how)
        await session.add_items(batch("old", 6))
        page = await session.page(limit=2)
        if how == "replaced":
            await session.replace(batch("new", 5), upto=await session.head())
        else:
            await session.clear_session()
            await session.add_items(batch("new", 5))
        await lab.refuses(session.page(before=page.before, limit=2), f"a page of a history that was {how}")


@proves("B8")
async def pages_put_together_are_the_history(lab: Lab) -> None:
    session = lab.open()
    whole = batch("history", 23)
    lab.same((await session.page(limit=5)).items, [], "a page of an empty session")
    await session.add_items(whole)
    for size in (1, 4, 22, 23, 24, 100):
        pages = await _pages(lab, session, size)
        lab.same([item for page in reversed(pages) for item in page], whole, f"pages of {size}")
        lab.expect(all(len(page) == size for page in pages[:-1]), f"a page of {size} before the last was not full")


@proves("B8")
async def a_page_does_not_shift_when_items_are_written_or_popped(lab: Lab) -> None:
    session = lab.open()
    whole = batch("history", 12)
    await session.add_items(whole)
    latest = await session.page(limit=4)
    await session.add_items(batch("more", 3))
    lab.same((await session.page(before=latest.before, limit=4)).items, whole[4:8], "writes between two pages")
    for _ in range(5):
        await session.pop_item()
    middle = await session.page(before=latest.before, limit=4)
    lab.same(middle.items, whole[4:8], "pops between two pages")
    lab.same((await session.page(before=middle.before, limit=9)).items, whole[:4], "the first page")
    lab.same((await session.page(before=middle.before, limit=9)).before, None, "the first page, by its cursor")


@proves("B8", "inject_record")
async def pages_leave_corrupt_records_out(lab: Lab) -> None:
    session = lab.open()
    for number in range(4):
        await session.add_items(batch(f"turn {number}", 2))
        lab.backend.inject_record(session.session_id, b"{broken")
    pages = await _pages(lab, session, 3)
    wanted = [item for number in range(4) for item in batch(f"turn {number}", 2)]
    lab.same([item for page in reversed(pages) for item in page], wanted, "pages across corrupt records")


@proves("B8")
async def a_page_costs_what_it_holds_not_what_the_history_holds(lab: Lab) -> None:
    """Compare with a hundred times the history; only a factor of twenty in time counts as growth."""
    small, large = lab.open("small"), lab.open("large")
    await small.add_items(batch("history", 200))
    for number in range(10):
        await large.add_items(batch(f"history {number}", 2000))

    async def page_of(session: CanPage) -> Callable[[], Awaitable[Any]]:
        return partial(session.page, before=(await session.page(limit=50)).before, limit=20)

    await lab.stays_flat(await page_of(small), await page_of(large), 20, "a page of 20 of 200 items and of 20,000")


@proves("B9")
async def sessions_are_listed_newest_change_first_in_pages(lab: Lab) -> None:
    sessions = [lab.open(f"conversation {number}") for number in range(7)]
    lab.same(await sessions[0].count_sessions(), 0, "nothing was written, by the count")
    lab.same((await sessions[0].list_sessions(limit=5)).sessions, [], "nothing was written")
    order = [3, 0, 5, 1, 6, 2, 4, 3, 1]
    for number in order:
        await sessions[number].add_items([message(number)])
        await asyncio.sleep(0.003)  # two changes in one instant have no order
    wanted = [f"conversation {number}" for number in dict.fromkeys(reversed(order))]
    for size in (1, 3, 7, 50):
        found: list[Any] = []
        after = None
        for _ in range(20):
            page = await sessions[0].list_sessions(after=after, limit=size)
            found += page.sessions
            after = page.after
            if after is None:
                break
        lab.same([info.session_id for info in found], wanted, f"listing in pages of {size}")
    lab.same(await sessions[0].count_sessions(), 7, "seven sessions, by the count")
    await sessions[3].clear_session()
    lab.same(await sessions[0].count_sessions(), 6, "a clear, by the count")
    names = [info.session_id for info in (await sessions[0].list_sessions(limit=50)).sessions]
    lab.expect("conversation 3" not in names, "a cleared session is still listed")


@proves("B9", "times")
async def a_listing_shows_the_sessions_times(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([message("hello")])
    await session.add_items([message("again")])
    shown = (await session.list_sessions(limit=1)).sessions[0]
    lab.same(shown, await session.info(), "a listing, by the session's own times")
    lab.expect(shown.created_at.tzinfo is not None, "a listed time has no time zone")


async def _pages(lab: Lab, session: CanPage, size: int) -> list[list[Any]]:
    pages: list[list[Any]] = []
    before = None
    for _ in range(60):
        page = await session.page(before=before, limit=size)
        pages.append(page.items)
        before = page.before
        if before is None:
            return pages
    lab.broken(f"60 pages of {size} did not reach the beginning")
