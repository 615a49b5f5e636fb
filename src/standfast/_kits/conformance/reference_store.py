"""Conversations in plain Python structures: the reference for every other store.

A conversation is a list of rows in reading order. A row has a number that is never used again, so the numbers of the
newest row and of the newest valid row tell whether the history moved, whatever moved it: that is the head (B2).
Replacing or restoring gives every row of the new history a fresh number; popping and rewinding only ever remove from
the end. So if the two rows a head names are still there, everything before them is untouched.

Everything here is synchronous and assumes that the caller holds the store's lock; nothing here waits, reads a file or
knows a loop. Items are kept as bytes, so nothing is shared with the caller (A17).
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace as changed
from datetime import UTC, datetime, timedelta
from itertools import count, islice
from weakref import WeakSet

from standfast._kits.conformance.reference_runs import ReferenceRunStore
from standfast._src.base.errors import (
    AppendGapError,
    CorruptRecordError,
    LeaseLostError,
    NotFoundError,
    SessionConflictError,
)
from standfast._src.base.json_values import CorruptJSON, decode
from standfast._src.sessions.protocol import CorruptRecord, Generation, Head, Position, SessionInfo

GENERATIONS_KEPT = 3
# Enough to undo a compaction, and to undo that undo, without keeping a conversation's whole past alive.

TICK = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Row:
    """A stored record. `replaces` names the generation it replaces; None for an appended row."""

    id: int
    data: bytes
    fault: str | None = None
    writer: str | None = None
    ordinal: int = 0
    replaces: str | None = None


@dataclass(frozen=True, slots=True)
class ReferenceGeneration:
    """A generation with its rows."""

    id: str
    created_at: datetime
    rows: tuple[Row, ...]


@dataclass(slots=True)
class WriterCount:
    """Number of a writer's accepted items, and the digest of each since the last clearing of the session."""

    count: int = 0
    digests: dict[int, bytes] = field(default_factory=dict)


@dataclass(slots=True)
class Fence:
    """The newest lease: its number, and its expiry by the store's clock (0: released)."""

    number: int = 0
    held_until: float = 0.0


