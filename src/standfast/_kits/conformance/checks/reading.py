"""A1 to A4: content, amount and order of reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._kits.conformance.check_context import Lab, batch, message
from standfast._kits.conformance.faults import time_zone, wall_clock
from standfast._kits.conformance.registry import proves

if TYPE_CHECKING:
    pass


@proves("A1")
async def items_come_back_in_the_order_they_were_appended(lab: Lab) -> None:
    session = lab.open()
    await lab.holds(session, [], "nothing was written")
    history = []
    for name, size in (("first", 3), ("second", 1), ("third", 5)):
        await session.add_items(batch(name, size))
        history += batch(name, size)
        await lab.holds(session, history, f"batch {name!r}")
    await lab.holds(lab.another(session), history, "another object was opened")


@proves("A1")
async def equal_items_are_all_kept(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([message("yes"), message("yes")])
    await session.add_items([message("yes")])
    await lab.holds(session, [message("yes")] * 3, "the same message three times")


@proves("A2")
async def a_limit_gives_the_latest_items_oldest_first(lab: Lab) -> None:
    session = lab.open()
    history = batch("history", 7)
    await session.add_items(history)
    for limit in (0, 1, 3, 7, 8, 1000):
        wanted = history[-limit:] if limit else []
        lab.same(await session.get_items(limit=limit), wanted, f"get_items(limit={limit}) of 7 items")


@proves("A2")
async def a_limit_that_is_no_count_is_refused(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 3))
    for limit in (-1, -3, 2.5, "2"):
        await lab.refuses(session.get_items(limit=limit), f"get_items(limit={limit!r})", ValueError, TypeError)
    await lab.holds(session, batch("history", 3), "refused limits")


@proves("A2", "settings")
async def a_default_limit_that_is_no_count_is_refused(lab: Lab) -> None:
    for limit in (-1, 2.5):

        async def use(limit: float = limit) -> object:
            session = lab.open(session_settings={"limit": limit})
            await session.add_items(batch("history", 3))
            return await session.get_items()

        await lab.refuses(use(), f"a session with the default limit {limit!r}", ValueError, TypeError)


@proves("A2", "inject_record")
async def corrupt_records_do_not_count_against_a_limit(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 4))
    for number in range(5):
        lab.backend.inject_record(session.session_id, b"{broken %d" % number)
    await session.add_items(batch("new", 1))
    lab.same(
        await session.get_items(limit=3), batch("old", 4)[-2:] + batch("new", 1), "limit=3 across five corrupt records"
    )


@proves("A3", "settings")
async def an_explicit_limit_wins_over_the_default(lab: Lab) -> None:
    session = lab.open(session_settings={"limit": 2})
    history = batch("history", 6)
    await session.add_items(history)
    lab.same(await session.get_items(), history[-2:], "get_items() with a default of 2")
    for limit in (0, 1, 4, 100):
        wanted = history[-limit:] if limit else []
        lab.same(await session.get_items(limit=limit), wanted, f"get_items(limit={limit}) with a default of 2")
    session.session_settings.limit = 3
    lab.same(await session.get_items(), history[-3:], "the default was changed to 3")
    session.session_settings.limit = None
    lab.same(await session.get_items(), history, "the default was taken away")


@proves("A3", "settings", "fork")
async def a_fork_ignores_the_default_limit(lab: Lab) -> None:
    session = lab.open(session_settings={"limit": 1})
    await session.add_items(batch("history", 5))
    fork = await session.fork("fork")
    lab.same(await fork.get_items(limit=100), batch("history", 5), "forking a session with a default limit of 1")


@proves("A3", "settings", "replace")
async def a_replacement_ignores_the_default_limit(lab: Lab) -> None:
    session = lab.open(session_settings={"limit": 1})
    await session.add_items(batch("history", 5))
    await session.replace([message("summary")], upto=await session.head())
    kept = (await session.generations())[0]
    lab.same(await session.read_generation(kept.id), batch("history", 5), "replacing with a default limit of 1")
    lab.same(await session.get_items(limit=100), [message("summary")], "replacing with a default limit of 1")


@proves("A4")
async def items_of_one_instant_keep_their_order(lab: Lab) -> None:
    session = lab.open()
    wanted = [message(number) for number in range(40)]
    with wall_clock(_package(session)):
        for item in wanted:
            await session.add_items([item])
        await lab.holds(session, wanted, "forty appends in one instant")
        lab.same(await session.get_items(limit=7), wanted[-7:], "forty appends in one instant")


@proves("A4")
async def a_clock_that_goes_back_changes_no_order(lab: Lab) -> None:
    session = lab.open()
    wanted = []
    with wall_clock(_package(session)) as clock:
        for number, step_s in enumerate((0, 60, -3600, 1, -86_400 * 400, 0.001, 30)):
            clock.step(step_s)
            wanted.append(message(number))
            await session.add_items(wanted[-1:])
            await lab.holds(session, wanted, f"the clock moved by {step_s} s")
        lab.same(await session.get_items(limit=3), wanted[-3:], "a clock that went back")
        lab.same(await session.pop_item(), wanted[-1], "a pop after the clock went back")


@proves("A4", "shift_times")
async def stored_times_from_the_future_change_no_order(lab: Lab) -> None:
    session = lab.open()
    wanted = []
    for number in range(4):
        wanted.append(message(number))
        await session.add_items(wanted[-1:])
        lab.backend.shift_times(session.session_id, 3600)  # the clock now goes back by an hour, every time
    await lab.holds(session, wanted, "each item was stored an hour before the one before it")
    lab.same(await session.get_items(limit=2), wanted[-2:], "each item was stored an hour before the one before it")
    lab.same(await session.pop_item(), wanted[-1], "a pop of items stored by a clock that went back")


@proves("A4")
async def a_change_of_time_zone_changes_no_order(lab: Lab) -> None:
    session = lab.open()
    wanted = []
    for number, zone in enumerate(("UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Kolkata", "UTC")):
        with time_zone(zone):
            wanted.append(message(number))
            await session.add_items(wanted[-1:])
            await lab.holds(session, wanted, f"writing in {zone}")


def _package(session: object) -> str:
    return type(session).__module__.partition(".")[0]
