"""Reads of the storage port in SQL, with a cache of the known state.

What many looks ask for is read at once, with as few statements as one needs: they are what a turn costs. What was read
or written stays known while there is no other writer: until the transaction ends, and in the next one if no other
connection has committed in between.

A ref is a row's id. Ids are never used again, by any program, so the first and the newest tell whether a history moved,
with nothing counted: other programs only add behind, take from the end, prune the front or remove all. What only
standfast does, taking a row out of the middle or putting one back, moves a session's *edition*, which belongs to the
mark too (B2, B10).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from standfast._src.sessions.backends.sqlite.rows import RowsOf, all_bytes, as_rows
from standfast._src.sessions.backends.sqlite.statements import (
    AFTER,
    AT_ONCE_MAX,
    LATEST,
    ROW_COLUMNS,
    WHOLE,
    Statements,
)
from standfast._src.sessions.backends.sqlite.values import BEYOND, as_bytes, as_seconds, as_text, labels_in
from standfast._src.sessions.storage import Ask, Cell, Kind, Name, ReadAnswer, ReadRequest, Row, Rows

T = TypeVar("T")

NO_EPOCH = b""
"""The incarnation of a name that nothing of ours was written to: it has no row, or only another program's."""

_Stored = tuple[bytes, bytes]  # a cell: the epoch it was written in, and its value

KNOWN_BYTES_MAX = 1 << 20
# What a connection keeps in mind between its transactions, about: the names and cells of some thousand conversations.

_ENTRY_BYTES = 512


class State:
    """Cached state of a name within a transaction."""

    __slots__ = (
        "before_newest", "cells", "created", "edition", "epoch", "first", "id", "labels", "made", "mark_ends",
        "new_labels", "newest", "owner", "taken", "updated",
    )  # fmt: skip

    def __init__(self, name: Name, row: Sequence[Any]) -> None:
        self.id = name[1]
        self.owner = name[0][0] + name[1]
        _, self.created, updated, self.labels, epoch, edition, first, newest = row
        self.updated: bytes | None = None if updated is None else as_bytes(updated)
        self.epoch: bytes = (epoch if type(epoch) is bytes else as_bytes(epoch)) if epoch else NO_EPOCH
        self.edition, self.first, self.newest = edition or 0, first or 0, newest or 0
        self.cells: dict[str, _Stored | None] = {}
        self.made: str | None = None  # when it was made, if not now: to be written with its next touch
        self.new_labels: str | None = None  # to be written with its next touch
        self.before_newest: tuple[int, int] | None = (
            None  # the newest row and the one before it (0: none), if looked at
        )
        self.taken: tuple[int, tuple[int, int, int]] | None = None  # the row that was dropped last, and the ends then
        self.mark_ends = (0, 0, "0.", ".0")  # first and edition, as they stand in a mark: they change seldom

    @property
    def ends(self) -> tuple[int, int, int]:
        """First and last id of the live rows, and the edition of their middle."""
        return self.first, self.newest, self.edition

    @property
    def mark(self) -> str:
        """Mark of the end of the live rows."""
        if not self.newest:
            return ""
        first, edition, begin, end = self.mark_ends
        if first != self.first or edition != self.edition:
            first, edition = self.first, self.edition
            begin, end = f"{first}.", f".{edition}"
            self.mark_ends = (first, edition, begin, end)
        return f"{begin}{self.newest}{end}"