class StoredConversation:
    """State of a session, with all its changes."""

    def __init__(self, store: ReferenceStore) -> None:
        self._store = store
        self.rows: list[Row] = []
        self.generations: list[ReferenceGeneration] = []  # oldest first
        self.writers: dict[str, WriterCount] = {}
        self.fence = Fence()
        self.created_at: datetime | None = None
        self.updated_at: datetime | None = None
        self.change = 0  # number of the latest change in the store: what listings are ordered by
        self._unreported: list[str] = []  # corrupt records that no reader was told about yet
        self.first_id = 0  # rows numbered below this one are gone: older pages cannot be continued

    # --- reading ------------------------------------------------------------------------------

    def items(self, limit: int | None = None) -> list[bytes]:
        """Return the latest `limit` valid items (None: all), oldest first."""
        newest_first = (row.data for row in reversed(self.rows) if row.fault is None)
        return list(islice(newest_first, None if limit is None else min(limit, len(self.rows))))[::-1]

    def head(self) -> Head:
        """The numbers of the newest row and of the newest valid one."""
        return _head(self.rows)

    def page(self, before: str | None, limit: int) -> tuple[list[bytes], str | None]:
        """Return the `limit` valid items before a row number, and the cursor of the previous page."""
        end = len(self.rows) if before is None else self._page_end(before)
        found: list[Row] = []
        place = end
        while place and len(found) < limit:
            place -= 1
            if self.rows[place].fault is None:
                found.append(self.rows[place])
        older = any(row.fault is None for row in self._backwards(place))
        cursor = str(found[-1].id) if found else before
        return [row.data for row in reversed(found)], cursor if older else None

    def _backwards(self, end: int) -> Iterator[Row]:
        return (self.rows[place] for place in range(end - 1, -1, -1))

    def _page_end(self, before: str) -> int:
        if not before.isascii() or not before.isdigit():
            raise NotFoundError(f"{before!r} is no page cursor", "Use Page.before of an earlier page of this session.")
        if int(before) < self.first_id:
            raise SessionConflictError(
                "the history this page belongs to was replaced or cleared", "Read again from the latest page."
            )
        return bisect_left(self.rows, int(before), key=lambda row: row.id)

    def corrupt(self) -> list[CorruptRecord]:
        """Return every corrupt row, oldest first."""
        return [CorruptRecord(str(row.id), row.fault, row.data) for row in self.rows if row.fault is not None]

    def report_corrupt(self) -> list[str]:
        """Corrupt records to log; each is given out once."""
        unreported, self._unreported = self._unreported, []
        return unreported

    def info(self, session_id: str) -> SessionInfo | None:
        """Return the times of creation and change; None if nothing is stored."""
        if self.created_at is None or self.updated_at is None:
            return None
        return SessionInfo(session_id, self.created_at, self.updated_at)

    # --- appending and removing ------------------------------------------------------------------------------

    def add(self, encoded: Sequence[bytes]) -> None:
        """Append rows of no writer."""
        self.rows += [Row(self._store.next_id(), data) for data in encoded]
        self._touch()

    def add_record(self, data: bytes) -> None:
        """Append raw bytes, valid or not: how tests make a record that another program broke."""
        try:
            decode(data)
            fault = None
        except CorruptJSON as error:
            fault = f"not a JSON object ({error})"
        self.rows.append(Row(self._store.next_id(), data, fault))
        if fault is not None:
            self._unreported.append(f"{self.rows[-1].id} ({fault})")
        self._touch()

    def append(
        self, encoded: Sequence[bytes], digests: Sequence[bytes], writer: str, start: int, expect: Head | None
    ) -> Head:
        """Append the items that this writer has not appended yet; see `CanAppend.append`."""
        known = self.writers.get(writer, WriterCount())
        if not 0 <= start <= known.count:
            raise AppendGapError(
                f"writer {writer!r} has written {known.count} items and this batch starts at {start}",
                f"Append from {known.count} on, or from an earlier number with the same items.",
            )
        for ordinal, given in enumerate(digests[: known.count - start], start):
            if known.digests.get(ordinal, given) != given:
                raise SessionConflictError(
                    f"writer {writer!r} has already written another item number {ordinal}",
                    "Use a new writer name for a new history, or rewind first.",
                )
        fresh = range(known.count - start, len(encoded))
        if not fresh:
            return self.head()  # a repeat after a lost acknowledgement: whatever was expected then has come true
        self.check_head(expect)
        self.rows += [
            Row(self._store.next_id(), encoded[place], writer=writer, ordinal=start + place) for place in fresh
        ]
        known.digests.update((start + place, digests[place]) for place in fresh)
        known.count = start + len(encoded)
        self.writers[writer] = known
        self._touch()
        return self.head()

    def pop(self) -> bytes | None:
        """Remove the newest valid row; corrupt rows behind it stay."""
        for place in range(len(self.rows) - 1, -1, -1):
            if self.rows[place].fault is None:
                row = self.rows.pop(place)
                self._touch()
                return row.data
        return None

    def rewind(self, writer: str, to: int, expect: Head | None) -> Head:
        """Remove a writer's items from number `to` on if they are the whole tail."""
        known = self.writers.get(writer, WriterCount())
        if not 0 <= to <= known.count:
            raise NotFoundError(
                f"writer {writer!r} has written {known.count} items and cannot go back to {to}",
                f"Give a number from 0 to {known.count}.",
            )
        if to == known.count:
            return self.head()
        self.check_head(expect)
        cut = self._rewind_cut(writer, to)
        removed = len(self.rows) > cut
        del self.rows[cut:]
        known.count = to
        known.digests = {ordinal: digest for ordinal, digest in known.digests.items() if ordinal < to}
        if removed:
            self._touch()
        return self.head()

    def _rewind_cut(self, writer: str, to: int) -> int:
        """Return the begin of the writer's tail; refuse if other rows are in it or behind it."""

        def leaves(row: Row) -> bool:
            return row.writer == writer and row.ordinal >= to

        cut = next((place for place, row in enumerate(self.rows) if leaves(row)), len(self.rows))
        leaving = {row.ordinal for row in self.rows[cut:] if leaves(row)}
        compacted = any(leaves(row) and row.ordinal not in leaving for kept in self.generations for row in kept.rows)
        if compacted or not all(leaves(row) or row.fault for row in self.rows[cut:]):
            raise SessionConflictError(
                f"items of writer {writer!r} from number {to} on are not the whole tail of the session",
                "Something was written behind them or they were compacted; leave them, or restore first.",
            )
        if any(row.fault for row in self.rows[cut:]):
            raise CorruptRecordError(
                f"a corrupt record stands behind items of writer {writer!r}",
                "Look at corrupt_records() and repair or clear the session first.",
            )
        return cut

    def clear(self) -> None:
        """Forget everything but how much each writer wrote and the lease's number."""
        self.rows, self.generations = [], []
        for known in self.writers.values():
            known.digests.clear()
        self.created_at = self.updated_at = None
        self.first_id = self._store.next_id()

    # --- replacing and restoring ------------------------------------------------------------------------------

    def replace(self, encoded: Sequence[bytes], upto: Head) -> Head:
        """Put items in place of the rows up to that head; the rows themselves become a generation."""
        cut = self.rows_upto(upto)
        front, tail = self.rows[:cut], self.rows[cut:]
        kept = self._keep([row for row in front if row.fault is None])
        corrupt = [row for row in front if row.fault is not None]  # stays until cleared or repaired (A14)
        self._renumber([*corrupt, *(Row(0, data, replaces=kept.id) for data in encoded), *tail])
        return self.head()

    def restore(self, generation_id: str, expect: Head | None) -> Head:
        """Put a generation back in place of its replacement; the displaced rows become a generation."""
        self.check_head(expect)
        first, since = self._since(generation_id)
        later = {kept.id for kept in self.generations[first:]}
        displaced = [row for row in self.rows if row.replaces in later]
        live = [row for row in self.rows if row.replaces not in later]
        corrupt, tail = self._without_corrupt_front(live)
        archived = since[: len(since) - len(live)]  # appended once, then moved into a later generation
        source = self.generations[first].rows
        kept = self._keep(displaced)
        restored = [changed(row, replaces=kept.id) for row in (*source, *archived)]
        self._renumber([*corrupt, *restored, *tail])
        return self.head()

    def written(self, writer: str) -> list[bytes]:
        """Return a writer's valid items kept in any generation, by number."""
        count_now = self.writers.get(writer, WriterCount()).count
        rows = [row for kept in self.generations for row in kept.rows] + self.rows
        mine = {row.ordinal: row.data for row in rows if row.writer == writer and row.fault is None}
        return [mine[ordinal] for ordinal in sorted(mine) if ordinal < count_now]

    def generation_rows(self, generation_id: str) -> tuple[Row, ...]:
        """The rows of a kept generation."""
        return self.generations[self._generation(generation_id)].rows

    def listed_generations(self) -> list[Generation]:
        """The kept generations, newest first."""
        return [Generation(kept.id, kept.created_at, len(kept.rows)) for kept in reversed(self.generations)]

    def _since(self, generation_id: str) -> tuple[int, list[Row]]:
        """Return the place of a generation in the chain, and all rows appended since it was current, in order.

        Rows that replaced it or a later generation are summaries of kept rows; all remaining rows were appended.
        """
        first = self._generation(generation_id)
        later = {kept.id for kept in self.generations[first:]}
        rows = [row for kept in self.generations[first + 1 :] for row in kept.rows] + self.rows
        return first, [row for row in rows if row.replaces not in later]

    def _without_corrupt_front(self, live: list[Row]) -> tuple[list[Row], list[Row]]:
        """Split off corrupt rows among or before the replacing rows."""
        first = next((place for place, row in enumerate(live) if row.fault is None), len(live))
        return live[:first], live[first:]

    def _generation(self, generation_id: str) -> int:
        for place, kept in enumerate(self.generations):
            if kept.id == generation_id:
                return place
        raise NotFoundError(
            f"there is no generation {generation_id!r}", f"The last {GENERATIONS_KEPT} are kept: see generations()."
        )

    def _keep(self, rows: list[Row]) -> ReferenceGeneration:
        kept = ReferenceGeneration(str(self._store.next_id()), self._store.now(), tuple(rows))
        self.generations = [*self.generations, kept][-GENERATIONS_KEPT:]
        return kept

    def _renumber(self, rows: list[Row]) -> None:
        self.first_id = self._store.next_id()
        self.rows = [changed(row, id=self._store.next_id()) for row in rows]
        self._touch()

    def rows_upto(self, upto: Head) -> int:
        """Count the rows up to a head; refuse if any of them has moved since."""
        if upto == Head():
            return 0
        newest = int(upto.value.partition(".")[0]) if upto.value[:1].isdigit() else 0
        cut = bisect_left(self.rows, newest + 1, key=lambda row: row.id)
        if _head(self.rows, cut) != upto:
            raise self._conflict_error(upto)
        return cut

    # --- forking ------------------------------------------------------------------------------

    def fork_into(self, target: StoredConversation, at: Position | None) -> None:
        """Let the empty conversation `target` continue from a position."""
        timeline = self._timeline(at)
        items = [row for row in timeline if row.fault is None]
        index = len(items) if at is None else at.index
        inside = len(self._pointable(at)) if at is not None else len(items)
        if not 0 <= index <= inside:
            raise NotFoundError(f"there is no position {index}", f"Give an index from 0 to {inside}.")
        if target is self or target.rows or target.generations:
            raise SessionConflictError("the session to fork into is not empty", "Choose an id that was never used.")
        target._take(items[:index], self._counts_at(items[index:]))

    def _pointable(self, at: Position) -> list[Row]:
        """Return the valid rows to which a position may point."""
        rows = self.rows if at.generation is None else self.generation_rows(at.generation)
        return [row for row in rows if row.fault is None]

    def _timeline(self, at: Position | None) -> list[Row]:
        if at is None or at.generation is None:
            return self.rows
        _, since = self._since(at.generation)
        return [*self.generation_rows(at.generation), *since]

    def _counts_at(self, excluded: list[Row]) -> dict[str, WriterCount]:
        """Return each writer's count before these rows: its lowest ordinal among them, else its total."""
        lowest: dict[str, int] = {}
        for row in excluded:
            if row.writer is not None:
                lowest[row.writer] = min(row.ordinal, lowest.get(row.writer, row.ordinal))
        counts = {}
        for name, known in self.writers.items():
            end = min(lowest.get(name, known.count), known.count)
            counts[name] = WriterCount(end, {n: digest for n, digest in known.digests.items() if n < end})
        return counts

    def _take(self, rows: list[Row], writers: dict[str, WriterCount]) -> None:
        self.writers.update(writers)
        self.rows = [changed(row, id=self._store.next_id(), replaces=None) for row in rows]
        if rows:
            self._touch()

    # --- fences and times ------------------------------------------------------------------------------

    def check_head(self, expect: Head | None) -> None:
        """Refuse if the session is not at the expected head (B2)."""
        if expect is not None and expect != self.head():
            raise self._conflict_error(expect)

    def check_lease(self, number: int | None) -> None:
        """Refuse a write under a lease that another holder has taken since (B7)."""
        if number is not None and number < self.fence.number:
            raise LeaseLostError(
                f"the lease number {number} was taken over by number {self.fence.number}",
                "Another run has the session now: reload it and run again.",
            )

    def _conflict_error(self, expected: Head) -> SessionConflictError:
        actual = self.head()
        return SessionConflictError(
            f"the session is at {actual} and {expected} was expected",
            "Another writer changed it: reload it and try again.",
            expected=expected,
            actual=actual,
        )

    def _touch(self) -> None:
        now = self._store.now()
        self.created_at = self.created_at or now
        # A clock that went back must not make a change look older than the one before it (A16).
        self.updated_at = now if self.updated_at is None else max(now, self.updated_at + TICK)
        self.change = self._store.next_id()


