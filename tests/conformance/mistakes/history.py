"""Mistakes in reading, writing and removing."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from standfast._kits.conformance.reference_session import ReferenceSession
from standfast._src.sessions.protocol import Position, SessionSettings
from tests.conformance.mistakes.mistake import Items, breaks

# --- reading and order ----------------------------------------------------------------------------


@breaks("A1", "items_come_back_in_the_order_they_were_appended")
class NewestFirst(ReferenceSession):
    """gives the newest item first."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return (await super().get_items(limit))[::-1]


@breaks("A1", "equal_items_are_all_kept")
class DropsEqualItems(ReferenceSession):
    """takes an equal item for one it already has."""

    async def add_items(self, items: Items) -> None:
        known = await super().get_items()
        await super().add_items([item for item in items if item not in known])


@breaks("A1", "any_operations_agree_with_a_plain_list")
class ForgetsTheEleventh(ReferenceSession):
    """keeps ten items and forgets the oldest."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return (await super().get_items(limit))[-10:]


@breaks("A2", "a_limit_gives_the_latest_items_oldest_first")
class LimitGivesTheOldest(ReferenceSession):
    """gives the oldest items for a limit."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return (await super().get_items())[:limit]


@breaks("A2", "a_limit_that_is_no_count_is_refused")
class TakesANegativeLimit(ReferenceSession):
    """takes a negative limit for none, as SQLite does."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await super().get_items(None if isinstance(limit, int) and limit < 0 else limit)


@breaks("A2", "a_default_limit_that_is_no_count_is_refused")
class TakesANegativeDefault(ReferenceSession):
    """takes a negative default limit."""

    def __init__(self, session_id: str, *, session_settings: Any = None, **options: Any) -> None:
        super().__init__(session_id, **options)
        self.session_settings = SessionSettings()
        self.session_settings.limit = (session_settings or {}).get("limit")

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return (await super().get_items(1_000_000))[
            -(limit or (self.session_settings or SessionSettings()).limit or 0) :
        ]


@breaks("A2", "corrupt_records_do_not_count_against_a_limit")
class CountsCorruptRecords(ReferenceSession):
    """counts corrupt records against a limit."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        lost = len(await self.corrupt_records()) if limit else 0
        return await super().get_items(None if limit is None else max(0, limit - lost))


@breaks("A3", "an_explicit_limit_wins_over_the_default")
class DefaultLimitWins(ReferenceSession):
    """lets the default limit win over an explicit one."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        default = self.session_settings.limit if self.session_settings else None
        return await super().get_items(limit if default is None else default)


@breaks("A3", "a_fork_ignores_the_default_limit")
class ForksWhatItReads(ReferenceSession):
    """forks by copying what get_items() gives."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> ReferenceSession:
        fork = ReferenceSession(new_id, store=self.store)
        await fork.add_items(await self.get_items())
        return fork


@breaks("A3", "a_replacement_ignores_the_default_limit")
class ArchivesWhatItReads(ReferenceSession):
    """keeps, of what it replaces, what the default limit shows."""

    async def read_generation(self, generation_id: str) -> list[Any]:
        limit = self.session_settings.limit if self.session_settings else None
        return (await super().read_generation(generation_id))[-(limit or 0) :]


class _OrderedByTime(ReferenceSession):
    async def add_items(self, items: Items) -> None:
        await super().add_items(list(items))
        stamps = self.store.__dict__.setdefault("stamps", {}).setdefault(self.session_id, [])
        stamps += [self.stamp()] * len(items)

    def stamp(self) -> Any:
        return time.time()

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = await super().get_items()
        stamps = self.store.__dict__.get("stamps", {}).get(self.session_id, [])
        order = sorted(range(len(items)), key=lambda n: stamps[n])
        return [items[n] for n in order][-limit if limit else 0 :]


@breaks("A4", "a_clock_that_goes_back_changes_no_order")
class OrderedByTime(_OrderedByTime):
    """orders items by wall-clock time."""


@breaks("A4", "a_change_of_time_zone_changes_no_order")
class OrderedByLocalTime(_OrderedByTime):
    """orders items by local time."""

    def stamp(self) -> Any:
        return time.strftime("%Y-%m-%d %H:%M:%S")


@breaks("A4", "items_of_one_instant_keep_their_order")
class OrderedByTimeNewestLast(_OrderedByTime):
    """orders items of one instant by what they say."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = await super().get_items(limit)
        return sorted(items, key=lambda item: str(item.get("content")))


# --- batches --------------------------------------------------------------------------------------


@breaks("A5", "no_reader_in_this_process_sees_part_of_a_batch")
class NotAtomic(ReferenceSession):
    """stores a batch item by item."""

    async def add_items(self, items: Items) -> None:
        for item in items:
            await super().add_items([item])
            await asyncio.sleep(0)


@breaks("A5", "a_large_batch_keeps_its_order")
class ChunksOutOfOrder(ReferenceSession):
    """stores a large batch in pieces, the last piece first."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([*items[500:], *items[:500]])


