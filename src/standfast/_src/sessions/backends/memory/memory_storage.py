"""Storage port in plain Python structures, in the plainest form.

A name has lists of rows, a dictionary of cells and its times. Row numbers are never used again in the whole store, and
an arrangement or a clear begins another edition; within an edition rows only come at the end and go. So edition, number
of the newest row and number of rows together tell one history from any other: that is the mark.

Nothing here waits, decides or uses an event loop, and the caller holds `lock`. Rows and cells are bytes, so nothing is
shared with a caller (A17).
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from weakref import WeakSet

from standfast._src.base.errors import CallerError
from standfast._src.sessions.storage import (
    Arrange,
    Cell,
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Load,
    Name,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Tag,
)
from standfast._src.sessions.storage_helpers import (
    NUMBER_MAX,
    apply_arrangement,
    is_above,
    of_writer,
    read_cursor,
    sum_value,
    value_at,
)

TICK_S = 1e-6  # a change moves the time on even where the clock has not moved since the one before (A16)
EXPIRED = "expired"  # in place of a cell's epoch, where that has expired under a lease


@dataclass(slots=True)
class Stored:
    """Contents of one name."""

    edition: int
    boxes: dict[int, list[Row]] = field(default_factory=lambda: {0: []})
    cells: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    epoch: str = ""
    created: float | None = None
    updated: float | None = None
    change: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    expires: float | None = None
    """When its contents end, by the wall clock; None while nothing has set a time."""
    held_until: float = 0.0
    """Until when its cells stay though its contents have ended: somebody holds its lease."""

    @property
    def live(self) -> list[Row]:
        """The history."""
        return self.boxes[0]

    def mark(self, end: int | None = None) -> str:
        """Return the mark of the first `end` live rows (None: all)."""
        rows = self.live
        size = len(rows) if end is None else end
        return f"{self.edition}.{rows[size - 1].ref}.{size}" if size else ""

    def upto(self, mark: str) -> int | None:
        """Return the ref of the last row covered by a mark; None if anything up to there has changed."""
        size = int(mark.rpartition(".")[2]) if mark.rpartition(".")[2].isdigit() else 0
        if not mark:
            return 0
        return self.live[size - 1].ref if 0 < size <= len(self.live) and self.mark(size) == mark else None

    def cell(self, name: str) -> Cell | None:
        """Return a cell with two flags: written since the last clear, expired."""
        found = self.cells.get(name)
        return None if found is None else Cell(found[0], found[1] == self.epoch, found[1] == EXPIRED)


class MemoryStore:
    """Histories and saved runs, for as long as the process lives.

    `ttl_s`: what was not changed for so many seconds is forgotten, as a whole (A20). None keeps everything.
    """

    loses_answers = False

    def __init__(self, *, ttl_s: float | None = None) -> None:
        if ttl_s is not None and not ttl_s > 0:
            raise CallerError(
                f"nothing can be kept for {ttl_s} s", "Give ttl_s as a positive number of seconds, or None."
            )
        self.lock = threading.Lock()
        self.ttl_s = ttl_s
        self._names: dict[Name, Stored] = {}
        self._numbers = count(1)
        self._written_at: dict[int, float] = {}  # by ref: when a live row was written
        # Leases go by this clock, and no step of the wall clock moves it.
        self._clock_zero = time.time() - time.monotonic()
        _stores.add(self)

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Store raw bytes at the end of a session, as a faulty program would. For tests of A14."""
        with self.lock:
            stored = self._get_or_create(Name("session", session_id))
            self._touch(stored)
            self._push(stored, [(data, None)])

    def shift_times(self, session_id: str, seconds: float) -> None:
        """Move the times of a session, as if the clock had been set since. For tests of A4 and A16."""
        with self.lock:
            stored = self._get_or_create(Name("session", session_id))
            if stored.created is not None and stored.updated is not None:
                stored.created, stored.updated = stored.created + seconds, stored.updated + seconds

    # --- looking -----------------------------------------------------------------------------------------------------

    def look(self, look: ReadRequest) -> ReadAnswer:
        """Read every row, cell and mark of a request."""
        stored = self._find(look.name)
        now = self._clock_zero + time.monotonic()
        if stored is None:
            nothing: tuple[tuple[()], ...] = tuple(() for _ in look.rows)
            return ReadAnswer(now=now, rows=nothing, upto=None if look.upto else 0, times=nothing)
        rows = tuple(_read(stored.boxes.get(wanted.box, []), wanted) for wanted in look.rows)
        if look.only_data:
            return ReadAnswer(data=[row.data for row in rows[0]])
        names: Iterable[str] = look.cells
        if look.prefixes:
            names = {*look.cells, *(name for name in stored.cells if name.startswith(look.prefixes))}
        return ReadAnswer(
            mark=stored.mark(),
            now=now,
            epoch=stored.epoch,
            created=stored.created,
            updated=stored.updated,
            labels=stored.labels,
            cells={name: cell for name in names if (cell := stored.cell(name)) is not None},
            rows=rows,
            upto=None if look.upto is None else stored.upto(look.upto),
            count=len(stored.live),
            times=tuple(
                [self._written_at.get(row.ref) for row in found] if wanted.times else ()
                for wanted, found in zip(look.rows, rows, strict=True)
            ),
        )

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Return the names of a kind with given labels, newest change first."""
        below = NUMBER_MAX if after is None else read_cursor(after)
        found = [
            Listed(name.id, stored.created, stored.updated, stored.labels, str(stored.change))
            for name, stored in self._all(kind)
            if stored.created is not None
            and stored.updated is not None
            and stored.change < below
            and all(stored.labels.get(label) == value for label, value in labels.items())
        ]
        found.sort(key=lambda one: -int(one.cursor))
        return found[:limit]

    def count(self, kind: Kind) -> int:
        """Count the names of a kind."""
        return sum(stored.created is not None for _, stored in self._all(kind))

    # --- changing ----------------------------------------------------------------------------------------------------

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Do the whole step if all conditions hold."""
        for place, change in enumerate(step):
            refused = self._find_refusal(place, change)
            if refused is not None:
                return refused
        moved = [
            None if change.arrange is None else self._apply_arrangement(change.name, change.arrange) for change in step
        ]
        return Done(tuple(map(self._change, step, moved)))

    def _find_refusal(self, place: int, change: KeyUpdate) -> Refused | None:
        stored = self._find(change.name) or Stored(0)
        is_other_cell = any((stored.cells.get(name) or (None,))[0] != value for name, value in change.cells.items())
        is_other_cell = is_other_cell or any(
            is_above(value_at(stored.cell(name)), one) for name, one in change.add.items()
        )
        is_other_mark = change.mark is not None and stored.mark() != change.mark
        is_cut = change.prefix is not None and stored.upto(change.prefix) is None
        if not (is_other_cell or is_other_mark or is_cut):
            return None
        cells = {name: cell for name in (*change.cells, *change.add) if (cell := stored.cell(name)) is not None}
        return Refused(place, "cell" if is_other_cell else "mark", stored.mark(), cells)

    def _apply_arrangement(self, name: Name, arrange: Arrange) -> tuple[list[Row], list[Row]]:
        def box_of(part: Range) -> list[Row]:
            return (self._find(part.of or name) or Stored(0)).boxes.get(part.box, [])

        return apply_arrangement(arrange, box_of)

    def _change(self, change: KeyUpdate, arranged: tuple[list[Row], list[Row]] | None) -> str:
        """Apply one change and return the mark of the live rows after the change."""
        if change.remove:
            self._forget_times(self._names.pop(change.name, None))
            return ""
        stored = self._get_or_create(change.name)
        if change.wipe is not None:
            kept = {name: cell for name, cell in stored.cells.items() if name.startswith(change.wipe)}
            self._empty(stored, kept)
        if change.drop:
            # The first that goes is nearly always close to the end: a pop must not cost what the history is long.
            gone, live = set(change.drop), stored.live
            first = bisect_left(live, min(gone), key=lambda row: row.ref)
            live[first:] = [row for row in live[first:] if row.ref not in gone]
        if change.arrange is not None and arranged is not None:
            self._arrange(stored, change.arrange, arranged)
        if change.back:
            for row in change.back:
                insort(stored.live, row, key=lambda one: one.ref)
            stored.edition = next(self._numbers)
        self._push(stored, change.push)
        if change.load is not None:
            self._load(stored, change.load)
        if change.sweep:
            stored.cells = {name: cell for name, cell in stored.cells.items() if not name.startswith(change.sweep)}
        if change.touch:
            self._touch(stored, None if change.load is None else change.load.created)
        for name, value in change.put.items():
            if value is None:
                stored.cells.pop(name, None)
            else:
                stored.cells[name] = (value, stored.epoch)
        for name, one in change.add.items():
            stored.cells[name] = (sum_value(value_at(stored.cell(name)), one), stored.epoch)
        if change.labels is not None:
            stored.labels = dict(change.labels)
        if self.ttl_s is not None:
            self._set_expiry(stored, self.ttl_s, change)
        return stored.mark()

    def _set_expiry(self, stored: Stored, ttl_s: float, change: KeyUpdate) -> None:
        now = time.time()
        if change.touch or stored.expires is None:  # a lease on a session without any write must end as well
            stored.expires = now + ttl_s
        if change.hold_s:
            stored.held_until = max(stored.held_until, now + change.hold_s)

    def _push(self, stored: Stored, rows: Sequence[tuple[bytes, Tag | None]]) -> None:
        new = [Row(next(self._numbers), data, tag) for data, tag in rows]
        stored.live.extend(new)
        now = self._wall()
        self._written_at.update({row.ref: now for row in new})

    def _load(self, stored: Stored, load: Load) -> None:
        new = [Row(next(self._numbers), data, tag) for data, tag in load.live]
        stored.live.extend(new)
        times = zip(new, load.times, strict=True)
        self._written_at.update({row.ref: at for row, at in times if at is not None})
        for box, rows in load.boxes.items():
            stored.boxes[box] = [Row(next(self._numbers), data, tag) for data, tag in rows]

    def _arrange(self, stored: Stored, arrange: Arrange, arranged: tuple[list[Row], list[Row]]) -> None:
        live, kept = arranged
        stored.edition = next(self._numbers)
        now, gone = self._wall(), {row.ref for row in stored.live}
        stored.boxes[0] = []
        for row in live:
            moved = row._replace(ref=next(self._numbers))
            self._written_at[moved.ref] = self._written_at.get(row.ref, now)
            stored.boxes[0].append(moved)
        if arrange.box:
            stored.boxes[arrange.box] = kept
            gone -= {row.ref for row in kept}  # it may be restored
        for box in arrange.forget:
            gone |= {row.ref for row in stored.boxes.pop(box, [])}
        for ref in gone:
            self._written_at.pop(ref, None)

    def _forget_times(self, stored: Stored | None) -> None:
        for rows in () if stored is None else stored.boxes.values():
            for row in rows:
                self._written_at.pop(row.ref, None)

    def _wall(self) -> float:
        """Return the wall-clock time of the present change. A subclass that replays old changes overrides the clock."""
        return time.time()

    def _touch(self, stored: Stored, created: float | None = None) -> None:
        now = self._wall()
        if not stored.epoch:
            stored.epoch, stored.created = str(next(self._numbers)), now if created is None else min(created, now)
            # What was put since the last incarnation ended (by a fork of nothing but counts) belongs to this one.
            stored.cells = {name: (value, epoch or stored.epoch) for name, (value, epoch) in stored.cells.items()}
        # A clock that went back must not make a change look older than the one before it (A16).
        stored.updated = now if stored.updated is None else max(now, stored.updated + TICK_S)
        stored.change = next(self._numbers)

    # --- names -------------------------------------------------------------------------------------------------------

    def _find(self, name: Name) -> Stored | None:
        """Return the unexpired contents of a name."""
        stored = self._names.get(name)
        if stored is None or stored.expires is None:
            return stored
        now = time.time()
        if now <= stored.expires:
            return stored
        if now > stored.held_until:
            self._forget_times(self._names.pop(name))
            return None
        # A lease keeps the expired contents' cells. They are marked as expired, also those that a clear has left or
        # put, and those put before there was an incarnation (a lease, for which that does not matter).
        if stored.epoch:
            self._empty(stored, stored.cells)
        stored.cells = {cell: (value, EXPIRED) for cell, (value, _) in stored.cells.items()}
        stored.expires = stored.held_until
        return stored

    def _empty(self, stored: Stored, kept: Mapping[str, tuple[bytes, str]]) -> None:
        """Remove everything but the given cells, which then belong to no incarnation."""
        # What was written while there was no incarnation must not look as if it belonged to the next one.
        stored.cells = {name: (value, epoch or "-") for name, (value, epoch) in kept.items()}
        self._forget_times(stored)
        stored.boxes, stored.edition, stored.epoch = {0: []}, next(self._numbers), ""
        stored.created = stored.updated = None
        stored.labels = {}

    def _get_or_create(self, name: Name) -> Stored:
        stored = self._find(name)
        if stored is None:
            stored = self._names[name] = Stored(next(self._numbers))
        return stored

    def _all(self, kind: Kind) -> list[tuple[Name, Stored]]:
        names = [name for name in self._names if name.kind == kind]
        return [(name, stored) for name in names if (stored := self._find(name)) is not None]


def _read(rows: list[Row], wanted: Rows) -> Sequence[Row]:
    if wanted.after is not None:
        start = bisect_right(rows, wanted.after, key=lambda row: row.ref)
        return rows[start:] if wanted.limit is None else rows[start : start + wanted.limit]
    end = len(rows) if wanted.before is None else bisect_right(rows, wanted.before - 1, key=lambda row: row.ref)
    start = 0 if wanted.limit is None or wanted.writer is not None else max(0, end - wanted.limit)
    return of_writer(rows[start:end], wanted)


# --- os.fork ---------------------------------------------------------------------------------------------------------

# A child of os.fork gets a copy of every store. It must not get one that another thread was half-way through changing,
# nor a lock whose owner does not exist there: so forking waits for each store's lock and both sides give it back.
_stores: WeakSet[MemoryStore] = WeakSet()
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