class ReadQueries:
    """Reads on a connection, inside the caller's transaction."""

    def __init__(self, db: sqlite3.Connection, sql: Statements) -> None:
        self.db, self._sql = db, sql
        self.tables = sql.tables
        self._beside = sql.tables.beside
        self._states: dict[Name, State] = {}
        self._now = time.time()
        self._doubtful: set[Name] = set()
        self._known_bytes = 0
        self._foreseen: Sequence[Ask] = ()

    def again(self) -> None:
        """Begin a new transaction with the state known after the last."""
        self._now = time.time()
        if self._known_bytes > KNOWN_BYTES_MAX:
            self._states.clear()
            self._known_bytes = 0
        for name in self._doubtful:
            self._states.pop(name, None)
        self._doubtful.clear()

    def foresee(self, questions: Sequence[Ask]) -> None:
        """Announce the next questions: the first unknown name or cell is then read together with all of theirs."""
        self._foreseen = questions

    def flush(self) -> None:
        """Write the postponed changes. A reader has none."""

    def look(self, look: ReadRequest) -> ReadAnswer:
        """Read every row, cell and mark of a request."""
        if look.only_data:
            self.flush()
            return ReadAnswer(data=self._data(look.name, look.rows[0]))
        state = self._states.get(look.name) or self._load(look.name)
        cells = {}
        for name in look.cells:
            if name not in state.cells:
                self._load_cells(state, look.cells)
            stored = state.cells[name]
            if stored is not None:
                cells[name] = Cell(stored[1], stored[0] == state.epoch)
        if look.prefixes:
            self.flush()
            for prefix in look.prefixes:
                if self._beside is not None:
                    cells |= self._beside.cells(self.db, look.name.id, prefix)
                for found, epoch, value in self.db.execute(self._sql.cells_between, (state.owner, *between(prefix))):
                    cells[as_text(found)] = Cell(as_bytes(value), epoch == state.epoch)
        if not look.rows and not look.times and look.upto is None and not look.count:
            return ReadAnswer(mark=state.mark if look.mark else "", now=self._now, cells=cells)
        self.flush()
        made = look.times and state.created is not None
        return ReadAnswer(
            mark=state.mark,
            now=self._now,
            epoch=as_text(state.epoch),
            created=as_seconds(state.created) if made else None,
            updated=as_seconds(state.updated) if made else None,
            labels=labels_in(state.labels) if look.times and state.labels else {},
            cells=cells,
            rows=tuple([self._rows(look.name, wanted) for wanted in look.rows]),
            upto=None if look.upto is None else self._place_of(look.name.id, state, look.upto),
            count=self.db.execute(self._sql.count_rows, (look.name.id,)).fetchone()[0] if look.count else 0,
            times=tuple([self._times(look.name, wanted) if wanted.times else () for wanted in look.rows]),
        )

    def _times(self, name: Name, wanted: Rows) -> list[float | None]:
        """Return the time of writing of each row; in whole seconds, as the SDK writes."""
        if wanted.box or wanted.writer is not None or name.kind != "session":
            return []
        return [as_seconds(at) or None for (at,) in self._read("created_at", name.id, wanted)]

    def _data(self, name: Name, wanted: Rows) -> Sequence[bytes]:
        if wanted.box or name.kind != "session":
            return [row.data for row in self._rows(name, wanted)]
        return all_bytes([one for (one,) in self._read("message_data", name.id, wanted)])

    def _rows(self, name: Name, wanted: Rows) -> Sequence[Row]:
        if name.kind != "session":
            return []
        session_id, writer = name.id, wanted.writer
        if wanted.box:
            before, limit = _bounds(wanted)
            values = (session_id, wanted.box, before, writer, writer, limit)
            return as_rows(self.db.execute(self._sql.box_rows, values).fetchall()[::-1])
        if writer is not None:
            columns = "id, message_data, coalesce(standfast_ordinal, 0), coalesce(standfast_replaces, 0)"
            return RowsOf.read(writer, self._read(columns, session_id, wanted))
        if not wanted.tags:
            return RowsOf.read(None, self._read("id, message_data", session_id, wanted))
        if wanted.limit == 1 and wanted.before is None and wanted.after is None:
            return self._newest_row(session_id, self._states[name])
        return as_rows(self._read(f"id, {ROW_COLUMNS}", session_id, wanted))

    def _newest_row(self, session_id: str, state: State) -> Sequence[Row]:
        """Return the newest live row, and remember its predecessor: a caller that reads a single
        row is about to pop.
        """
        found = self.db.execute(self._sql.newest_row, (session_id,)).fetchone()
        if found is None:
            return []
        state.before_newest = (found[0], found[5] or 0)
        return as_rows((found[:5],))

    def _read(self, columns: str, session_id: str, wanted: Rows) -> Iterable[tuple[Any, ...]]:
        """Read columns of live rows, oldest first; a long result lazily, each row used before the next is read."""
        whose = (session_id,) if wanted.writer is None else (session_id, wanted.writer)
        of_writer = wanted.writer is not None
        if wanted.after is not None:
            bounds = (wanted.after, _bounds(wanted)[1])
            return self.db.execute(self._sql.reading(columns, of_writer, AFTER), (*whose, *bounds))
        if wanted.limit is None and wanted.before is None:
            return self.db.execute(self._sql.reading(columns, of_writer, WHOLE), whose)
        statement = self._sql.reading(columns, of_writer, LATEST)
        return self.db.execute(statement, (*whose, *_bounds(wanted))).fetchall()[::-1]

    def _place_of(self, session_id: str, state: State, mark: str) -> int | None:
        """Return the id of the last row up to a mark; None if anything up to there was removed.

        Only the ends of a history can disappear without another edition, so a front whose first row and whose last are
        still there is untouched.
        """
        if not mark:
            return 0
        try:
            first, newest, edition = map(int, mark.split("."))
        except ValueError:
            return None
        if (first, edition) != (state.first, state.edition) or newest > state.newest:
            return None
        self.flush()
        if newest == state.newest or self.db.execute(self._sql.row_here, (newest, session_id)).fetchone():
            return newest
        return None

    def _load(self, name: Name) -> State:
        """Load and return the state of a name, together with the states of all announced names."""
        wanted: dict[Name, None] = {name: None}
        for asked in self._foreseen:
            if type(asked) is ReadRequest:
                wanted[asked.name] = None
            elif type(asked) is list:
                wanted |= dict.fromkeys([change.name for change in asked])
        missing = [one for one in wanted if one not in self._states]
        for kind in {one.kind: None for one in missing}:
            some = [one for one in missing if one.kind == kind]
            for start in range(0, len(some), AT_ONCE_MAX):
                self._load_some(kind, some[start : start + AT_ONCE_MAX])
        return self._states[name]

    def _load_some(self, kind: Kind, some: list[Name]) -> None:
        ids = _pad_to_power_of_two([name[1] for name in some])
        for row in self.db.execute(self._sql.states[kind](len(ids)), ids).fetchall():
            if row[0] < len(some):
                name = some[row[0]]
                self._states[name] = State(name, row)
        self._known_bytes += len(some) * _ENTRY_BYTES

    def _load_cells(self, state: State, names: Iterable[str]) -> None:
        """Load the named cells, together with the cells of all announced questions."""
        wanted = [(state, names)]
        for asked in self._foreseen:
            if type(asked) is ReadRequest and (known := self._states.get(asked.name)) is not None:
                wanted.append((known, asked.cells))
        self._foreseen = ()
        missing = []
        for of, names in wanted:
            for name in names:
                if name not in of.cells:
                    of.cells[name] = None
                    missing.append((of, name))
        self._known_bytes += len(missing) * _ENTRY_BYTES
        for start in range(0, len(missing), AT_ONCE_MAX):
            some = missing[start : start + AT_ONCE_MAX]
            pairs: list[str] = [value for of, name in _pad_to_power_of_two(some) for value in (of.owner, name)]
            for place, epoch, value in self.db.execute(self._sql.cells_of(len(pairs) // 2), pairs).fetchall():
                if place < len(some):
                    of, name = some[place]
                    data = value if type(value) is bytes else as_bytes(value)
                    of.cells[name] = (epoch, data)
                    self._known_bytes += len(data)


def is_one_statement(look: ReadRequest) -> bool:
    """Return whether a single statement answers a look."""
    return look.only_data or not (look.cells or look.prefixes or look.rows or look.upto or look.count)


def between(prefix: str) -> tuple[str, str]:
    """Return the first name with a prefix, and the first name behind them all. SQLite compares UTF-8 bytes."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _bounds(wanted: Rows) -> tuple[int, int]:
    before = BEYOND if wanted.before is None else wanted.before
    return before, -1 if wanted.limit is None else min(wanted.limit, BEYOND)


def _pad_to_power_of_two(some: list[T]) -> list[T]:
    """Pad a list to the next power of two with its first entry, so that few different statements are prepared."""
    size = 1 << (len(some) - 1).bit_length()
    return some + some[:1] * (size - len(some))
