"""Session stores that break one promise each, on purpose, and are right otherwise.

Each is the reference, or SQLite, or a small file store, with one mistake that a person could make. The kit has to see
every one of them, by the clause it breaks: `BROKEN` says which. A kit that lets one through has no teeth there.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import agents

from holdfast.conformance import Backend
from holdfast.conformance.sqlite_file import SQLiteFile
from holdfast.errors import SessionBusyError
from holdfast.sessions.memory import InMemorySession, InMemoryStore
from holdfast.sessions.protocol import Head, Page, Position, SessionInfo, SessionPage, SessionSettings
from holdfast.sessions.sqlite import SQLiteSession
from tests.conformance.kit_backends import BAD_TABLES, TABLES, HoldfastSQLite, Memory

Items = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Mistake:
    """A broken backend, the clause it breaks, and the check that should see it."""

    backend: Backend
    clause: str
    check: str

    def __str__(self) -> str:
        return f"{self.clause}-{self.backend.name}"


BROKEN: list[Mistake] = []


class Deafening(Memory):
    """The reference behind a line that can go dead: writes arrive, answers do not."""

    @contextmanager
    def lose_acknowledgement(self) -> Iterator[None]:
        self.store.__dict__["deaf"] = True
        yield
        self.store.__dict__["deaf"] = False


def breaks(clause: str, check: str, **flags: Any) -> Any:
    """Register a session class made from the reference as the mistake its docstring tells."""

    def register(kind: type[InMemorySession]) -> type[InMemorySession]:
        def open_session(self: Any, session_id: str, **options: Any) -> Any:
            return kind(session_id, store=self.store, **options)

        name = str(kind.__doc__).splitlines()[0].rstrip(".")
        backend = type(f"{kind.__name__}Backend", (Deafening,), {"name": name, "open": open_session, **flags})
        backend.__module__ = __name__
        globals()[backend.__name__] = backend  # where a child process finds it
        BROKEN.append(Mistake(backend(), clause, check))
        return kind

    return register


# --- reading and order ----------------------------------------------------------------------------


@breaks("A1", "items_come_back_in_the_order_they_were_appended")
class NewestFirst(InMemorySession):
    """gives the newest item first."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return (await super().get_items(limit))[::-1]


@breaks("A1", "equal_items_are_all_kept")
class DropsEqualItems(InMemorySession):
    """takes an equal item for one it already has."""

    async def add_items(self, items: Items) -> None:
        known = await super().get_items()
        await super().add_items([item for item in items if item not in known])


@breaks("A1", "any_operations_agree_with_a_plain_list")
class ForgetsTheEleventh(InMemorySession):
    """keeps ten items and forgets the oldest."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return (await super().get_items(limit))[-10:]


@breaks("A2", "a_limit_gives_the_latest_items_oldest_first")
class LimitGivesTheOldest(InMemorySession):
    """gives the oldest items for a limit."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return (await super().get_items())[:limit]


@breaks("A2", "a_limit_that_is_no_count_is_refused")
class TakesANegativeLimit(InMemorySession):
    """takes a negative limit for none, as SQLite does."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await super().get_items(None if isinstance(limit, int) and limit < 0 else limit)


@breaks("A2", "a_default_limit_that_is_no_count_is_refused")
class TakesANegativeDefault(InMemorySession):
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
class CountsCorruptRecords(InMemorySession):
    """counts corrupt records against a limit."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        lost = len(await self.corrupt_records()) if limit else 0
        return await super().get_items(None if limit is None else max(0, limit - lost))


@breaks("A3", "an_explicit_limit_wins_over_the_default")
class DefaultLimitWins(InMemorySession):
    """lets the default limit win over an explicit one."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        default = self.session_settings.limit if self.session_settings else None
        return await super().get_items(limit if default is None else default)


@breaks("A3", "a_fork_ignores_the_default_limit")
class ForksWhatItReads(InMemorySession):
    """forks by copying what get_items() gives."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> InMemorySession:
        fork = InMemorySession(new_id, store=self.store)
        await fork.add_items(await self.get_items())
        return fork


class _OrderedByTime(InMemorySession):
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
class NotAtomic(InMemorySession):
    """stores a batch item by item."""

    async def add_items(self, items: Items) -> None:
        for item in items:
            await super().add_items([item])
            await asyncio.sleep(0)


