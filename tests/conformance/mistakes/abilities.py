"""Mistakes in part B."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from standfast._kits.conformance.reference_session import ReferenceSession
from standfast._src.base.errors import SessionConflictError
from standfast._src.runs.engine.run_store import LogTail
from standfast._src.sessions.protocol import Head, Page, Position, SessionInfo, SessionPage
from tests.conformance.mistakes.mistake import Items, breaks


@breaks("B1", "a_repeated_append_stores_each_item_once")
class AppendsAgain(ReferenceSession):
    """appends again what is repeated."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        count = await self.accepted(writer)
        return await super().append(items, writer=writer, start=count)


@breaks("B1", "a_repeated_append_stores_each_item_once")
class KnowsItemsByContent(ReferenceSession):
    """takes an item for known if an equal one is there."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        known = await self.written(writer)
        fresh = [item for item in items if item not in known]
        return await super().append(fresh, writer=writer, start=await self.accepted(writer))


@breaks("B1", "a_gap_is_refused")
class FillsGaps(ReferenceSession):
    """takes a batch that leaves a gap."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        return await super().append(items, writer=writer, start=min(start, await self.accepted(writer)), **options)


@breaks("B1", "another_item_under_the_same_number_is_refused")
class IgnoresDigests(ReferenceSession):
    """skips what was accepted without looking."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        known = max(0, await self.accepted(writer) - start)
        return await super().append(items[known:], writer=writer, start=start + known)


@breaks("B1", "given_digests_are_what_an_item_is_known_by")
class OwnDigests(ReferenceSession):
    """compares contents where digests were given."""

    async def append(self, items: Items, **options: Any) -> Head:
        options.pop("digests", None)
        return await super().append(items, **options)


@breaks("B1", "a_count_survives_pop_and_clear")
class PopLowersTheCount(ReferenceSession):
    """lowers the writer's count when an item is popped."""

    async def pop_item(self) -> Any:
        talk = self.store.conversation(self.session_id)
        newest = talk.rows[-1] if talk.rows else None
        item = await super().pop_item()
        if newest is not None and newest.writer is not None:
            talk.writers[newest.writer].count -= 1
        return item


@breaks("B1", "a_count_survives_pop_and_clear")
class ClearForgetsCounts(ReferenceSession):
    """forgets the counts when it clears."""

    async def clear_session(self) -> None:
        await super().clear_session()
        self.store.conversation(self.session_id).writers.clear()


@breaks("B1", "a_count_survives_replace_and_undo")
class ReplaceForgetsWhoWrote(ReferenceSession):
    """forgets who wrote what was replaced."""

    async def written(self, writer: str) -> list[Any]:
        generations = self.store.conversation(self.session_id).generations
        self.store.conversation(self.session_id).generations = []
        try:
            return await super().written(writer)
        finally:
            self.store.conversation(self.session_id).generations = generations


@breaks("B1", "concurrent_repeats_store_each_item_once")
class ChecksThenAppends(ReferenceSession):
    """asks for the count first and appends afterwards."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        known = max(0, await self.accepted(writer) - start)
        await asyncio.sleep(0)
        fresh = items[known:]
        if fresh:
            await self.add_items(list(fresh))
            talk = self.store.conversation(self.session_id)
            await super().append([], writer=writer, start=0)
            from standfast._kits.conformance.reference_store import WriterCount

            talk.writers.setdefault(writer, WriterCount()).count = start + len(items)
        return await self.head()


@breaks("B1", "any_changes_agree_with_the_reference")
class RewindsTooFar(ReferenceSession):
    """rewinds one item too many of a long tail."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        count = await self.accepted(writer)
        return await super().rewind(writer=writer, to=to - 1 if 0 < to < count - 2 else to, expect=expect)


@breaks("B2", "equal_heads_mean_equal_histories")
class HeadByCount(ReferenceSession):
    """takes the number of items for the head."""

    async def head(self) -> Head:
        count = len(await self.get_items())
        return Head(str(count)) if count else Head()