def _head(rows: Sequence[Row], end: int | None = None) -> Head:
    end = len(rows) if end is None else end
    if not end:
        return Head()
    valid = next((rows[place].id for place in range(end - 1, -1, -1) if rows[place].fault is None), 0)
    return Head(f"{rows[end - 1].id}.{valid}")


class ReferenceStore:
    """Shared state of several `ReferenceSession` objects: conversations, runs, a lock and a sequence of numbers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.conversations: dict[str, StoredConversation] = {}
        self._numbers = count(1)
        self._runs = ReferenceRunStore(self.lock)
        _stores.add(self)

    def next_id(self) -> int:
        """Return a new unique number."""
        return next(self._numbers)

    def now(self) -> datetime:
        """Return the wall clock's time, which orders nothing."""
        return datetime.fromtimestamp(time.time(), UTC)

    def conversation(self, session_id: str) -> StoredConversation:
        """Return the conversation of an id, created if missing; the caller holds the lock."""
        found = self.conversations.get(session_id)
        if found is None:
            found = self.conversations[session_id] = StoredConversation(self)
        return found

    def list_conversations(self) -> list[tuple[str, StoredConversation]]:
        """Conversations that have something stored, newest change first; the caller holds the lock."""
        alive = [(name, found) for name, found in self.conversations.items() if found.created_at is not None]
        return sorted(alive, key=lambda pair: -pair[1].change)

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Store raw bytes at the end of a session, as a faulty program would. For tests of A14."""
        with self.lock:
            self.conversation(session_id).add_record(data)

    def run_store(self) -> ReferenceRunStore:
        """Return the runs kept in this store."""
        return self._runs  # without the lock: the caller may be in a loop, which must not wait for a stalled store


# --- os.fork ------------------------------------------------------------------------------

# A child of os.fork gets a copy of every store. It must not get one that another thread was half-way through changing,
# nor a lock whose owner does not exist there: so forking waits for each store's lock and both sides give it back.
_stores: WeakSet[ReferenceStore] = WeakSet()
_held: list[threading.Lock] = []
_forking = threading.Lock()  # several threads may fork: one at a time, or they would give back each other's locks


def _before_fork() -> None:
    _forking.acquire()
    for store in list(_stores):
        store.lock.acquire()
        _held.append(store.lock)


def _after_fork() -> None:
    while _held:
        _held.pop().release()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