@breaks("A5", "a_large_batch_keeps_its_order")
class ChunksOutOfOrder(InMemorySession):
    """stores a large batch in pieces, the last piece first."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([*items[500:], *items[:500]])


@breaks("A6", "a_batch_that_is_not_json_leaves_nothing")
class KeepsTheGoodPart(InMemorySession):
    """keeps what came before the item that is not JSON."""

    async def add_items(self, items: Items) -> None:
        for item in items:
            await super().add_items([item])


@breaks("A6", "a_lost_acknowledgement_is_said_to_be_an_unknown_outcome")
class SaysNothingWasDone(InMemorySession):
    """says that nothing was done when its answer was lost."""

    async def add_items(self, items: Items) -> None:
        await super().add_items(list(items))
        if self.store.__dict__.get("deaf"):
            raise ConnectionError("no answer")


@breaks("A7", "an_empty_batch_changes_nothing")
class EmptyBatchClears(InMemorySession):
    """takes an empty batch for a new beginning."""

    async def add_items(self, items: Items) -> None:
        await (super().add_items(list(items)) if items else self.clear_session())


@breaks("A7", "an_empty_batch_moves_neither_head_nor_time")
class EmptyBatchTouches(InMemorySession):
    """lets an empty batch make a session."""

    async def add_items(self, items: Items) -> None:
        await super().add_items(list(items) or [{"role": "user"}])
        if not items:
            await self.pop_item()


@breaks("A8", "a_write_that_had_to_wait_is_done_once")
class RetriesWhatWasDone(InMemorySession):
    """repeats a write that had to wait, though it went through."""

    async def add_items(self, items: Items) -> None:
        if self.store.lock.locked():
            await super().add_items(list(items))
        await super().add_items(list(items))


@breaks("A8", "a_pop_whose_answer_was_lost_takes_one_item_at_most")
class RetriesAPop(InMemorySession):
    """pops again when the answer was lost."""

    async def pop_item(self) -> Any:
        item = await super().pop_item()
        return await super().pop_item() if self.store.__dict__.get("deaf") else item


@breaks("A9", "first_writers_among_tasks_and_threads_all_succeed")
class FirstWriterRace(InMemorySession):
    """lets two first writers both make the session."""

    async def add_items(self, items: Items) -> None:
        if await self.info() is None:
            await asyncio.sleep(0)
            await self.clear_session()
        await super().add_items(list(items))


@breaks("A10", "concurrent_writers_lose_nothing_and_do_not_interleave")
class LostUpdate(InMemorySession):
    """reads the history, appends to it and writes it back."""

    async def add_items(self, items: Items) -> None:
        history = await self.get_items()
        await asyncio.sleep(0)
        await self.clear_session()
        await super().add_items([*history, *items])


@breaks("A10", "a_batch_that_fails_or_is_cancelled_touches_no_other")
class FailsTheWholeGroup(InMemorySession):
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
class PopsTheOldest(InMemorySession):
    """pops the oldest item."""

    async def pop_item(self) -> Any:
        history = await self.get_items(1_000_000)
        await self.clear_session()
        await self.add_items(history[1:])
        return history[0] if history else None


@breaks("A11", "concurrent_pops_never_return_the_same_item")
class PopsTwice(InMemorySession):
    """looks at the newest item first and removes it afterwards."""

    async def pop_item(self) -> Any:
        newest = await self.get_items(1)
        await asyncio.sleep(0)
        await super().pop_item()
        return newest[0] if newest else None


@breaks("A12", "clearing_removes_this_session_and_no_other")
class ClearsByPrefix(InMemorySession):
    """clears every session whose id begins with this one's."""

    async def clear_session(self) -> None:
        for name in list(self.store.conversations):
            if name.startswith(self.session_id):
                await InMemorySession(name, store=self.store).clear_session()


@breaks("A12", "clearing_removes_generations")
class ClearKeepsGenerations(InMemorySession):
    """keeps generations when it clears."""

    async def clear_session(self) -> None:
        talk = self.store.conversation(self.session_id)
        kept = talk.generations
        await super().clear_session()
        talk.generations = kept


@breaks("A12", "clearing_removes_corrupt_records_too")
class ClearKeepsCorrupt(InMemorySession):
    """keeps corrupt records when it clears."""

    async def clear_session(self) -> None:
        talk = self.store.conversation(self.session_id)
        corrupt = [row for row in talk.rows if row.fault]
        await super().clear_session()
        talk.rows = corrupt


@breaks("A12", "a_cleared_session_begins_anew")
class ClearKeepsTimes(InMemorySession):
    """keeps the creation time when it clears."""

    async def clear_session(self) -> None:
        talk = self.store.conversation(self.session_id)
        created = talk.created_at
        await super().clear_session()
        talk.created_at = created


# --- cancellation and deadlines -------------------------------------------------------------------


@breaks("A13", "a_cancelled_pop_loses_nothing")
class LosesACancelledPop(InMemorySession):
    """loses the item of a pop that is cancelled on its way back."""

    async def pop_item(self) -> Any:
        item = await super().pop_item()
        await asyncio.sleep(0)
        return item


@breaks("A13", "a_cancelled_call_leaves_the_store_as_before_or_after")
class LeaksALock(InMemorySession):
    """keeps its lock when it is cancelled."""

    async def add_items(self, items: Items) -> None:
        held = self.store.__dict__.setdefault("held", {})
        deadline = time.monotonic() + 1
        while held.get(self.session_id):
            if time.monotonic() > deadline:
                raise SessionBusyError("the session is locked", "Find out who has the lock.")
            await asyncio.sleep(0.01)
        held[self.session_id] = True
        await asyncio.sleep(0)
        await super().add_items(list(items))
        held[self.session_id] = False


@breaks("A13", "a_cancelled_call_leaves_the_store_as_before_or_after")
class ClearsHalf(InMemorySession):
    """clears in two steps that a cancellation can come between."""

    async def clear_session(self) -> None:
        await self.pop_item()
        await asyncio.sleep(0)
        await super().clear_session()


