"""Mistakes in what a store shows people (B11 to B15)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, ClassVar

from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.records import Holder, Origin, Record, RecordPage, RunUsage, SearchPage
from tests.conformance.kit_backends import Memory
from tests.conformance.mistakes.mistake import BROKEN, Mistake


def _backend(kind: type[InMemorySession], what: str) -> Memory:
    class Wrong(Memory):
        name = what

        def open(self, session_id: str, **options: Any) -> InMemorySession:
            return kind(session_id, store=self.store, **options)

    return Wrong()


class _ForgetsOne(InMemorySession):
    """A page behind a record begins with the one after the next."""

    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        page = await super().records(before=before, after=after, limit=limit)
        return replace(page, records=page.records[1:]) if after and len(page.records) > 1 else page


class _KnowsNoWriter(InMemorySession):
    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        page = await super().records(before=before, after=after, limit=limit)
        return replace(page, records=[replace(one, number=place) for place, one in enumerate(page.records)])


class _TakesOldCursors(InMemorySession):
    """A cursor is a row's number and nothing else."""

    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        old, behind = (None if text is None else text.partition(".")[0] for text in (before, after))
        latest = (await super().records(limit=1)).after.partition(".")[2]
        return await super().records(
            before=None if old is None else f"{old}.{latest}",
            after=f"{behind}.{latest}" if behind else behind,
            limit=limit,
        )


class _NeedsItsRecord(InMemorySession):
    """A cursor whose record was popped is refused."""

    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        there = {one.cursor for one in (await super().records(limit=10_000)).records}
        for cursor in (before, after):
            if cursor and not cursor.startswith("0.") and cursor not in there:
                raise LookupError(cursor)
        return await super().records(before=before, after=after, limit=limit)


class _HidesCorrupt(InMemorySession):
    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        page = await super().records(before=before, after=after, limit=limit)
        return replace(page, records=[one for one in page.records if one.fault is None])


class _TakesAnyLimit(InMemorySession):
    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        return await super().records(before=before, after=after, limit=max(1, limit))


class _ReadsItAll(InMemorySession):
    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        await self.get_items()
        return await super().records(before=before, after=after, limit=limit)


class _WatchesTheEnd(InMemorySession):
    """A watch shows only the newest record each time it looks."""

    async def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        seen = None
        async for _ in super().watch(after=after, poll_s=poll_s):
            newest = (await self.records(limit=1)).records[-1]
            if newest.cursor != seen:
                seen = newest.cursor
                yield newest


class _WatchesFromTheStart(InMemorySession):
    async def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        async for one in super().watch(after=after or "", poll_s=poll_s):
            yield one


class _WatchesOn(InMemorySession):
    """A watch that a replace ends begins again, without a word."""

    async def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        while True:
            try:
                async for one in super().watch(after=after, poll_s=poll_s):
                    after = one.cursor
                    yield one
            except Exception:
                after = ""


class _MindsTheCase(InMemorySession):
    async def search(self, text: str, *, after: str | None = None, limit: int = 50) -> SearchPage:
        page = await super().search(text, after=after, limit=limit)
        return replace(page, hits=[one for one in page.hits if text in one.excerpt])


class _HoldsForEver(InMemorySession):
    """Who held it last is shown, whether or not they gave it back."""

    _seen: ClassVar[dict[Any, Holder]] = {}

    async def holder(self) -> Holder | None:
        found = await super().holder()
        if found is not None:
            self._seen[self.store] = found
        return found or self._seen.get(self.store)


class _KnowsTheFirst(InMemorySession):
    """A fork of a fork says that it came from where the first one did."""

    def _another(self, new_id: str) -> _KnowsTheFirst:
        return _KnowsTheFirst(new_id, store=self.store)

    async def origin(self) -> Origin | None:
        found = await super().origin()
        if found is None:
            return None
        return await self._another(found.session_id).origin() or found


class _CountsRepeats(InMemorySession):
    async def usage(self) -> list[RunUsage]:
        return [replace(one, requests=(*one.requests, *one.requests[:1])) for one in await super().usage()]


class _ForgetsInside(InMemorySession):
    """What runs inside the recorded one left is not stored."""

    def record(self, *, nested: Any = (), **given: Any) -> Any:
        return super().record(**given)


class _OneByOne(InMemorySession):
    """What runs inside left is appended one after the other, and then the turn: a refusal comes too late."""

    async def record(self, *, nested: Any = (), **given: Any) -> Any:
        for one in nested:
            await self.append(one.items, writer=one.writer, start=one.start)
        return await super().record(**given)


class _TurnFirst(InMemorySession):
    """What runs inside left stands behind the turn whose call it was."""

    async def record(self, *, nested: Any = (), **given: Any) -> Any:
        await super().record(**given)
        return await super().record(nested=nested)


BROKEN += [
    Mistake(_backend(_ForgetsOne, "loses a record between two pages"), "B11",
            "pages_in_both_directions_hold_every_record_once"),
    Mistake(_backend(_KnowsNoWriter, "numbers records by their page"), "B11",
            "a_record_says_who_wrote_it_as_which_of_theirs_and_when"),
    Mistake(_backend(_TakesOldCursors, "takes cursors of what is gone"), "B11",
            "a_record_says_what_it_replaced_and_old_cursors_are_refused"),
    Mistake(_backend(_NeedsItsRecord, "refuses a cursor whose record was popped"), "B11",
            "a_cursor_goes_on_working_while_others_append_and_pop"),
    Mistake(_backend(_HidesCorrupt, "hides corrupt records"), "B11",
            "a_record_that_is_no_item_is_shown_with_its_fault"),
    Mistake(_backend(_TakesAnyLimit, "takes any limit"), "B11", "what_is_no_page_is_refused"),
    Mistake(_backend(_ReadsItAll, "reads the whole history for a page"), "B11",
            "a_page_of_a_long_history_costs_what_one_of_a_short_one_does"),
    Mistake(_backend(_WatchesTheEnd, "shows only the newest record"), "B12",
            "a_watch_gives_what_was_there_and_what_comes_once_and_in_order"),
    Mistake(_backend(_WatchesFromTheStart, "watches from the start"), "B12", "a_watch_without_a_cursor_begins_now"),
    Mistake(_backend(_WatchesOn, "watches on over a replace"), "B12",
            "a_watch_ends_by_name_when_the_history_is_replaced"),
    Mistake(_backend(_MindsTheCase, "minds the case"), "B13",
            "a_search_finds_every_record_that_holds_the_words_newest_first"),
    Mistake(_backend(_HoldsForEver, "shows who held it last"), "B14", "who_holds_a_session_can_be_seen"),
    Mistake(_backend(_KnowsTheFirst, "knows the first origin only"), "B14", "a_fork_says_where_it_came_from"),
    Mistake(_backend(_CountsRepeats, "counts a repeat twice"), "B15",
            "what_a_run_cost_is_kept_once_and_outlives_the_run"),
    *(Mistake(_backend(kind, what), "B1", "what_runs_inside_another_left_is_stored_with_its_turn_or_not_at_all")
      for kind, what in ((_ForgetsInside, "forgets what runs inside left"), (_OneByOne, "stores it in steps"),
                         (_TurnFirst, "stores it behind the turn"))),
]  # fmt: skip