@breaks("B2", "a_change_on_a_session_that_moved_is_refused_with_both_heads")
class IgnoresExpect(ReferenceSession):
    """does not look at what the caller expects."""

    async def append(self, items: Items, **options: Any) -> Head:
        return await super().append(items, **{**options, "expect": None})


@breaks("B2", "of_several_changes_on_one_head_one_succeeds")
class ChecksThenWrites(ReferenceSession):
    """compares the head first and writes afterwards."""

    async def append(self, items: Items, **options: Any) -> Head:
        expect = options.pop("expect", None)
        if expect is not None and expect != await self.head():
            return await super().append(items, expect=expect, **options)
        await asyncio.sleep(0)
        return await super().append(items, **options)


@breaks("B3", "a_replacement_stands_before_what_was_appended_since")
class ReplaceDropsTheTail(ReferenceSession):
    """drops what was appended since."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        return await super().replace(items, upto=await self.head(), lease=lease)


@breaks("B3", "a_replacement_may_be_longer_shorter_or_empty")
class ReplacesAtTheEnd(ReferenceSession):
    """puts a long replacement at the end."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        if len(items) <= 4:
            return await super().replace(items, upto=upto, lease=lease)
        await super().replace(items[:4], upto=upto, lease=lease)
        await self.add_items(list(items[4:]))
        return await self.head()


@breaks("B3", "writers_beside_a_replace_lose_nothing")
class ReplaceIsNotAtomic(ReferenceSession):
    """clears and writes back what was there."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        talk = self.store.conversation(self.session_id)
        tail = talk.rows[talk.rows_upto(upto) :]
        await asyncio.sleep(0)
        await super().replace(items, upto=await self.head(), lease=lease)
        talk.rows += tail
        return await self.head()


@breaks("B3", "a_replace_of_what_has_changed_is_refused")
class ReplacesWhatChanged(ReferenceSession):
    """replaces everything if its part has changed."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        try:
            return await super().replace(items, upto=upto, lease=lease)
        except Exception:
            return await super().replace(items, upto=await self.head(), lease=lease)


@breaks("B3", "the_last_three_generations_are_kept")
class KeepsOneGeneration(ReferenceSession):
    """keeps one generation."""

    async def generations(self) -> list[Any]:
        return (await super().generations())[:1]


@breaks("B4", "undo_puts_a_generation_back_and_can_be_undone")
class UndoForgetsWhatItDisplaced(ReferenceSession):
    """forgets what undo displaced."""

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        head = await super().restore(generation_id, expect=expect)
        self.store.conversation(self.session_id).generations.pop()
        return head


@breaks("B4", "undo_reaches_through_later_replaces")
class UndoDropsWhatCameBetween(ReferenceSession):
    """drops, in undo, what a later replace had taken in."""

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        old = await self.read_generation(generation_id)
        last = (await self.generations())[0].id
        talk = self.store.conversation(self.session_id)
        tail = [row for row in talk.rows if row.replaces != last]
        head = await super().restore(generation_id, expect=expect)
        first = len(old)
        talk.rows[first:] = talk.rows[len(talk.rows) - len(tail) :] if tail else []
        return head


@breaks("B4", "undo_is_refused_without_its_generation_or_on_another_head")
class UndoIgnoresExpect(ReferenceSession):
    """undoes on any head."""

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        return await super().restore(generation_id)


@breaks("B5", "a_rewind_of_what_is_not_the_whole_tail_is_refused")
class RewindRemovesOthers(ReferenceSession):
    """removes others' items with its own."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        talk = self.store.conversation(self.session_id)
        cut = next((n for n, row in enumerate(talk.rows) if row.writer == writer and row.ordinal >= to), None)
        if cut is not None:
            del talk.rows[cut:]
            talk.writers[writer].count = to
        return await self.head()


@breaks("B5", "a_rewind_removes_a_writers_tail_and_lowers_its_count")
class RewindKeepsTheCount(ReferenceSession):
    """does not lower the count."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        count = await self.accepted(writer)
        head = await super().rewind(writer=writer, to=to, expect=expect)
        self.store.conversation(self.session_id).writers[writer].count = count
        return head