@breaks("A13", "a_cancelled_change_leaves_the_store_as_before_or_after")
class CountsFirst(InMemorySession):
    """counts an append before it is stored."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        head = await super().append(items, writer=writer, start=start, **options)
        if start:
            popped = [await self.pop_item() for _ in items]
            await asyncio.sleep(0)
            await self.add_items(popped[::-1])
        return head


@breaks("A13", "a_call_past_its_deadline_says_so")
class NoDeadline(InMemorySession):
    """waits for ever."""

    def __init__(self, session_id: str, *, timeout_s: float = 30, **options: Any) -> None:
        super().__init__(session_id, timeout_s=1e9, **options)


@breaks("A13", "a_cancelled_caller_gets_control_back_from_a_store_that_stalls")
class FinishesFirst(InMemorySession):
    """finishes its write before it lets a cancelled caller go."""

    async def add_items(self, items: Items) -> None:
        writing = asyncio.ensure_future(super().add_items(list(items)))
        try:
            await asyncio.shield(writing)
        except asyncio.CancelledError:
            await asyncio.wait([writing])
            raise


@breaks("A13", "readers_and_other_sessions_work_after_a_stall")
class DoesItLater(InMemorySession):
    """does a cancelled write later."""

    async def add_items(self, items: Items) -> None:
        writing = asyncio.ensure_future(super().add_items(list(items)))
        self.store.__dict__.setdefault("writing", set()).add(writing)
        await asyncio.shield(writing)


# --- corrupt records ------------------------------------------------------------------------------


@breaks("A14", "a_corrupt_record_hides_no_history")
class CorruptHides(InMemorySession):
    """stops reading at a corrupt record."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [] if await self.corrupt_records() else await super().get_items(limit)


@breaks("A14", "a_pop_takes_a_valid_item_and_leaves_corrupt_records")
class DeletesCorrupt(InMemorySession):
    """deletes corrupt records on the way to the newest item."""

    async def pop_item(self) -> Any:
        talk = self.store.conversation(self.session_id)
        talk.rows = [row for row in talk.rows if not row.fault]
        return await super().pop_item()


@breaks("A14", "corrupt_records_are_listed_oldest_first")
class ListsNothingCorrupt(InMemorySession):
    """lists no corrupt records."""

    async def corrupt_records(self) -> list[Any]:
        return []


@breaks("A14", "a_replace_an_undo_and_a_fork_delete_no_corrupt_record")
class ReplaceDeletesCorrupt(InMemorySession):
    """deletes corrupt records when it replaces."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        talk = self.store.conversation(self.session_id)
        head = await super().replace(items, upto=upto, lease=lease)
        talk.rows = [row for row in talk.rows if not row.fault]
        return head


@breaks("A14", "a_corrupt_record_is_logged_once_and_without_its_content")
class LogsTheContent(InMemorySession):
    """logs what a corrupt record says."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        import logging

        for record in await self.corrupt_records():
            logging.getLogger("broken").warning("corrupt: %r", record.data)
        return await super().get_items(limit)


# --- times, values, ids ---------------------------------------------------------------------------


@breaks("A16", "the_creation_time_is_set_once_and_the_update_time_moves_with_changes")
class WholeSeconds(InMemorySession):
    """keeps times in whole seconds."""

    async def info(self) -> SessionInfo | None:
        info = await super().info()
        if info is None:
            return None
        return SessionInfo(
            info.session_id, info.created_at.replace(microsecond=0), info.updated_at.replace(microsecond=0)
        )


@breaks("A16", "what_changes_nothing_does_not_move_the_update_time")
class ReadsTouch(InMemorySession):
    """moves the update time when it is read."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        talk = self.store.conversation(self.session_id)
        if talk.updated_at is not None:
            talk.updated_at = datetime.now(UTC)
        return await super().get_items(limit)


@breaks("A16", "the_update_time_never_moves_back")
class TimeMovesBack(InMemorySession):
    """takes the clock as it is."""

    async def add_items(self, items: Items) -> None:
        await super().add_items(list(items))
        self.store.conversation(self.session_id).updated_at = datetime.fromtimestamp(time.time(), UTC)


@breaks("A16", "neither_times_nor_backend_ids_show_up_in_an_item")
class AddsAnId(InMemorySession):
    """puts its own id into the items."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [{**item, "id": number} for number, item in enumerate(await super().get_items(limit))]


@breaks("A17", "the_callers_objects_are_neither_changed_nor_shared")
class MutatesTheCaller(InMemorySession):
    """writes into the caller's items."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([dict(item) for item in items])
        for item in items:
            item["stored"] = True


@breaks("A17", "the_callers_objects_are_neither_changed_nor_shared")
class SharesObjects(InMemorySession):
    """gives every reader the same objects."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        cache = self.store.__dict__.setdefault("cache", {})
        return [cache.setdefault(json.dumps(item), item) for item in await super().get_items(limit)]


@breaks("A17", "plain_values_come_back_equal")
class ChangesNumberKinds(InMemorySession):
    """turns 1.0 into 1."""

    async def add_items(self, items: Items) -> None:
        def change(value: Any) -> Any:
            if isinstance(value, float) and value.is_integer():
                return int(value)
            if isinstance(value, dict):
                return {key: change(inner) for key, inner in value.items()}
            return [change(inner) for inner in value] if isinstance(value, list) else value

        await super().add_items([change(item) for item in items])


