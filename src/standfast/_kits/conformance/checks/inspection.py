"""B11 to B15: views of a store for people: records, watch, search, holders, origins and usage."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.check_context import Lab, batch, message
from standfast._kits.conformance.registry import proves
from standfast._src.base.errors import CallerError, InvalidLimitError, NotFoundError, SessionConflictError
from standfast._src.sessions.protocol import Position

if TYPE_CHECKING:
    from standfast._src.sessions.records import CanReadRecords, Record


async def _forwards(session: CanReadRecords, limit: int) -> list[Record]:
    found: list[Any] = []
    after = ""
    while True:
        page = await session.records(after=after, limit=limit)
        found += page.records
        after = page.after
        if page.is_newest:
            return found


async def _backwards(session: CanReadRecords, limit: int) -> list[Record]:
    found: list[Any] = []
    before = None
    while True:
        page = await session.records(before=before, limit=limit)
        found = page.records + found
        before = page.before
        if before is None:
            return found


@proves("B11")
async def pages_in_both_directions_hold_every_record_once(lab: Lab) -> None:
    session = lab.open()
    whole = batch("history", 11)
    await session.append(whole[:7], writer="run", start=0)
    await session.add_items(whole[7:])
    for limit in (1, 3, 11, 50):
        for way, read in (("forwards", _forwards), ("backwards", _backwards)):
            found = await read(session, limit)
            lab.same([one.item for one in found], whole, f"reading {way} in pages of {limit}")
            cursors = [one.cursor for one in found]
            lab.expect(len(set(cursors)) == len(cursors), f"reading {way}, two records had one cursor")
    everything = await _forwards(session, 50)
    middle = everything[5].cursor
    behind = (await session.records(after=middle, limit=2)).records
    before = (await session.records(before=middle, limit=2)).records
    lab.same([one.item for one in behind], whole[6:8], "the page behind a record")
    lab.same([one.item for one in before], whole[3:5], "the page before a record")


@proves("B11")
async def a_record_says_who_wrote_it_as_which_of_theirs_and_when(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("one", 2), writer="run one", start=0)
    await session.add_items([message("nobody's")])
    await session.append(batch("two", 1), writer="run two", start=0)
    await session.append(batch("one more", 1), writer="run one", start=2)
    found = await _forwards(session, 50)
    seen = [(one.writer, one.number) for one in found]
    wanted = [("run one", 0), ("run one", 1), (None, None), ("run two", 0), ("run one", 2)]
    lab.same(seen, wanted, "appends of two writers and of nobody, by who wrote what")
    now = datetime.now(UTC)
    for one in found:
        near = one.at is None or abs(now - one.at) < timedelta(minutes=5)
        lab.expect(near, f"a record of just now says that it was written at {one.at}")


@proves("B11", "replace")
async def a_record_says_what_it_replaced_and_old_cursors_are_refused(lab: Lab) -> None:
    session = lab.open()
    await session.append(batch("old", 4), writer="run", start=0)
    cursor = (await session.records(limit=1)).records[0].cursor
    head = await session.head()
    await session.append(batch("behind", 1), writer="later", start=0)
    await session.replace([message("summary")], upto=head)
    kept = (await session.generations())[0].id
    found = await _forwards(session, 50)
    lab.same([one.replaces for one in found], [kept, None], "a replace, by what each record replaced")
    lab.same(found[1].writer, "later", "a replace, by who wrote what stayed")
    for way in ({"before": cursor}, {"after": cursor}):
        await lab.refuses(session.records(**way, limit=5), "a cursor of what was replaced", SessionConflictError)
    cursor = found[1].cursor
    await session.clear_session()
    await session.add_items([message("anew")])
    await lab.refuses(session.records(after=cursor), "a cursor of what was cleared", SessionConflictError)


@proves("B11")
async def a_cursor_goes_on_working_while_others_append_and_pop(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("first", 3))
    cursor = (await session.records(limit=1)).after
    await session.pop_item()
    await session.pop_item()
    await session.add_items(batch("later", 2))
    page = await session.records(after=cursor, limit=5)
    lab.same([one.item for one in page.records], batch("later", 2), "two pops and an append, behind a cursor")
    page = await session.records(before=cursor, limit=5)
    lab.same([one.item for one in page.records], batch("first", 3)[:1], "two pops and an append, before a cursor")


@proves("B11", "inject_record")
async def a_record_that_is_no_item_is_shown_with_its_fault(lab: Lab) -> None:
    session = lab.open()
    await session.add_items([message("before")])
    lab.backend.inject_record(session.session_id, b"[1, 2")
    await session.add_items([message("behind")])
    found = await _forwards(session, 2)
    seen = [(one.item, bool(one.fault)) for one in found]
    lab.same(seen, [(message("before"), False), (None, True), (message("behind"), False)], "a corrupt record")


@proves("B11")
async def what_is_no_page_is_refused(lab: Lab) -> None:
    session = lab.open()
    empty = await session.records()
    lab.same((empty.records, empty.before, empty.is_newest), ([], None, True), "the records of an empty session")
    lab.same((await session.records(after=empty.after)).records, [], "the records behind the end of an empty session")
    await session.add_items([message("one")])
    lab.same(len((await session.records(after=empty.after)).records), 1, "a record behind the end of an empty session")
    await lab.refuses(session.records(after="no cursor"), "a cursor that is none", NotFoundError)
    await lab.refuses(session.records(before="1", after="1"), "a page before and after", CallerError)
    await lab.refuses(session.records(limit=0), "a page of nothing", InvalidLimitError)
    await lab.refuses(session.records(limit=-1), "a negative limit", InvalidLimitError)


@proves("B11")
async def a_page_of_a_long_history_costs_what_one_of_a_short_one_does(lab: Lab) -> None:
    async def pages_of(size: int) -> Callable[[], Awaitable[Any]]:
        session = lab.open(f"of {size}")
        for start in range(0, size, 1000):
            await session.append(batch(f"{size} {start}", min(1000, size - start)), writer="run", start=start)
        middle = (await session.records(limit=size // 2)).records[0].cursor

        async def look() -> None:
            await session.records(limit=20)
            await session.records(after=middle, limit=20)
            await session.records(before=middle, limit=20)

        return look

    # Fifty times the history. What reads all of it takes tens of times as long.
    await lab.stays_flat(
        await pages_of(200), await pages_of(10_000), 8, "three pages of 20 of 200 records and of 10,000"
    )


# --- watch -----------------------------------------------------------------------------------------------------------


async def _next(watching: AsyncIterator[Record], count: int, soon_s: float) -> list[Any]:
    async with asyncio.timeout(soon_s):
        return [(await anext(watching)).item for _ in range(count)]


@proves("B12")
async def a_watch_gives_what_was_there_and_what_comes_once_and_in_order(lab: Lab) -> None:
    session = lab.open()
    other = lab.another(session)
    await session.add_items(batch("before", 3))
    cursor = (await session.records(after="", limit=1)).records[0].cursor
    watching = session.watch(after=cursor, poll_s=0.01)
    try:
        lab.same(await _next(watching, 2, lab.options.soon_s), batch("before", 3)[1:], "a watch from the first record")
        await other.append(batch("since", 3), writer="run", start=0)
        lab.same(await _next(watching, 3, lab.options.soon_s), batch("since", 3), "a watch and an append elsewhere")
    finally:
        await watching.aclose()


@proves("B12")
async def a_watch_without_a_cursor_begins_now(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("before", 2))
    watching = session.watch(poll_s=0.01)
    coming = asyncio.ensure_future(anext(watching))
    other = lab.another(session)
    try:
        async with asyncio.timeout(lab.options.soon_s):
            while not coming.done():  # one of these comes after it has begun, however long that takes
                await asyncio.sleep(0.05)
                await other.add_items([message("new")])
        lab.same(coming.result().item, message("new"), "a watch from now on")
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)
        await watching.aclose()


@proves("B12", "replace")
async def a_watch_ends_by_name_when_the_history_is_replaced(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("old", 2))
    watching = session.watch(after="", poll_s=0.01)
    try:
        await _next(watching, 2, lab.options.soon_s)
        await session.replace([message("summary")], upto=await session.head())
        async with asyncio.timeout(lab.options.soon_s):
            await lab.refuses(anext(watching), "a watch of what was replaced", SessionConflictError)
    finally:
        await watching.aclose()


# --- search ----------------------------------------------------------------------------------------------------------


@proves("B13")
async def a_search_finds_every_record_that_holds_the_words_newest_first(lab: Lab) -> None:
    session = lab.open()
    call = {"type": "function_call", "call_id": "c", "name": "book", "arguments": '{"to": "Lisbon"}'}
    parts = {"role": "assistant", "content": [{"type": "output_text", "text": "In  LISBON\nit rains in Évora."}]}
    items = [message("Lisbon, please"), message("nothing"), call, parts, message("lisbo n")]
    await session.add_items(items)
    page = await session.search("lisbon")
    lab.same([one.record.item for one in page.hits], [parts, call, items[0]], "a search for a word")
    lab.expect(all("lisbon" in one.excerpt.lower() for one in page.hits), "a search, by the excerpts")
    lab.same({one.session_id for one in page.hits}, {session.session_id}, "a search, by the sessions of its hits")
    lab.same([one.record.item for one in (await session.search("lisbon it RAINS")).hits], [parts], "words in a row")
    lab.same([one.record.item for one in (await session.search("ÉVORA")).hits], [parts], "a word with an accent")
    lab.same((await session.search("function_call")).hits, [], "a search for what nobody said")
    folding = [message("Die Straße"), message("0 \u212aelvin"), message("\ufb01ne")]
    await session.add_items(folding)
    for words, item in zip(("STRASSE", "kelvin", "FINE"), folding, strict=True):
        lab.same([one.record.item for one in (await session.search(words)).hits], [item], f"{words}, by case folding")
    found, after = [], None
    while True:
        page = await session.search("lisbon", after=after, limit=1)
        found += [one.record.item for one in page.hits]
        after = page.after
        if after is None:
            break
    lab.same(found, [parts, call, items[0]], "a search in pages of one")
    await lab.refuses(session.search("  "), "a search for nothing", CallerError)


# --- holder and origin -----------------------------------------------------------------------------------------------


@proves("B14", "lease")
async def who_holds_a_session_can_be_seen(lab: Lab) -> None:
    session = lab.open()
    lab.same(await session.holder(), None, "nothing, by the holder")
    lease = await session.lease(ttl_s=30, wait_s=0)
    held = await lab.another(session).holder()
    lab.expect(held is not None, "a session that is held has no holder")
    lab.same(held.number, lease.number, "taking a lease, by its number")
    length = (held.until - held.since).total_seconds()
    lab.expect(abs(length - 30) < 1, f"a lease of 30 s is said to be one of {length} s")
    await lease.release()
    lab.same(await session.holder(), None, "giving a lease back, by the holder")


@proves("B14", "origin", "fork")
async def a_fork_says_where_it_came_from(lab: Lab) -> None:
    session = lab.open()
    await session.add_items(batch("history", 4))
    lab.same(await session.origin(), None, "no fork, by its origin")
    fork = await session.fork("fork", at=Position(3))
    lab.keep(fork)
    origin = await fork.origin()
    lab.same((origin.session_id, origin.index, origin.generation), (session.session_id, 3, None), "a fork at 3")
    further = await fork.fork("further")
    lab.keep(further)
    lab.same((await further.origin()).session_id, "fork", "a fork of a fork")
    await fork.clear_session()
    lab.same(await fork.origin(), None, "clearing a fork, by its origin")


# --- usage -----------------------------------------------------------------------------------------------------------


def _cost(turn: int, tokens: int, **more: object) -> dict[str, Any]:
    usage = {"requests": 1, "input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    return {"turn": turn, "usage": usage, **more}


@proves("B15", "record")
async def what_a_run_cost_is_kept_once_and_outlives_the_run(lab: Lab) -> None:
    session = lab.open()
    for _ in range(2):  # the second is a repeat, as after a lost answer
        await session.record(items=batch("a", 2), writer="run a", start=0, costs=(0, [_cost(1, 10, model="m")]))
    await session.record(items=batch("more", 1), writer="run a", start=2, costs=(1, [_cost(2, 20), _cost(2, 5)]))
    await session.record(items=batch("b", 1), writer="run b", start=0, costs=(0, [_cost(1, 100)]))
    found = await session.usage()
    lab.same([one.run_id for one in found], ["run a", "run b"], "two runs, by whose usage is kept")
    lab.same([one.total.total_tokens for one in found], [38, 101], "two runs, by their tokens")
    turns = {number: usage.requests for number, usage in found[0].turns.items()}
    lab.same(turns, {1: 1, 2: 2}, "a run of two turns, by the requests of each")
    lab.same(found[0].requests[0].model, "m", "a request, by its model")
    await session.run_store().prune_runs(keep=0)
    lab.same(await session.usage(), found, "pruning runs, by the usage")
    fork = await session.fork("fork")
    lab.keep(fork)
    lab.same(await fork.usage(), [], "a fork, by its usage")
    await session.clear_session()
    lab.same(await session.usage(), [], "a clear, by the usage")