@breaks("B5", "a_rewind_with_a_corrupt_record_behind_it_is_refused")
class RewindsOverCorrupt(ReferenceSession):
    """rewinds across a corrupt record."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        talk = self.store.conversation(self.session_id)
        talk.rows = [row for row in talk.rows if not row.fault]
        return await super().rewind(writer=writer, to=to, expect=expect)


@breaks("B5", "a_rewind_on_a_session_that_moved_is_refused")
class RewindIgnoresExpect(ReferenceSession):
    """rewinds on any head."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        return await super().rewind(writer=writer, to=to)


@breaks("B6", "a_fork_and_its_original_never_meet_again")
class ForkShares(ReferenceSession):
    """shares its history with its fork."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> ReferenceSession:
        fork = await super().fork(new_id, at=at)
        if at is None:
            self.store.conversations[new_id] = self.store.conversation(self.session_id)
        return fork


@breaks("B6", "a_fork_continues_from_any_position")
class ForksOneLess(ReferenceSession):
    """forks one item too early."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> ReferenceSession:
        return await super().fork(new_id, at=at and Position(max(0, at.index - 1), at.generation))


@breaks("B6", "a_fork_knows_how_much_each_writer_had_written_there")
class ForkCopiesAllCounts(ReferenceSession):
    """copies the counts as they are now."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> ReferenceSession:
        fork = await super().fork(new_id, at=at)
        for name, known in self.store.conversation(self.session_id).writers.items():
            self.store.conversation(new_id).writers[name].count = known.count
        return fork


@breaks("B6", "a_fork_into_a_session_that_is_not_empty_is_refused")
class ForksOver(ReferenceSession):
    """forks over what is there."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> ReferenceSession:
        if new_id and new_id != self.session_id:
            self.store.conversations.pop(new_id, None)
        return await super().fork(new_id, at=at)


@breaks("B6", "a_fork_continues_from_a_kept_generation")
class ForksTheCurrentHistory(ReferenceSession):
    """forks the current history where a generation was asked for."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> ReferenceSession:
        return await super().fork(new_id)


@breaks("B7", "a_write_under_a_lost_lease_is_refused")
class NotFenced(ReferenceSession):
    """does not look at the lease a write carries."""

    async def append(self, items: Items, **options: Any) -> Head:
        return await super().append(items, **{**options, "lease": None})


@breaks("B7", "a_session_has_one_holder_at_a_time")
class TwoHolders(ReferenceSession):
    """gives a lease to everybody."""

    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        self.store.conversation(self.session_id).fence.held_until = 0
        return await super().lease(ttl_s=ttl_s, wait_s=wait_s)


@breaks("B7", "clearing_does_not_make_an_old_lease_valid_again")
class ClearResetsTheFence(ReferenceSession):
    """begins to count leases anew after a clear."""

    async def clear_session(self) -> None:
        await super().clear_session()
        fence = self.store.conversation(self.session_id).fence
        fence.number, fence.held_until = 0, 0.0


@breaks("B7", "a_renewed_lease_does_not_expire")
class RenewsNothing(ReferenceSession):
    """does not renew."""

    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        lease = await super().lease(ttl_s=ttl_s, wait_s=wait_s)

        async def renew() -> None:
            return None

        lease.renew = renew  # type: ignore[method-assign]
        return lease


@breaks("B8", "a_page_does_not_shift_when_items_are_written_or_popped")
class PagesByOffset(ReferenceSession):
    """counts pages from the end."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        items = await self.get_items()
        end = len(items) - int(before or 0)
        start = max(0, end - limit)
        return Page(items[start:end], str(len(items) - start) if start else None)