@breaks("A17", "plain_values_come_back_equal")
class SortsKeys(InMemorySession):
    """sorts the keys."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [json.loads(json.dumps(item, sort_keys=True)) for item in await super().get_items(limit)]


@breaks("A17", "hard_values_come_back_equal_or_are_refused")
class RoundsIntegers(InMemorySession):
    """reads large integers as floats."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        def read(text: str) -> Any:
            return float(text) if abs(int(text)) >= 2**64 and len(text) < 300 else int(text)

        return [json.loads(json.dumps(item), parse_int=read) for item in await super().get_items(limit)]


@breaks("A17", "what_json_cannot_hold_is_refused_and_never_changed")
class TurnsTuplesIntoLists(InMemorySession):
    """stores what json.dumps makes of it."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([json.loads(json.dumps(item, default=str)) for item in items])


@breaks("A17", "what_is_no_item_is_refused")
class WrapsWhatIsNoItem(InMemorySession):
    """makes an item of what is none."""

    async def add_items(self, items: Items) -> None:
        await super().add_items([item if isinstance(item, dict) else {"content": item} for item in items])


@breaks("A17", "any_json_object_comes_back_equal")
class LeavesEmptyListsOut(InMemorySession):
    """leaves empty lists out."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return [{key: value for key, value in item.items() if value != []} for item in await super().get_items(limit)]


@breaks("A18", "different_ids_never_meet")
class StripsIds(InMemorySession):
    """strips session ids."""

    async def add_items(self, items: Items) -> None:
        await InMemorySession(self.session_id.strip() or "_", store=self.store).add_items(list(items))

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return await InMemorySession(self.session_id.strip() or "_", store=self.store).get_items(limit)


@breaks("A18", "what_is_no_id_is_refused")
class TakesAnyId(InMemorySession):
    """takes the empty id."""

    def __init__(self, session_id: str, **options: Any) -> None:
        super().__init__(str(session_id or "default"), **options)


# --- lifetime -------------------------------------------------------------------------------------


@breaks("A19", "closing_twice_is_allowed_and_use_after_it_says_so")
class WorksAfterClose(InMemorySession):
    """works after it was closed."""

    async def close(self) -> None:  # type: ignore[override]
        pass


@breaks("A19", "closing_takes_effect_when_called_without_a_loop")
class ClosesWhenAwaited(InMemorySession):
    """closes only when that is awaited."""

    def close(self) -> Any:
        class Later:
            def __await__(later) -> Any:  # noqa: N805 — self is the session
                yield from ()
                self._closed = True

        return Later()


class ClosesWhatWasHandedIn(Memory):
    name = "closes what was handed in"

    def handed_in(self, session_id: str) -> Any:
        store = InMemoryStore()

        async def still_works() -> None:
            if not store.conversations:
                raise RuntimeError("the store that was handed in is closed")

        class Greedy(InMemorySession):
            def close(self) -> Any:
                store.conversations.clear()
                return super().close()

        return Greedy(session_id, store=store), still_works


BROKEN.append(Mistake(ClosesWhatWasHandedIn(), "A19", "closing_leaves_alone_what_was_handed_in"))


class ExpiringSession(InMemorySession):
    """A session whose history expires some seconds after its latest change; right, and the base of a wrong one."""

    seconds = 0.0
    renews = True

    async def add_items(self, items: Items) -> None:
        await self._expire()
        await super().add_items(list(items))
        if items and (self.renews or "until" not in self.store.__dict__):
            self.store.__dict__["until"] = time.monotonic() + self.seconds

    async def get_items(self, limit: int | None = None) -> list[Any]:
        await self._expire()
        return await super().get_items(limit)

    async def _expire(self) -> None:
        if time.monotonic() > self.store.__dict__.get("until", time.monotonic() + 1):
            del self.store.__dict__["until"]
            await self.clear_session()


class Expires(Memory):
    name = "expires"
    not_applicable: Mapping[str, str] = {}
    kind: type[ExpiringSession] = ExpiringSession

    def expiring(self, session_id: str, seconds: int) -> Any:
        session = self.kind(session_id, store=self.store)
        session.seconds = seconds
        return session


class _NeverRenewed(ExpiringSession):
    renews = False


class ExpiryIsNotRenewed(Expires):
    name = "does not renew the expiry"
    kind = _NeverRenewed


BROKEN.append(Mistake(ExpiryIsNotRenewed(), "A20", "an_expiry_is_renewed_by_changes_and_takes_everything"))


@breaks("A21", "many_session_objects_hold_a_constant_number_of_descriptors_and_threads")
class OneDescriptorEach(InMemorySession):
    """opens a descriptor per object."""

    def __init__(self, session_id: str, **options: Any) -> None:
        super().__init__(session_id, **options)
        self._descriptor = os.open(os.devnull, os.O_RDONLY)


@breaks("A22", "a_session_works_in_one_event_loop_after_another")
class BoundToItsLoop(InMemorySession):
    """belongs to the first loop it is used in."""

    _loop: Any = None

    async def add_items(self, items: Items) -> None:
        self._loop = self._loop or asyncio.get_running_loop()
        done = self._loop.create_future()
        self._loop.call_soon_threadsafe(done.set_result, None)
        await done
        await super().add_items(list(items))