@breaks("A6", "a_batch_that_is_not_json_leaves_nothing")
class KeepsTheGoodPart(ReferenceSession):
    """keeps what came before the item that is not JSON."""

    async def add_items(self, items: Items) -> None:
        for item in items:
            await super().add_items([item])


@breaks("A6", "a_lost_acknowledgement_is_said_to_be_an_unknown_outcome")
class SaysNothingWasDone(ReferenceSession):
    """says that nothing was done when its answer was lost."""

    async def add_items(self, items: Items) -> None:
        await super().add_items(list(items))
        if self.store.__dict__.get("deaf"):
            raise ConnectionError("no answer")


@breaks("A7", "an_empty_batch_changes_nothing")
class EmptyBatchClears(ReferenceSession):
    """takes an empty batch for a new beginning."""

    async def add_items(self, items: Items) -> None:
        await (super().add_items(list(items)) if items else self.clear_session())


@breaks("A7", "an_empty_batch_moves_neither_head_nor_time")
class EmptyBatchTouches(ReferenceSession):
    """lets an empty batch make a session."""

    declared_abilities = ReferenceSession.declared_abilities  # said again: an overridden add_items would end `append`

    async def add_items(self, items: Items) -> None:
        await super().add_items(list(items) or [{"role": "user"}])
        if not items:
            await self.pop_item()


@breaks("A8", "a_write_that_had_to_wait_is_done_once")
class RetriesWhatWasDone(ReferenceSession):
    """repeats a write that had to wait, though it went through."""

    async def add_items(self, items: Items) -> None:
        if self.store.lock.locked():
            await super().add_items(list(items))
        await super().add_items(list(items))


@breaks("A8", "a_pop_whose_answer_was_lost_takes_one_item_at_most")
class RetriesAPop(ReferenceSession):
    """pops again when the answer was lost."""

    async def pop_item(self) -> Any:
        item = await super().pop_item()
        return await super().pop_item() if self.store.__dict__.get("deaf") else item


@breaks("A9", "first_writers_among_tasks_and_threads_all_succeed")
class FirstWriterRace(ReferenceSession):
    """lets two first writers both make the session."""

    async def add_items(self, items: Items) -> None:
        if await self.info() is None:
            await asyncio.sleep(0)
            await self.clear_session()
        await super().add_items(list(items))


@breaks("A10", "concurrent_writers_lose_nothing_and_do_not_interleave")
class LostUpdate(ReferenceSession):
    """reads the history, appends to it and writes it back."""

    async def add_items(self, items: Items) -> None:
        history = await self.get_items()
        await asyncio.sleep(0)
        await self.clear_session()
        await super().add_items([*history, *items])


@breaks("A10", "a_batch_that_fails_or_is_cancelled_touches_no_other")
class FailsTheWholeGroup(ReferenceSession):
    """commits batches in groups and fails the group with one of them."""

    async def add_items(self, items: Items) -> None:
        group = self.store.__dict__.setdefault("group", [])
        group.append(items)
        await asyncio.sleep(0)
        if items in group:
            whole = [item for batch in group for item in batch]
            group.clear()
            await super().add_items(whole)


# --- pop and clear --------------------------------------------------------------------------------


@breaks("A11", "pop_gives_the_newest_item_until_there_is_none")
class PopsTheOldest(ReferenceSession):
    """pops the oldest item."""

    async def pop_item(self) -> Any:
        history = await self.get_items(1_000_000)
        await self.clear_session()
        await self.add_items(history[1:])
        return history[0] if history else None


@breaks("A11", "concurrent_pops_never_return_the_same_item")
class PopsTwice(ReferenceSession):
    """looks at the newest item first and removes it afterwards."""

    async def pop_item(self) -> Any:
        newest = await self.get_items(1)
        await asyncio.sleep(0)
        await super().pop_item()
        return newest[0] if newest else None


@breaks("A12", "clearing_removes_this_session_and_no_other")
class ClearsByPrefix(ReferenceSession):
    """clears every session whose id begins with this one's."""

    async def clear_session(self) -> None:
        for name in list(self.store.conversations):
            if name.startswith(self.session_id):
                await ReferenceSession(name, store=self.store).clear_session()


@breaks("A12", "clearing_removes_generations")
class ClearKeepsGenerations(ReferenceSession):
    """keeps generations when it clears."""

    async def clear_session(self) -> None:
        talk = self.store.conversation(self.session_id)
        kept = talk.generations
        await super().clear_session()
        talk.generations = kept


@breaks("A12", "clearing_removes_corrupt_records_too")
class ClearKeepsCorrupt(ReferenceSession):
    """keeps corrupt records when it clears."""

    async def clear_session(self) -> None:
        talk = self.store.conversation(self.session_id)
        corrupt = [row for row in talk.rows if row.fault]
        await super().clear_session()
        talk.rows = corrupt


@breaks("A12", "a_cleared_session_begins_anew")
class ClearKeepsTimes(ReferenceSession):
    """keeps the creation time when it clears."""

    async def clear_session(self) -> None:
        talk = self.store.conversation(self.session_id)
        created = talk.created_at
        await super().clear_session()
        talk.created_at = created
