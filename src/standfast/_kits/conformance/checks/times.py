"""A16: creation and update time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import datetime

from standfast._kits.conformance.check_context import AnySession, Lab, batch, message
from standfast._kits.conformance.faults import wall_clock
from standfast._kits.conformance.registry import proves

Times = tuple[datetime, datetime]


async def _times(lab: Lab, session: AnySession) -> Times:
    if lab.has(session, "times"):
        info = await session.info()
        lab.expect(info is not None, "a session that was written to has no times")
        return info.created_at, info.updated_at
    found = lab.backend.stored_times(session.session_id)
    if found is None:
        lab.broken("a session that was written to has no times")
    return found


@proves("A16", "clock times")
async def the_creation_time_is_set_once_and_the_update_time_moves_with_changes(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 3))
    created, updated = await _times(lab, session)

    async def changes(what: str, doing: Awaitable[object]) -> None:
        nonlocal updated
        await asyncio.sleep(0.005)  # finer than a second, so five milliseconds must show
        await doing
        now_created, now_updated = await _times(lab, session)
        lab.same(now_created, created, f"{what}, by the creation time")
        lab.expect(now_updated > updated, f"{what} did not move the update time from {updated}")
        updated = now_updated

    await changes("add_items", session.add_items(batch("more", 1)))
    await changes("pop_item", session.pop_item())
    if lab.has(session, "append"):
        await changes("append", session.append([message(1), message(2)], writer="run", start=0))
    if lab.has(session, "rewind"):
        await changes("rewind", session.rewind(writer="run", to=1))
    if lab.has(session, "replace"):
        await changes("replace", session.replace([message("summary")], upto=await session.head()))
        await changes("restore", session.restore((await session.generations())[0].id))


@proves("A16", "clock times")
async def what_changes_nothing_does_not_move_the_update_time(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 3))
    before = await _times(lab, session)
    await asyncio.sleep(0.005)
    await session.get_items()
    await session.get_items(limit=1)
    await session.add_items([])
    lab.same(await _times(lab, session), before, "reads and an empty batch")
    if lab.has(session, "lease"):
        await (await session.lease(ttl_s=5, wait_s=5)).release()
        lab.same(await _times(lab, session), before, "a lease")
    if lab.has(session, "append"):
        await session.append([message(1)], writer="run", start=0)
        before = await _times(lab, session)
        await asyncio.sleep(0.005)
        await session.append([message(1)], writer="run", start=0)
        await session.written("run")
        lab.same(await _times(lab, session), before, "a repeated append")


@proves("A16", "clock times")
async def the_update_time_never_moves_back(lab: Lab) -> None:
    session = lab.open()
    with wall_clock(type(session).__module__.partition(".")[0]) as clock:
        await session.add_items(batch("history", 3))
        _, updated = await _times(lab, session)
        for step_s in (-3600, -1, 0):
            clock.step(step_s)
            await session.add_items([message("later")])
            _, now = await _times(lab, session)
            lab.expect(
                now >= updated, f"the clock went back by {-step_s} s and the update time from {updated} to {now}"
            )
            updated = now


@proves("A16", "times", "shift_times")
async def times_stored_by_a_clock_ahead_never_move_back(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 2))
    lab.backend.shift_times(session.session_id, 3600)
    before = await session.info()
    await session.pop_item()
    after = await session.info()
    lab.expect(
        after.updated_at >= before.updated_at, f"the update time went from {before.updated_at} to {after.updated_at}"
    )
    lab.same(after.created_at, before.created_at, "a pop, by the creation time")


@proves("A16")
async def neither_times_nor_backend_ids_show_up_in_an_item(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([{}, {"role": "user"}, {"content": "x"}])
    await lab.holds(session, [{}, {"role": "user"}, {"content": "x"}], "storing items without ids or times")
    lab.same(await session.pop_item(), {"content": "x"}, "popping an item without ids or times")