@breaks("A22", "a_loop_that_ends_in_the_middle_of_a_call_leaves_nothing_behind", patience_s=20)
class WaitsForALoopThatEnded(InMemorySession):
    """waits for a task that ended with its loop."""

    async def add_items(self, items: Items) -> None:
        before = self.store.__dict__.get("last")
        mine = self.store.__dict__["last"] = asyncio.get_running_loop().create_future()
        if before is not None and not before.done():
            await asyncio.wait([before])
        await asyncio.sleep(0)
        await super().add_items(list(items))
        mine.set_result(None)


@breaks("A22", "a_session_object_works_in_several_threads_at_once")
class NotForThreads(InMemorySession):
    """keeps what it is doing in the object."""

    _busy = False

    async def add_items(self, items: Items) -> None:
        if self._busy:
            raise RuntimeError("this session is in use")
        self._busy = True
        await asyncio.sleep(0.001)
        await super().add_items(list(items))
        self._busy = False


@breaks("A22", "after_a_fork_parent_and_child_go_on")
class RefusesInAFork(InMemorySession):
    """cannot be used after a fork."""

    def __init__(self, session_id: str, **options: Any) -> None:
        super().__init__(session_id, **options)
        self._pid = os.getpid()

    async def add_items(self, items: Items) -> None:
        if os.getpid() != self._pid:
            raise RuntimeError("made in another process")
        await super().add_items(list(items))


# --- part B ---------------------------------------------------------------------------------------


@breaks("B1", "a_repeated_append_stores_each_item_once")
class AppendsAgain(InMemorySession):
    """appends again what is repeated."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        count = await self.accepted(writer)
        return await super().append(items, writer=writer, start=count)


@breaks("B1", "a_repeated_append_stores_each_item_once")
class KnowsItemsByContent(InMemorySession):
    """takes an item for known if an equal one is there."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        known = await self.written(writer)
        fresh = [item for item in items if item not in known]
        return await super().append(fresh, writer=writer, start=await self.accepted(writer))


@breaks("B1", "a_gap_is_refused")
class FillsGaps(InMemorySession):
    """takes a batch that leaves a gap."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        return await super().append(items, writer=writer, start=min(start, await self.accepted(writer)), **options)


@breaks("B1", "another_item_under_the_same_number_is_refused")
class IgnoresDigests(InMemorySession):
    """skips what was accepted without looking."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        known = max(0, await self.accepted(writer) - start)
        return await super().append(items[known:], writer=writer, start=start + known)


@breaks("B1", "given_digests_are_what_an_item_is_known_by")
class OwnDigests(InMemorySession):
    """compares contents where digests were given."""

    async def append(self, items: Items, **options: Any) -> Head:
        options.pop("digests", None)
        return await super().append(items, **options)


@breaks("B1", "a_count_survives_pop_and_clear")
class PopLowersTheCount(InMemorySession):
    """lowers the writer's count when an item is popped."""

    async def pop_item(self) -> Any:
        talk = self.store.conversation(self.session_id)
        newest = talk.rows[-1] if talk.rows else None
        item = await super().pop_item()
        if newest is not None and newest.writer is not None:
            talk.writers[newest.writer].count -= 1
        return item


@breaks("B1", "a_count_survives_pop_and_clear")
class ClearForgetsCounts(InMemorySession):
    """forgets the counts when it clears."""

    async def clear_session(self) -> None:
        await super().clear_session()
        self.store.conversation(self.session_id).writers.clear()


@breaks("B1", "a_count_survives_replace_and_undo")
class ReplaceForgetsWhoWrote(InMemorySession):
    """forgets who wrote what was replaced."""

    async def written(self, writer: str) -> list[Any]:
        generations = self.store.conversation(self.session_id).generations
        self.store.conversation(self.session_id).generations = []
        try:
            return await super().written(writer)
        finally:
            self.store.conversation(self.session_id).generations = generations


@breaks("B1", "concurrent_repeats_store_each_item_once")
class ChecksThenAppends(InMemorySession):
    """asks for the count first and appends afterwards."""

    async def append(self, items: Items, *, writer: str, start: int, **options: Any) -> Head:
        known = max(0, await self.accepted(writer) - start)
        await asyncio.sleep(0)
        fresh = items[known:]
        if fresh:
            await self.add_items(list(fresh))
            talk = self.store.conversation(self.session_id)
            await super().append([], writer=writer, start=0)
            from holdfast.sessions.memory_store import Writer

            talk.writers.setdefault(writer, Writer()).count = start + len(items)
        return await self.head()


@breaks("B1", "any_changes_agree_with_the_reference")
class RewindsTooFar(InMemorySession):
    """rewinds one item too many of a long tail."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        count = await self.accepted(writer)
        return await super().rewind(writer=writer, to=to - 1 if 0 < to < count - 2 else to, expect=expect)


@breaks("B2", "equal_heads_mean_equal_histories")
class HeadByCount(InMemorySession):
    """takes the number of items for the head."""

    async def head(self) -> Head:
        count = len(await self.get_items())
        return Head(str(count)) if count else Head()


@breaks("B2", "a_change_on_a_session_that_moved_is_refused_with_both_heads")
class IgnoresExpect(InMemorySession):
    """does not look at what the caller expects."""

    async def append(self, items: Items, **options: Any) -> Head:
        return await super().append(items, **{**options, "expect": None})


@breaks("B2", "of_several_changes_on_one_head_one_succeeds")
class ChecksThenWrites(InMemorySession):
    """compares the head first and writes afterwards."""

    async def append(self, items: Items, **options: Any) -> Head:
        expect = options.pop("expect", None)
        if expect is not None and expect != await self.head():
            return await super().append(items, expect=expect, **options)
        await asyncio.sleep(0)
        return await super().append(items, **options)


@breaks("B3", "a_replacement_stands_before_what_was_appended_since")
class ReplaceDropsTheTail(InMemorySession):
    """drops what was appended since."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        return await super().replace(items, upto=await self.head(), lease=lease)


