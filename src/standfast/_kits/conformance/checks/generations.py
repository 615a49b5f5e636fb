"""B3, B4, B5: replace, undo and rewind."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from standfast._kits.conformance.check_context import AnySession, Lab, batch, message
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import CorruptRecordError, NotFoundError, SessionConflictError
from standfast._src.sessions.protocol import CanAppend, CanRewind, Session, abilities

SUMMARY = [message("summary")]


@proves("B3")
async def a_replacement_stands_before_what_was_appended_since(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 4))
    upto = await session.head()
    await session.add_items(batch("since", 2))
    await session.append(batch("run", 3)[:2], writer="run", start=0)
    head = await session.replace(SUMMARY, upto=upto)
    wanted = [*SUMMARY, *batch("since", 2), *batch("run", 3)[:2]]
    await lab.holds(session, wanted, "a replace of the first four items")
    lab.same(head, await session.head(), "a replace, by the head it returned")
    kept = await session.generations()
    lab.same([g.item_count for g in kept], [4], "a replace, by its generation's count")
    lab.same(await session.read_generation(kept[0].id), batch("old", 4), "a replace, by its generation")
    await session.append(batch("run", 3), writer="run", start=0)
    await lab.holds(session, [*wanted, batch("run", 3)[2]], "a writer went on after a replace")
    await lab.holds(lab.another(session), await session.get_items(), "a replace, by another object")


@proves("B3")
async def a_replacement_may_be_longer_shorter_or_empty(lab: Lab) -> None:
    for size in (0, 1, 4, 30):
        session = lab.open(f"replaced by {size}")
        await session.add_items(batch("old", 4))
        upto = await session.head()
        await session.add_items(batch("since", 3))
        await session.replace(batch("new", size), upto=upto)
        await lab.holds(session, batch("new", size) + batch("since", 3), f"four items replaced by {size}")
        lab.same(await session.get_items(limit=2), batch("since", 3)[-2:], f"four items replaced by {size}, limit=2")
        lab.same(await session.pop_item(), batch("since", 3)[-1], f"four items replaced by {size}, then a pop")


@proves("B3")
async def a_replace_of_what_has_changed_is_refused(lab: Lab) -> None:
    async def pop(session: Session) -> None:
        await session.pop_item()

    async def pop_and_write(session: Session) -> None:
        await session.pop_item()
        await session.add_items([message("another")])

    async def clear(session: Session) -> None:
        await session.clear_session()
        await session.add_items(batch("old", 3))

    async def replace(session: AnySession) -> None:
        await session.replace([message("first summary")], upto=await session.head())

    async def rewind(session: CanRewind) -> None:
        await session.rewind(writer="run", to=1)

    changes = {"a pop": pop, "a pop and a write": pop_and_write, "a clear": clear, "a replace": replace}
    if "rewind" in abilities(lab.open("probe")):
        changes["a rewind"] = rewind
    for what, change in changes.items():
        session = lab.open(what)
        await session.append(batch("old", 3), writer="run", start=0)
        upto = await session.head()
        await change(session)
        before, kept = await session.get_items(), await session.generations()
        await lab.refuses(session.replace(SUMMARY, upto=upto), f"a replace after {what}", SessionConflictError)
        await lab.holds(session, before, f"a replace refused because of {what}")
        lab.same(await session.generations(), kept, f"a replace refused because of {what}, by the generations")


@proves("B3")
async def the_last_three_generations_are_kept(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("turn 0", 1))
    for number in range(1, 6):
        await session.replace(batch(f"turn {number}", 1), upto=await session.head())
    kept = await session.generations()
    lab.same(
        [await session.read_generation(found.id) for found in kept],
        [batch(f"turn {number}", 1) for number in (4, 3, 2)],
        "five replaces, by the generations, newest first",
    )
    lab.expect(len({found.id for found in kept}) == 3, "two generations have one id")
    lab.expect(all(found.created_at.tzinfo is not None for found in kept), "a generation's time has no time zone")


@proves("B3")
async def writers_beside_a_replace_lose_nothing(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 5))
    done = asyncio.Event()
    stored = 0

    async def write() -> None:
        nonlocal stored
        mine = lab.another(session)
        for number in range(25):
            await mine.append([message(number)], writer="run", start=number)
            stored += 1
            await asyncio.sleep(0)
        done.set()

    async def compact() -> None:
        mine = lab.another(session)
        while not done.is_set():
            upto = await mine.head()
            since = await mine.accepted("run")  # what the writer writes from now on comes after that head
            await asyncio.sleep(0)
            await mine.replace(SUMMARY, upto=upto)
            wanted = range(since, stored)
            there = {item["content"] for item in await mine.get_items()}
            lost = [number for number in wanted if str(number) not in there]
            lab.expect(not lost, f"items {lost} were appended after the head of a replace and are gone with it")

    async def read() -> None:
        mine = lab.another(session)
        while not done.is_set():
            history = await mine.get_items()
            tail = [int(item["content"]) for item in history if item["content"].isdigit()]
            lab.expect(tail == sorted(tail), f"a reader beside a replace saw {tail}")
            await asyncio.sleep(0)

    await asyncio.gather(write(), compact(), read())
    lab.same(await session.accepted("run"), 25, "25 appends beside replaces, by the count")
    tail = [int(item["content"]) for item in await session.get_items() if item["content"].isdigit()]
    lab.same(tail, list(range(25 - len(tail), 25)), "25 appends beside replaces, by the tail")


@proves("B4")
async def undo_puts_a_generation_back_and_can_be_undone(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 3))
    await session.replace(SUMMARY, upto=await session.head())
    await session.add_items(batch("since", 2))
    kept = (await session.generations())[0]
    head = await session.restore(kept.id)
    lab.same(head, await session.head(), "undo, by the head it returned")
    await lab.holds(session, batch("old", 3) + batch("since", 2), "undo")
    await session.add_items(batch("later", 1))
    displaced = (await session.generations())[0]
    lab.same(await session.read_generation(displaced.id), SUMMARY, "undo, by what it displaced")
    await session.restore(displaced.id)
    await lab.holds(session, SUMMARY + batch("since", 2) + batch("later", 1), "undo of undo")


@proves("B4")
async def undo_reaches_through_later_replaces(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("a", 2))
    await session.replace([message("summary of a")], upto=await session.head())
    first = (await session.generations())[0]
    await session.add_items(batch("b", 2))
    upto = await session.head()
    await session.add_items(batch("c", 1))
    await session.replace([message("summary of a and b")], upto=upto)
    second = (await session.generations())[0]
    await session.add_items(batch("d", 1))
    await session.restore(first.id)
    everything = [*batch("a", 2), *batch("b", 2), *batch("c", 1), *batch("d", 1)]
    await lab.holds(session, everything, "undo of the first of two replaces")
    await session.restore((await session.generations())[0].id)
    wanted = [message("summary of a and b"), *batch("c", 1), *batch("d", 1)]
    await lab.holds(session, wanted, "undo of that undo")
    await session.restore(second.id)
    wanted = [message("summary of a"), *batch("b", 2), *batch("c", 1), *batch("d", 1)]
    await lab.holds(session, wanted, "undo of the second replace")


@proves("B4")
async def undo_is_refused_without_its_generation_or_on_another_head(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 2))
    before = await session.head()
    await session.replace(SUMMARY, upto=before)
    kept = (await session.generations())[0]
    await lab.refuses(session.restore("no such generation"), "an unknown generation", NotFoundError)
    await lab.refuses(session.read_generation("no such generation"), "an unknown generation", NotFoundError)
    await lab.refuses(session.restore(kept.id, expect=before), "a stale head", SessionConflictError)
    await lab.holds(session, SUMMARY, "refused undos")
    await session.restore(kept.id, expect=await session.head())
    await lab.holds(session, batch("old", 2), "an undo on the right head")


@proves("B5")
async def a_rewind_removes_a_writers_tail_and_lowers_its_count(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("before", 2))
    await session.append(batch("run", 5), writer="run", start=0)
    head = await session.rewind(writer="run", to=5)
    await lab.holds(session, batch("before", 2) + batch("run", 5), "a rewind to where it is")
    head = await session.rewind(writer="run", to=2, expect=head)
    lab.same(head, await session.head(), "a rewind, by the head it returned")
    await lab.holds(session, batch("before", 2) + batch("run", 5)[:2], "a rewind to 2")
    lab.same(await session.accepted("run"), 2, "a rewind to 2, by the count")
    lab.same(await session.written("run"), batch("run", 5)[:2], "a rewind to 2, by written()")
    await session.append([message("another")], writer="run", start=2)
    await lab.holds(session, [*batch("before", 2), *batch("run", 5)[:2], message("another")], "going on after a rewind")
    await session.rewind(writer="run", to=0)
    await lab.holds(session, batch("before", 2), "a rewind to 0")
    lab.same(await session.accepted("run"), 0, "a rewind to 0, by the count")


@proves("B5")
async def a_rewind_of_what_is_not_the_whole_tail_is_refused(lab: Lab) -> None:
    async def plain(session: Session) -> None:
        await session.add_items([message("plain")])

    async def other(session: CanAppend) -> None:
        await session.append([message("theirs")], writer="other", start=0)

    async def between(session: CanAppend) -> None:
        await other(session)
        await session.append(batch("run", 5)[3:], writer="run", start=3)

    changes: dict[str, Callable[[AnySession], Awaitable[None]]] = {
        "a plain write": plain,
        "another writer": other,
        "another writer between": between,
    }
    for what, change in changes.items():
        session = lab.open(what)
        await session.append(batch("run", 5)[:3], writer="run", start=0)
        await change(session)
        before, head = await session.get_items(), await session.head()
        count = await session.accepted("run")
        await lab.refuses(session.rewind(writer="run", to=1), f"a rewind with {what} behind it", SessionConflictError)
        await lab.holds(session, before, f"a rewind refused because of {what}")
        lab.same(await session.head(), head, f"a rewind refused because of {what}, by the head")
        lab.same(await session.accepted("run"), count, f"a rewind refused because of {what}, by the count")
    lab.expect(count == 5, "a writer could not go on after another had written")
    await session.rewind(writer="run", to=3)
    await lab.holds(session, [*batch("run", 5)[:3], message("theirs")], "a rewind of what is the whole tail")


@proves("B5", "inject_record")
async def a_rewind_with_a_corrupt_record_behind_it_is_refused(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("run", 3), writer="run", start=0)
    lab.backend.inject_record(session.session_id, b"{broken")
    refused = session.rewind(writer="run", to=1)
    await lab.refuses(refused, "a rewind before a corrupt record", CorruptRecordError, SessionConflictError)
    await lab.holds(session, batch("run", 3), "a rewind refused because of a corrupt record")
    lab.same(await session.accepted("run"), 3, "a rewind refused because of a corrupt record, by the count")


@proves("B5", "damage_newest")
async def a_rewind_over_a_damaged_record_of_the_writer_itself_is_refused(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("run", 3), writer="run", start=0)
    lab.backend.damage_newest(session.session_id, b"{broken")
    refused = session.rewind(writer="run", to=1)
    await lab.refuses(refused, "a rewind over a damaged record", CorruptRecordError, SessionConflictError)
    await lab.holds(session, batch("run", 3)[:2], "a rewind refused because of a damaged record")
    lab.same(await session.accepted("run"), 3, "a rewind refused because of a damaged record, by the count")


@proves("B5")
async def a_rewind_on_a_session_that_moved_is_refused(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("run", 2), writer="run", start=0)
    stale = await session.head()
    await session.append([message("third")], writer="run", start=2)
    await lab.refuses(session.rewind(writer="run", to=0, expect=stale), "a stale head", SessionConflictError)
    await lab.holds(session, [*batch("run", 2), message("third")], "a rewind on a stale head")
    await lab.refuses(session.rewind(writer="run", to=9), "a rewind to the future")
    lab.same(await session.accepted("run"), 3, "refused rewinds, by the count")