@breaks("B8", "pages_put_together_are_the_history")
class PagesOverlap(ReferenceSession):
    """gives one item in two pages."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        return await super().page(before=None if before is None else str(int(before) + 1), limit=limit)


@breaks("B8", "a_page_costs_what_it_holds_not_what_the_history_holds")
class ReadsAllForAPage(ReferenceSession):
    """reads the whole history for every page."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        await self.get_items()
        return await super().page(before=before, limit=limit)


@breaks("B9", "sessions_are_listed_newest_change_first_in_pages")
class ListsOldestFirst(ReferenceSession):
    """lists the oldest session first."""

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        page = await super().list_sessions(after=after, limit=limit)
        return SessionPage(page.sessions[::-1], page.after)


@breaks("B1", "writers_do_not_disturb_each_other")
class OneCountForAll(ReferenceSession):
    """counts all writers as one."""

    async def append(self, items: Items, *, writer: str, **options: Any) -> Head:
        return await super().append(items, writer="everybody", **options)


@breaks("B1", "an_append_is_all_or_nothing")
class AppendsOneByOne(ReferenceSession):
    """appends item by item."""

    async def append(self, items: Items, *, start: int, **options: Any) -> Head:
        for place, item in enumerate(items):
            await super().append([item], start=start + place, **options)
        return await self.head()


@breaks("B2", "a_repeat_that_brings_nothing_new_is_no_conflict")
class RepeatIsAConflict(ReferenceSession):
    """calls a repeat after a lost acknowledgement a conflict."""

    async def append(self, items: Items, **options: Any) -> Head:
        expect = options.get("expect")
        if expect is not None and expect != await self.head():
            raise SessionConflictError("it has moved", "Reload it.", expected=expect, actual=await self.head())
        return await super().append(items, **options)


@breaks("B2", "a_corrupt_record_moves_the_head")
class HeadOfValidItems(ReferenceSession):
    """takes the newest valid item for the head."""

    async def head(self) -> Head:
        rows = [row for row in self.store.conversation(self.session_id).rows if not row.fault]
        return Head(str(rows[-1].id)) if rows else Head()


@breaks("B7", "many_holders_take_turns")
class LooksThenTakes(ReferenceSession):
    """looks whether the lease is free first and takes it afterwards."""

    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        fence = self.store.conversation(self.session_id).fence
        while fence.held_until > time.monotonic():
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        fence.held_until = 0
        return await super().lease(ttl_s=ttl_s, wait_s=wait_s)


@breaks("B8", "pages_leave_corrupt_records_out")
class PagesCountCorrupt(ReferenceSession):
    """gives something for a corrupt record."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        page = await super().page(before=before, limit=limit)
        return Page([*page.items, *({} for _ in await self.corrupt_records())], page.before)


@breaks("B9", "a_listing_shows_the_sessions_times")
class ListsTheTimeOfListing(ReferenceSession):
    """lists the time of the listing."""

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        page = await super().list_sessions(after=after, limit=limit)
        now = datetime.now(UTC)
        return SessionPage([SessionInfo(info.session_id, now, now) for info in page.sessions], page.after)


@breaks("A12", "clearing_removes_the_runs_that_nobody_holds")
class ClearForgetsRuns(ReferenceSession):
    """leaves the runs of a cleared session."""

    async def clear_session(self) -> None:
        await self._do(lambda talk: talk.clear())


@breaks("A12", "clearing_leaves_a_run_that_holds_its_session")
class ClearTakesTheRunUnderWay(ReferenceSession):
    """removes the record of the run that holds the session."""

    async def clear_session(self) -> None:
        await super().clear_session()
        self.store.run_store().forget(self.session_id, keep_running=False)


@breaks("B5", "a_rewind_over_a_damaged_record_of_the_writer_itself_is_refused")
class RewindsOverDamage(ReferenceSession):
    """takes a damaged record of the writer for one of its items."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        talk = self.store.conversation(self.session_id)
        talk.rows = [replace(row, fault=None, data=b"{}") if row.writer == writer else row for row in talk.rows]
        return await super().rewind(writer=writer, to=to, expect=expect)