@breaks("B3", "a_replacement_may_be_longer_shorter_or_empty")
class ReplacesAtTheEnd(InMemorySession):
    """puts a long replacement at the end."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        if len(items) <= 4:
            return await super().replace(items, upto=upto, lease=lease)
        await super().replace(items[:4], upto=upto, lease=lease)
        await self.add_items(list(items[4:]))
        return await self.head()


@breaks("B3", "writers_beside_a_replace_lose_nothing")
class ReplaceIsNotAtomic(InMemorySession):
    """clears and writes back what was there."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        talk = self.store.conversation(self.session_id)
        tail = talk.rows[talk._cut(upto) :]
        await asyncio.sleep(0)
        await super().replace(items, upto=await self.head(), lease=lease)
        talk.rows += tail
        return await self.head()


@breaks("B3", "a_replace_of_what_has_changed_is_refused")
class ReplacesWhatChanged(InMemorySession):
    """replaces everything if its part has changed."""

    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        try:
            return await super().replace(items, upto=upto, lease=lease)
        except Exception:
            return await super().replace(items, upto=await self.head(), lease=lease)


@breaks("B3", "the_last_three_generations_are_kept")
class KeepsOneGeneration(InMemorySession):
    """keeps one generation."""

    async def generations(self) -> list[Any]:
        return (await super().generations())[:1]


@breaks("B4", "undo_puts_a_generation_back_and_can_be_undone")
class UndoForgetsWhatItDisplaced(InMemorySession):
    """forgets what undo displaced."""

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        head = await super().restore(generation_id, expect=expect)
        self.store.conversation(self.session_id).generations.pop()
        return head


@breaks("B4", "undo_reaches_through_later_replaces")
class UndoDropsWhatCameBetween(InMemorySession):
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
class UndoIgnoresExpect(InMemorySession):
    """undoes on any head."""

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        return await super().restore(generation_id)


@breaks("B5", "a_rewind_of_what_is_not_the_whole_tail_is_refused")
class RewindRemovesOthers(InMemorySession):
    """removes others' items with its own."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        talk = self.store.conversation(self.session_id)
        cut = next((n for n, row in enumerate(talk.rows) if row.writer == writer and row.ordinal >= to), None)
        if cut is not None:
            del talk.rows[cut:]
            talk.writers[writer].count = to
        return await self.head()


@breaks("B5", "a_rewind_removes_a_writers_tail_and_lowers_its_count")
class RewindKeepsTheCount(InMemorySession):
    """does not lower the count."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        count = await self.accepted(writer)
        head = await super().rewind(writer=writer, to=to, expect=expect)
        self.store.conversation(self.session_id).writers[writer].count = count
        return head


@breaks("B5", "a_rewind_with_a_corrupt_record_behind_it_is_refused")
class RewindsOverCorrupt(InMemorySession):
    """rewinds across a corrupt record."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        talk = self.store.conversation(self.session_id)
        talk.rows = [row for row in talk.rows if not row.fault]
        return await super().rewind(writer=writer, to=to, expect=expect)


@breaks("B5", "a_rewind_on_a_session_that_moved_is_refused")
class RewindIgnoresExpect(InMemorySession):
    """rewinds on any head."""

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        return await super().rewind(writer=writer, to=to)


@breaks("B6", "a_fork_and_its_original_never_meet_again")
class ForkShares(InMemorySession):
    """shares its history with its fork."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> InMemorySession:
        fork = await super().fork(new_id, at=at)
        if at is None:
            self.store.conversations[new_id] = self.store.conversation(self.session_id)
        return fork


@breaks("B6", "a_fork_continues_from_any_position")
class ForksOneLess(InMemorySession):
    """forks one item too early."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> InMemorySession:
        return await super().fork(new_id, at=at and Position(max(0, at.index - 1), at.generation))


@breaks("B6", "a_fork_knows_how_much_each_writer_had_written_there")
class ForkCopiesAllCounts(InMemorySession):
    """copies the counts as they are now."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> InMemorySession:
        fork = await super().fork(new_id, at=at)
        for name, known in self.store.conversation(self.session_id).writers.items():
            self.store.conversation(new_id).writers[name].count = known.count
        return fork


