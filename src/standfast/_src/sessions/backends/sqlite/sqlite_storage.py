"""Reads and changes of the storage port within a transaction, in SQL.

The steps of a group are done one after the other, and written with as few statements as one step needs.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from standfast._src.sessions.backends.sqlite import listing
from standfast._src.sessions.backends.sqlite.read_queries import NO_EPOCH, ReadQueries, State, between
from standfast._src.sessions.backends.sqlite.rows import Part, insert, insert_loaded, part_of, write_all
from standfast._src.sessions.backends.sqlite.schema import TablesBeside
from standfast._src.sessions.backends.sqlite.statements import Statements, chunks, number_values
from standfast._src.sessions.backends.sqlite.values import BEYOND, after_text, labels_text, now_text, time_text
from standfast._src.sessions.rules.append import Append, plain_append
from standfast._src.sessions.rules.history import WRITER, Add
from standfast._src.sessions.storage import (
    Arrange,
    Cell,
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Name,
    Range,
    Refused,
    Row,
)
from standfast._src.sessions.storage_helpers import is_above, sum_value

NEWEST_MAX = 256
# How many of the names that changed last are kept in mind, in their order: about as many as a group has.


class Transaction(ReadQueries):
    """Implementation of `Store` for the duration of a transaction, begun and ended by the caller.

    It may be used again in a later transaction of its connection (`again`), if the one before was committed and no
    other connection has committed since.

    Rows to add, cells to put and names to touch are written together: at the end of each step, or, while `together`,
    not before something must be read that they are part of. Ids of rows that are not written yet are known, because
    there is no other writer.
    """

    loses_answers = False

    def __init__(self, db: sqlite3.Connection, sql: Statements) -> None:
        super().__init__(db, sql)
        self._changed: dict[Kind, int] = {}  # the newest change number of each kind, once it was asked for
        self._newest: dict[Kind, list[str]] = {}  # whose changes were the last ones, the very last at the end
        self._seen = 0  # the newest row id there is
        self._last_id = 0  # the newest row id there ever was; 0: not known
        self._first_id = 0  # that of the first row that is not written yet
        self._is_together = self._is_unwritten = False
        self._parts: list[Part] = []
        self._cells: dict[tuple[State, str], None] = {}
        self._touched: dict[Kind, dict[State, None]] = {"session": {}, "run": {}}  # the last one changed last
        self.step_count = 0

    # --- changing ------------------------------------------------------------------------------

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Do the whole step if all conditions hold."""
        for place, change in enumerate(step):
            state = self._states.get(change.name) or self._load(change.name)
            is_doubted = change.prefix is not None or (change.mark is not None and change.mark != state.mark)
            for cell, value in change.cells.items():
                stored = state.cells.get(cell)
                if stored is None or stored[1] is not value:  # else it is the very one that was looked at
                    is_doubted = True
            if is_doubted or change.add:
                refusal = self._refusal(place, change, state)
                if refusal is not None:
                    return refusal
        if len(step) == 1:  # nearly always
            marks: tuple[str, ...] = (self._do(change, state).mark,)
        else:
            for change in step:
                self._do(change, self._states[change.name])
            marks = tuple([self._states[change.name].mark for change in step])
        self.step_count += 1
        if self._is_unwritten and not self._is_together:
            self.flush()
        return Done(marks)

    # What nearly every turn does, without a look, a step and their answers: these were a third of what the thread that
    # writes does for a turn. Neither does anything where a plan must be carried out, and says so.

    def append(self, wanted: Append) -> str | None:
        """Do a plain append (`plain_append`) and return the mark of the live rows; None if a plan is needed."""
        batch, state = wanted.batch, self._states.get(wanted.name)
        cell = WRITER + batch.writer
        if state is None or cell not in state.cells:
            return None
        stored = state.cells[cell]
        put = plain_append(batch) if stored is None else plain_append(batch, stored[1], stored[0] == state.epoch)
        if put is None or not self._is_plain(state):
            return None
        self._add(state, batch.encoded, batch.writer, batch.start, put)
        return state.mark

    def add(self, wanted: Add) -> bool:
        """Do an `add` of rows without a writer; return whether done."""
        state = self._states.get(wanted.name)
        if state is None or wanted.lane is not None or not self._is_plain(state):
            return False
        self._add(state, wanted.encoded, "", 0, {})
        return True

    def _is_plain(self, state: State) -> bool:
        """Return whether adding to a session takes nothing but rows, cells and a touch."""
        return bool(state.epoch and self._changed) and self._beside is None

    def _add(self, state: State, data: Sequence[bytes], writer: str, start: int, put: Mapping[str, bytes]) -> None:
        self._touch_later("session", state)
        self._push(state, (state.id, data, writer, start, None))
        for cell, value in put.items():
            self._put_later(state, cell, value)
        self.step_count += 1
        if not self._is_together:
            self.flush()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Combine the writes of several steps, and write them at the end."""
        self._is_together = True
        try:
            yield
            self.flush()
        finally:
            self._is_together, self._foreseen = False, ()

    def flush(self) -> None:
        """Write the postponed changes."""
        if not self._is_unwritten:
            return
        self._is_unwritten = False
        if self._parts:
            if insert(self.db, self._sql, self._parts) != self._first_id:
                raise sqlite3.IntegrityError("new rows did not get the ids that follow the last one")
            self._parts.clear()
        if self._cells:
            values: list[str | bytes] = []
            for state, name in self._cells:
                epoch, value = state.cells[name] or (NO_EPOCH, b"")
                values += (state.owner, name, epoch.decode(), value)
            self._cells.clear()
            write_all(self.db, self._sql.put_cells, 4, values)
        for kind, touched in self._touched.items():
            if touched:
                self._touch(kind, touched)
                touched.clear()

    def _refusal(self, place: int, change: KeyUpdate, state: State) -> Refused | None:
        why = ""
        for name, value in change.cells.items():
            if name not in state.cells:
                self._load_cells(state, change.cells)
            stored = state.cells[name]
            if (None if stored is None else stored[1]) != value:
                why = "cell"
        if change.add:
            self._load_cells(state, change.add)
            if any(is_above(_value_of(state.cells[name]), one) for name, one in change.add.items()):
                why = "cell"
        if change.mark is not None and change.mark != state.mark:
            why = why or "mark"
        if change.prefix is not None and self._place_of(change.name.id, state, change.prefix) is None:
            why = why or "mark"
        if not why:
            return None
        named = (*change.cells, *change.add)
        cells = {name: Cell(found[1], found[0] == state.epoch) for name in named if (found := state.cells[name])}
        return Refused(place, why, state.mark, cells)  # type: ignore[arg-type]  # one of the two words

    def _do(self, change: KeyUpdate, state: State) -> State:
        """Apply a change: moves of rows at once, the rest when flushed. Return the name's resulting state."""
        name, push, is_touched = change.name, change.push, change.touch
        is_moved = change.drop or change.arrange or change.back or change.load
        if is_moved or change.sweep or change.remove or change.wipe is not None:
            if self._is_unwritten:
                self.flush()
            if change.remove or change.wipe is not None:
                self._wipe(change, state)
                state = self._states[name]
        if not self._changed and (is_touched or push or is_moved):
            self._put_in_order()
        if is_touched:
            if not state.epoch:
                self._begin(name, state)
            self._touch_later(name[0], state)
        if change.labels is not None:
            self._label(change, state)
        if is_moved:
            self._move(change, state)
        if push:
            self._push(state, part_of(name[1], push))
        for prefix in change.sweep:
            self.db.execute(self._sql.delete_cells_between, (state.owner, *between(prefix)))
            state.cells.clear()
        for cell, value in change.put.items():
            if value is None:
                self._take(state, cell)
            else:
                self._put_later(state, cell, value)
        for cell, one in change.add.items():
            self._put_later(state, cell, sum_value(_value_of(state.cells[cell]), one))
        if not is_touched and (push or change.arrange):  # rows that a listing would take for another program's
            self.flush()
            self.db.execute(self._sql.see, (self._seen,))
        if self._beside is not None:
            self._follow(change, self._beside)
        return state

    def _touch_later(self, kind: Kind, state: State) -> None:
        """Postpone a name's touch; the name goes behind all names touched before."""
        self._is_unwritten = True
        touched = self._touched[kind]
        touched.pop(state, None)
        touched[state] = None

    def _put_later(self, state: State, cell: str, value: bytes) -> None:
        """Put a cell when cells are written."""
        self._cells[state, cell], self._is_unwritten = None, True
        state.cells[cell] = (state.epoch, value)
        self._known_bytes += len(value)

    def _push(self, state: State, part: Part) -> None:
        """Add rows behind the live rows, now or when flushed: their future ids are known."""
        first = self._last_id + 1
        if first == 1:  # which ids come next is known once some were given
            first = insert(self.db, self._sql, [part])
        else:
            if not self._parts:
                self._first_id, self._is_unwritten = first, True
            self._parts.append(part)
        if not state.first:
            state.first = first
        state.newest = self._seen = self._last_id = first + len(part[1]) - 1

    def _follow(self, change: KeyUpdate, beside: TablesBeside) -> None:
        """Update another program's tables about messages."""
        self.flush()
        if change.name.kind == "session":
            if change.remove or change.wipe is not None:
                beside.forget(self.db, change.name.id)
            if change.push or change.drop or change.arrange is not None or change.back or change.load is not None:
                beside.follow(self.db, self._sql.tables, change.name.id)

    def _move(self, change: KeyUpdate, state: State) -> None:
        """Apply a change to stored rows."""
        session_id, self._last_id = change.name.id, 0
        before, state.before_newest = state.before_newest, None
        is_only_dropped = change.arrange is None and not change.back and change.load is None
        if not is_only_dropped or state.created is None:
            self._doubtful.add(change.name)  # too rare to be worth knowing the resulting state
        if change.drop:
            self._drop(session_id, state, change.drop, before)
        if is_only_dropped:
            return
        if change.arrange is not None:
            self._arrange(session_id, state, change.arrange)
        is_undone = len(change.back) == 1 and state.taken == (change.back[0].ref, state.ends)
        for row in change.back:
            self._put_back(session_id, state, row)
        if change.back and not is_undone:
            # An id is there again, and another program may have taken rows that stood before it.
            self._next_edition(session_id, state)
        if change.load is not None and change.load.created is not None:
            state.made = time_text(min(change.load.created, self._now))
            self._doubtful.add(change.name)
        if change.load is not None and change.name.kind == "session":
            insert_loaded(self.db, self._sql, session_id, change.load)
            self._read_ends(session_id, state)
            self._seen = max(self._seen, state.newest)

    def _drop(self, session_id: str, state: State, refs: Sequence[int], before: tuple[int, int] | None) -> None:
        """Remove live rows; `before`: as `State.before_newest` was."""
        for ref in refs:
            self.db.execute(self._sql.delete_row, (ref, session_id))
        lowest = min(refs)
        if before is not None and len(refs) == 1 and lowest == state.newest == before[0]:
            state.newest = before[1]
            state.first = state.first if state.newest else 0
        else:
            self._read_ends(session_id, state, has_first=state.first < lowest)
        if state.newest > lowest:
            self._next_edition(session_id, state)
        state.taken = (lowest, state.ends) if len(refs) == 1 else None

    def _next_edition(self, session_id: str, state: State) -> None:
        state.edition += 1
        self.db.execute(self._sql.set_edition, (session_id, state.edition))

    def _wipe(self, change: KeyUpdate, state: State) -> None:
        db, sql, name, owner = self.db, self._sql, change.name, state.owner
        if name.kind == "session":
            db.execute(sql.delete_rows, (name.id, 0, BEYOND))
            db.execute(sql.delete_boxes, (name.id,))
        db.execute(sql.delete_name(name.kind), (name.id,))
        self._newest.pop(name.kind, None)
        if change.remove or not change.wipe:
            db.execute(sql.delete_cells, (owner,))
        else:
            kept = [value for prefix in change.wipe for value in (prefix, prefix)]
            db.execute(sql.delete_cells_but(len(change.wipe)), (owner, *kept))
            # What was written while the name had no incarnation must not look as if it belonged to the next one.
            db.execute(sql.rename_epoch, ("-", owner, ""))
        self._states[name] = State(name, (0, None, None, None, None, 0, 0, 0))
        self._doubtful.add(name)

    def _read_ends(self, session_id: str, state: State, *, has_first: bool = False) -> None:
        """Read the ends of the live rows; `has_first`: the first row is unchanged."""
        if has_first:
            state.newest = self.db.execute(self._sql.newest_of, (session_id,)).fetchone()[0]
        else:
            first, newest = self.db.execute(self._sql.ends, (session_id, session_id)).fetchone()
            state.first, state.newest = first or 0, newest or 0

    def _arrange(self, session_id: str, state: State, arrange: Arrange) -> None:
        """Append copies of all rows that stay live, keep the rows to archive, then remove the previous live rows.

        Everything gets a new id: the SDK reads by id. The database copies by itself; rows pass through Python only
        where they are new.
        """
        db, sql, old = self.db, self._sql, state.newest
        for part in arrange.live:
            if isinstance(part, Range):
                statement = sql.box_to_live if part.box else sql.live_to_live
                db.execute(statement, self._range(session_id, part))
            else:
                insert(self.db, self._sql, [part_of(session_id, part)])
        if arrange.box:
            db.execute(sql.delete_box, (session_id, arrange.box))
        for part in arrange.keep:
            statement = sql.box_to_box if part.box else sql.live_to_box
            (end,) = db.execute(sql.box_end, (session_id, arrange.box)).fetchone()
            db.execute(statement, {**self._range(session_id, part), "7": arrange.box, "8": end or 0})
        db.execute(sql.delete_rows, (session_id, 0, old))
        db.executemany(sql.delete_box, [(session_id, box) for box in arrange.forget])
        self._read_ends(session_id, state)
        self._seen = max(self._seen, state.newest)

    def _range(self, session_id: str, part: Range) -> dict[str, Any]:
        """Return the values of a copying statement; live rows only up to the newest row before the step."""
        source = session_id if part.of is None else part.of.id
        upto = BEYOND if part.upto is None else part.upto
        if not part.box:
            owner = Name("session", source)
            self._load(owner)
            upto = min(upto, self._states[owner].newest)
        return number_values(source, part.box, part.after or 0, upto, session_id, part.replaces)

    def _put_back(self, session_id: str, state: State, row: Row) -> None:
        """Insert a row under its own id; if newer rows exist, insert the row and copies of them under new ids."""
        db, sql = self.db, self._sql
        free = state.newest < row.ref
        writer, ordinal, replaces = (None, None, None) if row.tag is None else row.tag
        values = (row.ref if free else None, session_id, row.data, writer, ordinal, replaces or None)
        db.execute(sql.insert_bytes, values)
        if not free:
            old = state.newest
            db.execute(sql.live_to_live, number_values(session_id, 0, row.ref, old, session_id, None))
            db.execute(sql.delete_rows, (session_id, row.ref, old))
        self._read_ends(session_id, state)
        if state.newest > self._seen:  # without a place of its own in the order: putting back is not a change
            self._seen = state.newest
            db.execute(sql.see, (self._seen,))

    def _begin(self, name: Name, state: State) -> None:
        """Begin an incarnation: cells put since the last incarnation belong to the new one;
        archived rows are deleted.
        """
        epoch = f"{now_text(self._now)}-{os.urandom(4).hex()}"
        state.epoch = epoch.encode()
        self.db.execute(self._sql.rename_epoch, (epoch, state.owner, ""))
        if name.kind == "session":
            self.db.execute(self._sql.delete_boxes, (name.id,))
        for cell, stored in state.cells.items():
            if stored is not None and stored[0] == NO_EPOCH:
                state.cells[cell] = (state.epoch, stored[1])

    def _take(self, state: State, cell: str) -> None:
        """Remove a cell."""
        self._cells.pop((state, cell), None)
        self.db.execute(self._sql.delete_cell, (state.owner, cell))
        state.cells[cell] = None

    def _label(self, change: KeyUpdate, state: State) -> None:
        text = labels_text(change.labels or {})
        if change.touch:
            state.new_labels = text
            return
        self.flush()
        self.db.execute(self._sql.set_labels(change.name.kind), (text, change.name.id))
        self._doubtful.add(change.name)

    def _touch(self, kind: Kind, touched: Collection[State]) -> None:
        """Advance the names' times and change numbers; the last name then leads the listing."""
        now = now_text(self._now)
        now_bytes = now.encode()
        ids, newest = [state.id for state in touched], self._newest.get(kind, [])
        if newest[-len(ids) :] == ids and self._stay_first(kind, touched, ids, now, now_bytes):
            return
        values: list[str | int | None] = []
        if kind not in self._changed:
            self._changed[kind] = self.db.execute(self._sql.newest_run).fetchone()[0] or 0
        number, seen = self._changed[kind], (self._seen,) if kind == "session" else ()
        for state in touched:
            updated, state.updated, before = now, now_bytes, state.updated
            if before is not None and before >= now_bytes:
                updated = after_text(before)
                state.updated = updated.encode()
            if state.created is None:
                state.created = state.updated
            text = state.new_labels
            if text is not None:
                state.labels, state.new_labels = text.encode(), None
            number += 1
            # Of a name that is there, the time when it was made stays as it is: the statement says so.
            values += (state.id, state.made or updated, updated, state.epoch.decode(), number, text, *seen)
            state.made = None
        self._changed[kind] = number
        again = set(ids)
        self._newest[kind] = [one for one in newest[-NEWEST_MAX:] if one not in again] + ids
        write_all(self.db, self._sql.touch[kind], 6 + len(seen), values)

    def _stay_first(
        self, kind: Kind, touched: Collection[State], ids: Sequence[str], now: str, now_bytes: bytes
    ) -> bool:
        """Advance names that already lead the listing in the same order; return False, with nothing done, if more must
        change.

        Their numbers are left alone, and with them every index over those: half of what a touch costs. One session
        that is written again and again is such a case, and so are many that take turns.
        """
        updated = now
        for state in touched:
            text, before = state.new_labels, state.updated
            if text is not None and text.encode() != state.labels:
                return False
            if before is not None and before >= now_bytes:
                if len(ids) > 1:
                    return False  # each has a moment of its own
                updated = after_text(before)
                now_bytes = updated.encode()
        for state in touched:
            state.updated = now_bytes
            state.made = state.new_labels = None
        said = (updated, self._seen) if kind == "session" else (updated,)
        statement = self._sql.still_first[kind]
        if len(ids) == 1:
            self.db.execute(statement(1), (*said, ids[0]))
            return True
        for start, size in chunks(len(ids)):
            self.db.execute(statement(size), (*said, *ids[start : start + size]))
        return True

    # --- the order of changes ------------------------------------------------------------------------------

    def _put_in_order(self) -> None:
        """Number the writes of other programs since our last change, ahead of our next change."""
        changed, seen, self._seen = listing.order(self.db, self._sql)
        if self._seen > seen:
            self._newest.pop("session", None)
            for _, row_id in self.db.execute(self._sql.foreign, (seen,)).fetchall():
                changed += 1
                self.db.execute(self._sql.adopt, (changed, self._seen, row_id))
        self._changed["session"] = changed

    # --- listing ------------------------------------------------------------------------------

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Names of a kind, newest change first."""
        self.flush()
        return listing.page(self.db, self._sql, kind, after, limit, labels)

    def count(self, kind: Kind) -> int:
        """Count the names of a kind."""
        self.flush()
        return int(self.db.execute(self._sql.count(kind)).fetchone()[0])


def _value_of(stored: tuple[bytes, bytes] | None) -> bytes | None:
    """Return the value of a cell as it is kept in a `State`."""
    return None if stored is None else stored[1]