@breaks("B1", "an_argument_that_means_nothing_is_refused")
class TakesAnything(ReferenceSession):
    """makes something of every argument."""

    async def append(self, items: Items, *, writer: Any, start: Any, **options: Any) -> Head:
        return await super().append(items, writer=str(writer) or "nobody", start=int(start or 0), **options)


class RunMistake:
    """A run store with one method of its own."""

    def __init__(self, runs: Any) -> None:
        self._runs = runs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runs, name)


@breaks("C12", "of_two_who_save_on_one_revision_the_second_is_told")
class SavesOver(ReferenceSession):
    """saves a run over whatever is there."""

    def run_store(self) -> Any:
        class Runs(RunMistake):
            async def save_run(self, run_id: str, *, expect: int, **more: Any) -> int:
                found = await self._runs.load_run(run_id)
                return int(await self._runs.save_run(run_id, expect=found.revision if found else 0, **more))

        return Runs(super().run_store())


@breaks("C12", "the_same_save_again_succeeds")
class RefusesRepeats(ReferenceSession):
    """refuses a save whose acknowledgement was lost."""

    def run_store(self) -> Any:
        class Runs(RunMistake):
            async def save_run(self, run_id: str, *, expect: int, head: bytes, **more: Any) -> int:
                self.number = getattr(self, "number", 0) + 1
                return int(await self._runs.save_run(run_id, expect=expect, head=head + b"%d" % self.number, **more))

        return Runs(super().run_store())


@breaks("C12", "a_tail_takes_the_place_of_what_the_log_has_from_its_start_on")
class AppendsTails(ReferenceSession):
    """adds every tail at the end of its log."""

    def run_store(self) -> Any:
        class Runs(RunMistake):
            async def save_run(self, run_id: str, *, tails: Any, **more: Any) -> int:
                found = await self._runs.load_run(run_id)
                ends = {name: len(log) for name, log in found.logs.items()} if found else {}
                moved = {
                    name: LogTail(max(tail.start, ends.get(name, 0)), tail.records) for name, tail in tails.items()
                }
                return int(await self._runs.save_run(run_id, tails=moved, **more))

        return Runs(super().run_store())


@breaks("C12", "runs_are_listed_newest_change_first")
class ListsRunsByName(ReferenceSession):
    """lists runs by their names."""

    def run_store(self) -> Any:
        class Runs(RunMistake):
            async def list_runs(self, **given: Any) -> Any:
                found, after = await self._runs.list_runs(**given)
                return sorted(found, key=lambda one: str(one.run_id)), after

        return Runs(super().run_store())


@breaks("C12", "pruning_leaves_a_run_that_has_something_to_tell")
class PrunesByStatus(ReferenceSession):
    """prunes whatever failed."""

    def run_store(self) -> Any:
        class Runs(RunMistake):
            async def prune_runs(self, **given: Any) -> int:
                failed, _ = await self._runs.list_runs(status="failed")
                return sum([await self._runs.delete_run(one.run_id) for one in failed])

        return Runs(super().run_store())


@breaks("B7", "a_lease_that_nobody_renews_is_over_without_anybody_waiting")
class HoldsTooLong(ReferenceSession):
    """holds every lease for an hour."""

    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        return await super().lease(ttl_s=3600, wait_s=wait_s)


@breaks("B8", "a_page_of_a_history_that_is_gone_is_refused")
class PagesOnRegardless(ReferenceSession):
    """takes the page of a history that is gone for its beginning."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        self.store.conversation(self.session_id).first_id = 0
        return await super().page(before=before, limit=limit)