@breaks("B6", "a_fork_into_a_session_that_is_not_empty_is_refused")
class ForksOver(InMemorySession):
    """forks over what is there."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> InMemorySession:
        if new_id and new_id != self.session_id:
            self.store.conversations.pop(new_id, None)
        return await super().fork(new_id, at=at)


@breaks("B6", "a_fork_continues_from_a_kept_generation")
class ForksTheCurrentHistory(InMemorySession):
    """forks the current history where a generation was asked for."""

    async def fork(self, new_id: str, *, at: Position | None = None) -> InMemorySession:
        return await super().fork(new_id)


@breaks("B7", "a_write_under_a_lost_lease_is_refused")
class NotFenced(InMemorySession):
    """does not look at the lease a write carries."""

    async def append(self, items: Items, **options: Any) -> Head:
        return await super().append(items, **{**options, "lease": None})


@breaks("B7", "a_session_has_one_holder_at_a_time")
class TwoHolders(InMemorySession):
    """gives a lease to everybody."""

    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        self.store.conversation(self.session_id).fence.held_until = 0
        return await super().lease(ttl_s=ttl_s, wait_s=wait_s)


@breaks("B7", "clearing_does_not_make_an_old_lease_valid_again")
class ClearResetsTheFence(InMemorySession):
    """begins to count leases anew after a clear."""

    async def clear_session(self) -> None:
        await super().clear_session()
        fence = self.store.conversation(self.session_id).fence
        fence.number, fence.held_until = 0, 0.0


@breaks("B7", "a_renewed_lease_does_not_expire")
class RenewsNothing(InMemorySession):
    """does not renew."""

    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        lease = await super().lease(ttl_s=ttl_s, wait_s=wait_s)

        async def renew() -> None:
            return None

        lease.renew = renew  # type: ignore[method-assign]
        return lease


@breaks("B8", "a_page_does_not_shift_when_items_are_written_or_popped")
class PagesByOffset(InMemorySession):
    """counts pages from the end."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        items = await self.get_items()
        end = len(items) - int(before or 0)
        start = max(0, end - limit)
        return Page(items[start:end], str(len(items) - start) if start else None)


@breaks("B8", "pages_put_together_are_the_history")
class PagesOverlap(InMemorySession):
    """gives one item in two pages."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        return await super().page(before=None if before is None else str(int(before) + 1), limit=limit)


@breaks("B8", "a_page_costs_what_it_holds_not_what_the_history_holds")
class ReadsAllForAPage(InMemorySession):
    """reads the whole history for every page."""

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        await self.get_items()
        return await super().page(before=before, limit=limit)


@breaks("B9", "sessions_are_listed_newest_change_first_in_pages")
class ListsOldestFirst(InMemorySession):
    """lists the oldest session first."""

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        page = await super().list_sessions(after=after, limit=limit)
        return SessionPage(page.sessions[::-1], page.after)


# --- stores with files ----------------------------------------------------------------------------


class LinesSession:
    """One JSON object a line, in a file per session that is replaced whole: a plain session as many people write it."""

    session_settings = None

    def __init__(self, session_id: str, path: Path) -> None:
        self.session_id, self.path = session_id, path

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = [json.loads(line) for line in self.read()]
        return items if limit is None else items[len(items) - limit if limit < len(items) else 0 :]

    async def add_items(self, items: list[Any]) -> None:
        lines = [json.dumps(item).encode() + b"\n" for item in items]
        with self.locked():
            self.append(lines)

    async def pop_item(self) -> Any:
        with self.locked():
            lines = self.read()
            self.write(lines[:-1])
            return json.loads(lines[-1]) if lines else None

    async def clear_session(self) -> None:
        with self.locked():
            self.write([])

    def append(self, lines: list[bytes]) -> None:
        self.write(self.read() + lines)

    def read(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []

    def write(self, lines: list[bytes]) -> None:
        new = self.path.with_suffix(".new")
        new.write_bytes(b"".join(lines))
        new.replace(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with open(self.path.with_suffix(".lock"), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Lines(Backend):
    name = "a file of lines"
    persistent = True
    files = True
    deadlines = False
    settings = False
    kind: type[LinesSession] = LinesSession

    def open(self, session_id: str, **options: Any) -> LinesSession:
        return self.kind(session_id, self.folder / f"{session_id.encode().hex()}.jsonl")


class _LineByLine(LinesSession):
    def append(self, lines: list[bytes]) -> None:
        with open(self.path, "ab", buffering=0) as file:
            for line in lines:
                file.write(line)


class KilledBetweenLines(Lines):
    name = "writes a batch line by line"
    kind = _LineByLine


class _Later(LinesSession):
    waiting: list[bytes] = []  # noqa: RUF012 — shared on purpose: what the next write brings along

    def append(self, lines: list[bytes]) -> None:
        super().append(self.waiting)
        self.waiting[:] = lines


class AcknowledgesEarly(Lines):
    name = "acknowledges what it has only in memory"
    kind = _Later


class _MadeOnce(LinesSession):
    @contextmanager
    def locked(self) -> Iterator[None]:
        if not self.path.exists():
            time.sleep(0.01)
            with open(self.path, "xb"):
                pass
        with super().locked():
            yield


class FirstProcessRace(Lines):
    name = "fails when another process makes the file first"
    kind = _MadeOnce


class _Eager(LinesSession):
    def __init__(self, session_id: str, path: Path) -> None:
        super().__init__(session_id, path)
        path.touch()


class OpensInItsConstructor(Lines):
    name = "makes its file in the constructor"
    kind = _Eager


class _Unlocked(LinesSession):
    async def add_items(self, items: list[Any]) -> None:
        history = self.read()
        await asyncio.sleep(0.001)
        with self.locked():
            self.write(history + [json.dumps(item).encode() + b"\n" for item in items])

    async def pop_item(self) -> Any:
        history = await self.get_items()
        time.sleep(0.002)
        await super().pop_item()
        return history[-1] if history else None


class RewritesTheFile(Lines):
    name = "writes the whole history back"
    kind = _Unlocked


class PopRace(Lines):
    name = "lets two processes pop one item"
    kind = _Unlocked


class HalfABatchOnAFullDisk(Lines):
    name = "leaves half a batch on a full disk"
    kind = _LineByLine


BROKEN += [
    Mistake(KilledBetweenLines(), "A5", "a_writer_killed_inside_a_batch_leaves_all_or_nothing_of_it"),
    Mistake(AcknowledgesEarly(), "A23", "every_acknowledged_batch_survives_a_kill"),
    Mistake(FirstProcessRace(), "A9", "first_writers_among_processes_all_succeed"),
    Mistake(OpensInItsConstructor(), "A9", "opening_a_session_touches_nothing_before_its_first_operation"),
    Mistake(RewritesTheFile(), "A10", "concurrent_writers_in_processes_lose_nothing"),
    Mistake(PopRace(), "A11", "pops_of_several_processes_never_return_the_same_item"),
    Mistake(HalfABatchOnAFullDisk(), "A6", "a_full_disk_refuses_whole_batches_and_harms_nothing"),
]


# --- SQLite ---------------------------------------------------------------------------------------


class _Torn(agents.SQLiteSession):
    async def add_items(self, items: list[Any], *unused: Any) -> None:
        for item in items:
            await super().add_items([item])


class TornInTheFile(SQLiteFile):
    name = "commits item by item"
    deadlines = False

    def open(self, session_id: str, **options: Any) -> Any:
        return _Torn(session_id, self.path, **options)


class _Relaxed(agents.SQLiteSession):
    def _get_connection(self) -> sqlite3.Connection:
        connection = super()._get_connection()
        if not connection.in_transaction:
            connection.execute("PRAGMA synchronous=OFF")
        return connection


class DoesNotSync(SQLiteFile):
    name = "does not wait for the disk"
    deadlines = False

    def open(self, session_id: str, **options: Any) -> Any:
        return _Relaxed(session_id, self.path, **options)


class IgnoresNames(HoldfastSQLite):
    name = "ignores configured names"

    def open(self, session_id: str, **options: Any) -> Any:
        return SQLiteSession(session_id, self.path, **{k: v for k, v in options.items() if k not in TABLES})


class TakesAnyName(IgnoresNames):
    name = "takes any table name"
    bad_names = BAD_TABLES[:1]


class _OwnCounter(SQLiteSession):
    counts: dict[str, int] = {}  # noqa: RUF012 — shared on purpose: the head this process believes in

    async def head(self) -> Head:
        return Head(str(self.counts.get(self.session_id, 0)) if self.session_id in self.counts else "")

    async def append(self, items: Items, **options: Any) -> Head:
        expect = options.pop("expect", None)
        if expect is not None and expect != await self.head():
            return await super().append(items, expect=expect, **options)
        await super().append(items, **options)
        self.counts[self.session_id] = self.counts.get(self.session_id, 0) + 1
        return await self.head()


class HeadFromACounter(HoldfastSQLite):
    name = "keeps a counter that the peer does not maintain"

    def open(self, session_id: str, **options: Any) -> Any:
        return _OwnCounter(session_id, self.path, **options)


class _ReplacesInSteps(SQLiteSession):
    async def replace(self, items: Items, *, upto: Head, lease: Any = None) -> Head:
        head = await super().replace([], upto=upto, lease=lease)
        del head
        for item in items:
            await self.add_items([item])
        return await self.head()


class ReplacesInSteps(HoldfastSQLite):
    name = "replaces in several transactions"

    def open(self, session_id: str, **options: Any) -> Any:
        return _ReplacesInSteps(session_id, self.path, **options)


class _LockFile:
    def __init__(self, path: Path) -> None:
        self.path, self.number = path, 1

    async def release(self) -> None:
        self.path.unlink(missing_ok=True)


class _LeaseByFile(SQLiteSession):
    async def lease(self, *, ttl_s: float, wait_s: float) -> Any:
        path = Path(f"{self.db_path}.lease")
        deadline = time.monotonic() + min(wait_s, 3)
        while True:
            try:
                os.close(os.open(path, os.O_CREAT | os.O_EXCL))
                return _LockFile(path)
            except FileExistsError:
                if time.monotonic() >= deadline:
                    raise SessionBusyError("the session is locked", "Remove the file.") from None
                await asyncio.sleep(0.05)


class LeaseForEver(HoldfastSQLite):
    name = "holds the lease of a dead process"

    def open(self, session_id: str, **options: Any) -> Any:
        return _LeaseByFile(session_id, self.path, **options)


BROKEN += [
    Mistake(TornInTheFile(), "A5", "no_reader_in_another_process_sees_part_of_a_batch"),
    Mistake(DoesNotSync(), "A23", "an_acknowledged_write_has_reached_the_disk"),
    Mistake(IgnoresNames(), "A15", "configured_names_apply_to_every_operation"),
    Mistake(TakesAnyName(), "A15", "names_that_are_no_identifiers_are_refused"),
    Mistake(HeadFromACounter(), "B10", "what_they_write_and_pop_moves_the_head"),
    Mistake(ReplacesInSteps(), "B3", "a_process_killed_inside_a_replace_leaves_old_or_new"),
    Mistake(LeaseForEver(), "B7", "the_lease_of_a_process_that_was_killed_expires"),
]
