"""Looking and changing, inside one transaction: what the port asks of a store, in SQL.

A `Transaction` answers many questions at once. Steps of different names that a group brings are done with as few
statements as one step needs, because statements are what a turn costs. What was read or written stays known while
nobody else writes: until the transaction ends, and in the next one if no other connection has committed in between.

A ref is a row's id. Ids are never used again, whoever writes, so the first and the newest tell whether a history moved,
with nothing counted: other programs only add behind, take from the end, prune the front or remove all. What only
standfast does, taking a row out of the middle or putting one back, moves a session's *edition*, which belongs to the
mark too (B2, B10).
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from standfast.backends.sqlite import listing, structure
from standfast.backends.sqlite.branches import SDK_USAGE
from standfast.backends.sqlite.rows import all_bytes, as_rows, insert, insert_loaded, rows_of, write_all
from standfast.backends.sqlite.statements import (
    AFTER,
    AT_ONCE_MAX,
    LATEST,
    ROW_COLUMNS,
    WHOLE,
    Statements,
    numbered,
)
from standfast.backends.sqlite.values import (
    BEYOND,
    after_text,
    as_bytes,
    as_seconds,
    labels_in,
    labels_text,
    now_text,
    time_text,
)
from standfast.sessions.port import (
    Arrange,
    Cell,
    Change,
    Done,
    Kind,
    Listed,
    Look,
    Name,
    Range,
    Refused,
    Row,
    Rows,
    Sight,
    Step,
    Tag,
)

T = TypeVar("T")

NO_EPOCH = b""
"""The incarnation of a name that nothing of ours was written to: it has no row, or only another program's."""

_Stored = tuple[bytes, bytes]  # a cell: the epoch it was written in, and its value

KNOWN_BYTES_MAX = 1 << 20
# What a connection keeps in mind between its transactions, about: the names and cells of some thousand conversations.

_ENTRY_BYTES = 512


class _State:
    """What is known of one name in this transaction."""

    __slots__ = ("cells", "created", "edition", "epoch", "first", "labels", "newest", "owner", "taken", "updated")

    def __init__(self, name: Name, row: Sequence[Any]) -> None:
        self.owner = name[0][0] + name[1]
        _, self.created, updated, self.labels, epoch, edition, first, newest = row
        self.updated: bytes | None = None if updated is None else as_bytes(updated)
        self.epoch: bytes = epoch or NO_EPOCH
        self.edition, self.first, self.newest = edition or 0, first or 0, newest or 0
        self.cells: dict[str, _Stored | None] = {}
        self.taken: tuple[int, str] | None = None  # the row that was dropped last, and the mark without it

    @property
    def mark(self) -> str:
        """Where its live rows end."""
        return f"{self.first}.{self.newest}.{self.edition}" if self.newest else ""


class Transaction:
    """A `Store` for as long as a transaction is open. Begun and ended by whoever makes one.

    It may be used again in a later transaction of its connection (`again`), if the one before was committed and nobody
    else has committed since.
    """

    loses_answers = False

    def __init__(self, db: sqlite3.Connection, sql: Statements) -> None:
        self.db, self._sql = db, sql
        self._is_structured = sql.tables.structure != "none"
        self._states: dict[Name, _State] = {}
        self._changed: int | None = None  # the newest change number of a session; None: not asked yet
        self._run_changed: int | None = None
        self._newest: dict[Kind, str] = {}  # whose change was the last one, where that is known
        self._seen = 0  # the newest row id there is
        self._now = time.time()
        self._doubtful: set[Name] = set()
        self._known_bytes = 0

    def again(self) -> None:
        """Begin another transaction with what is known from the last one."""
        self._now = time.time()
        if self._known_bytes > KNOWN_BYTES_MAX:
            self._states.clear()
            self._known_bytes = 0
        for name in self._doubtful:
            self._states.pop(name, None)
        self._doubtful.clear()

    # --- looking ------------------------------------------------------------------------------

    def look(self, look: Look) -> Sight:
        """Read all that is asked for."""
        if look.only_data:
            return Sight(data=self._data(look.name, look.rows[0]))
        if look.name not in self._states:
            self._load([look.name])
        state = self._states[look.name]
        if not state.cells.keys() >= set(look.cells):
            self._load_cells([(state, look.cells)])
        return self._sight(state, look)

    def look_all(self, looks: Sequence[Look]) -> list[Sight]:
        """Answer several looks, with few statements for all of them."""
        self._load([look.name for look in looks])
        states = [self._states[look.name] for look in looks]
        self._load_cells([(state, look.cells) for state, look in zip(states, looks, strict=True)])
        return [self._sight(state, look) for state, look in zip(states, looks, strict=True)]

    def _sight(self, state: _State, look: Look) -> Sight:
        cells = {}
        for name in look.cells:
            stored = state.cells[name]
            if stored is not None:
                cells[name] = Cell(stored[1], stored[0] == state.epoch)
        if look.prefixes:
            for prefix in look.prefixes:
                if prefix == SDK_USAGE and self._is_structured:
                    cells |= structure.usage_cells(self.db, look.name.id)
                for found, epoch, value in self.db.execute(self._sql.cells_between, (state.owner, *_between(prefix))):
                    cells[found.decode()] = Cell(value, epoch == state.epoch)
        if not look.rows and not look.times and look.upto is None and not look.count:
            return Sight(mark=state.mark if look.mark else "", now=self._now, cells=cells)
        if look.only_data:
            return Sight(data=self._data(look.name, look.rows[0]))
        made = look.times and state.created is not None
        return Sight(
            mark=state.mark,
            now=self._now,
            epoch=state.epoch.decode(),
            created=as_seconds(state.created) if made else None,
            updated=as_seconds(state.updated) if made else None,
            labels=labels_in(state.labels) if look.times and state.labels else {},
            cells=cells,
            rows=tuple([self._rows(look.name, wanted) for wanted in look.rows]),
            upto=None if look.upto is None else self._place_of(look.name.id, state, look.upto),
            count=self.db.execute(self._sql.count_rows, (look.name.id,)).fetchone()[0] if look.count else 0,
            times=tuple([self._times(look.name, wanted) for wanted in look.rows]) if _asks_times(look) else (),
        )

    def _times(self, name: Name, wanted: Rows) -> list[float | None]:
        """When each of those rows was written; the SDK writes whole seconds, and so do our rows."""
        if not wanted.times or wanted.box or wanted.writer is not None or name.kind != "session":
            return []
        return [as_seconds(at) or None for (at,) in self._read("created_at", name.id, wanted)]

    def _data(self, name: Name, wanted: Rows) -> Sequence[bytes]:
        if wanted.box or name.kind != "session":
            return [row.data for row in self._rows(name, wanted)]
        return all_bytes([one for (one,) in self._read("message_data", name.id, wanted)])

    def _rows(self, name: Name, wanted: Rows) -> list[Row]:
        if name.kind != "session":
            return []
        session_id, writer = name.id, wanted.writer
        if wanted.box:
            before, limit = _bounds(wanted)
            values = (session_id, wanted.box, before, writer, writer, limit)
            return as_rows(self.db.execute(self._sql.box_rows, values).fetchall()[::-1])
        if writer is not None:
            columns = "id, message_data, coalesce(standfast_ordinal, 0), coalesce(standfast_replaces, 0)"
            return rows_of(writer, self._read(columns, session_id, wanted))
        if not wanted.tags:
            return rows_of(None, self._read("id, message_data", session_id, wanted))
        return as_rows(self._read(f"id, {ROW_COLUMNS}", session_id, wanted))

    def _read(self, columns: str, session_id: str, wanted: Rows) -> Iterable[tuple[Any, ...]]:
        """Columns of live rows, oldest first; of many, one after the other: each is used before the next is read."""
        whose = (session_id,) if wanted.writer is None else (session_id, wanted.writer)
        of_writer = wanted.writer is not None
        if wanted.after is not None:
            bounds = (wanted.after, _bounds(wanted)[1])
            return self.db.execute(self._sql.reading(columns, of_writer, AFTER), (*whose, *bounds))
        if wanted.limit is None and wanted.before is None:
            return self.db.execute(self._sql.reading(columns, of_writer, WHOLE), whose)
        statement = self._sql.reading(columns, of_writer, LATEST)
        return self.db.execute(statement, (*whose, *_bounds(wanted))).fetchall()[::-1]

    def _place_of(self, session_id: str, state: _State, mark: str) -> int | None:
        """The id of the last row up to that mark; None if anything up to it has gone.

        Only the ends of a history can go away without another edition, so a front whose first row and whose last are
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
        if newest == state.newest or self.db.execute(self._sql.row_here, (newest, session_id)).fetchone():
            return newest
        return None

    def _load(self, names: Iterable[Name]) -> None:
        """See to it that these names are known."""
        missing = [name for name in names if name not in self._states]
        for kind in {name[0]: None for name in missing} if missing else ():
            some = [name for name in missing if name[0] == kind]
            for start in range(0, len(some), AT_ONCE_MAX):
                self._load_some(kind, some[start : start + AT_ONCE_MAX])

    def _load_some(self, kind: Kind, some: list[Name]) -> None:
        ids = _padded([name[1] for name in some])
        for row in self.db.execute(self._sql.states[kind](len(ids)), ids).fetchall():
            if row[0] < len(some):
                name = some[row[0]]
                self._states[name] = _State(name, row)
        self._known_bytes += len(some) * _ENTRY_BYTES

    def _load_cells(self, wanted: Iterable[tuple[_State, Iterable[str]]]) -> None:
        missing = []
        for state, names in wanted:
            for name in names:
                if name not in state.cells:
                    state.cells[name] = None
                    missing.append((state, name))
        self._known_bytes += len(missing) * _ENTRY_BYTES
        for start in range(0, len(missing), AT_ONCE_MAX):
            some = missing[start : start + AT_ONCE_MAX]
            pairs: list[str] = [value for state, name in _padded(some) for value in (state.owner, name)]
            for place, epoch, value in self.db.execute(self._sql.cells_of(len(pairs) // 2), pairs).fetchall():
                if place < len(some):
                    state, name = some[place]
                    state.cells[name] = (epoch, value)
                    self._known_bytes += len(value)

    # --- changing ------------------------------------------------------------------------------

    def commit(self, step: Step) -> Done | Refused:
        """Do the whole step if all conditions hold."""
        is_conditional = False
        for change in step:
            if change.name not in self._states:
                self._load([change.name])
            if change.cells or change.mark is not None or change.prefix is not None:
                is_conditional = True
        refusal = self._refusal(step) if is_conditional else None
        if refusal is not None:
            return refusal
        self._do(step)
        return self._done(step)

    def commit_all(self, steps: Sequence[Step]) -> list[Done | Refused]:
        """Do several steps that have no name in common, each whole or not at all."""
        self._load([change.name for step in steps for change in step])
        refusals = [self._refusal(step) for step in steps]
        self._do([change for step, refusal in zip(steps, refusals, strict=True) if refusal is None for change in step])
        return [refusal or self._done(step) for step, refusal in zip(steps, refusals, strict=True)]

    def _done(self, step: Step) -> Done:
        if len(step) == 1:  # nearly always
            return Done((self._states[step[0].name].mark,))
        return Done(tuple([self._states[change.name].mark for change in step]))

    def _refusal(self, step: Step) -> Refused | None:
        for place, change in enumerate(step):
            state, why = self._states[change.name], ""
            if change.cells:
                if not state.cells.keys() >= change.cells.keys():
                    self._load_cells([(state, change.cells)])
                for name, value in change.cells.items():
                    stored = state.cells[name]
                    if (None if stored is None else stored[1]) != value:
                        why = "cell"
            if change.mark is not None and change.mark != state.mark:
                why = why or "mark"
            if change.prefix is not None and self._place_of(change.name.id, state, change.prefix) is None:
                why = why or "mark"
            if why:
                cells = {
                    name: Cell(found[1], found[0] == state.epoch)
                    for name in change.cells
                    if (found := state.cells[name])
                }
                return Refused(place, why, state.mark, cells)  # type: ignore[arg-type]  # one of the two words
        return None

    def _do(self, changes: Sequence[Change]) -> None:
        """Do changes: what moves rows one by one, the rest together."""
        if len(changes) > 1 and len({change.name for change in changes}) < len(changes):
            for change in changes:  # a step changes one name twice: in its order
                self._do([change])
            return
        parts: list[tuple[str, Sequence[tuple[bytes, Tag]]]] = []
        pushed: list[_State] = []
        touched: list[tuple[Change, _State]] = []
        cells: list[str | bytes] = []
        is_unseen = False  # whether rows come that a listing would take for another program's
        for change in changes:
            if change.remove or change.wipe is not None:
                self._wipe(change)
            name, state = change.name, self._states[change.name]
            is_moved = bool(change.drop or change.arrange is not None or change.back or change.load is not None)
            if self._changed is None and (change.touch or change.push or is_moved):
                self._put_in_order()
            if change.touch:
                if state.epoch == NO_EPOCH:
                    self._begin(name, state)
                touched.append((change, state))
            elif change.labels is not None:
                self.db.execute(self._sql.set_labels(name.kind), (labels_text(change.labels), name.id))
                self._doubtful.add(name)
            if is_moved:
                self._move(change, state)
            if change.push:
                parts.append((name.id, change.push))
                pushed.append(state)
            if not change.touch and (change.push or change.arrange):
                is_unseen = True
            if change.sweep or change.put:
                self._put(change, state, cells)
        if parts:
            ref = insert(self.db, self._sql, parts)
            for state, (_, rows) in zip(pushed, parts, strict=True):
                state.first = state.first or ref
                ref += len(rows)
                state.newest = self._seen = ref - 1
        if cells:
            write_all(self.db, self._sql.put_cells, 4, cells)
        if touched:
            self._touch(touched)
        if is_unseen:
            self.db.execute(self._sql.see, (self._seen,))
        if self._is_structured:
            self._follow(changes)

    def _follow(self, changes: Sequence[Change]) -> None:
        """Bring what the SDK says of messages up to date with them."""
        for change in changes:
            if change.name.kind == "session":
                if change.remove or change.wipe is not None:
                    structure.forget(self.db, change.name.id)
                if change.push or change.drop or change.arrange is not None or change.back or change.load is not None:
                    structure.follow(self.db, self._sql.tables.messages, change.name.id)

    def _move(self, change: Change, state: _State) -> None:
        """Do what concerns rows that are there."""
        if change.arrange is not None or change.back or change.load is not None or state.created is None:
            self._doubtful.add(change.name)  # nothing is done so often that it pays to know what stands then
        session_id = change.name.id
        if change.drop:
            for ref in change.drop:
                self.db.execute(self._sql.delete_row, (ref, session_id))
            lowest = min(change.drop)
            self._read_ends(session_id, state, has_first=state.first < lowest)
            if state.newest > lowest:
                self._next_edition(session_id, state)
            state.taken = (change.drop[0], state.mark) if len(change.drop) == 1 else None
        if change.arrange is not None:
            self._arrange(session_id, state, change.arrange)
        is_undone = len(change.back) == 1 and state.taken == (change.back[0].ref, state.mark)
        for row in change.back:
            self._put_back(session_id, state, row)
        if change.back and not is_undone:
            # An id is there again, and another program may have taken rows that stood before it.
            self._next_edition(session_id, state)
        if change.load is not None and change.name.kind == "session":
            insert_loaded(self.db, self._sql, session_id, change.load)
            self._read_ends(session_id, state)
            self._seen = max(self._seen, state.newest)

    def _next_edition(self, session_id: str, state: _State) -> None:
        state.edition += 1
        self.db.execute(self._sql.set_edition, (session_id, state.edition))

    def _wipe(self, change: Change) -> None:
        db, sql, name = self.db, self._sql, change.name
        owner = self._states[name].owner
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
        self._states[name] = _State(name, (0, None, None, None, None, 0, 0, 0))
        self._doubtful.add(name)

    def _read_ends(self, session_id: str, state: _State, *, has_first: bool = False) -> None:
        """Find out where the live rows begin and end; `has_first`: the first one is still there."""
        if has_first:
            state.newest = self.db.execute(self._sql.newest_of, (session_id,)).fetchone()[0]
        else:
            first, newest = self.db.execute(self._sql.ends, (session_id, session_id)).fetchone()
            state.first, state.newest = first or 0, newest or 0

    def _arrange(self, session_id: str, state: _State, arrange: Arrange) -> None:
        """Put copies of all that stays live behind what was live, keep what is to be kept, then remove what was live.

        Everything gets a new id: the SDK reads by id. The database copies by itself; rows pass through Python only
        where they are new.
        """
        db, sql, old = self.db, self._sql, state.newest
        for part in arrange.live:
            if isinstance(part, Range):
                statement = sql.box_to_live if part.box else sql.live_to_live
                db.execute(statement, self._range(session_id, part))
            else:
                insert(self.db, self._sql, [(session_id, part)])
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
        """The values of a statement that copies rows; live ones only up to the newest there was before the step."""
        source = session_id if part.of is None else part.of.id
        upto = BEYOND if part.upto is None else part.upto
        if not part.box:
            owner = Name("session", source)
            self._load([owner])
            upto = min(upto, self._states[owner].newest)
        return numbered(source, part.box, part.after or 0, upto, session_id, part.replaces)

    def _put_back(self, session_id: str, state: _State, row: Row) -> None:
        """Insert a row under its own id, or, where others have come behind it, under a new one and those again."""
        db, sql = self.db, self._sql
        free = state.newest < row.ref
        writer, ordinal, replaces = (None, None, None) if row.tag is None else row.tag
        values = (row.ref if free else None, session_id, row.data, writer, ordinal, replaces or None)
        db.execute(sql.insert_bytes, values)
        if not free:
            old = state.newest
            db.execute(sql.live_to_live, numbered(session_id, 0, row.ref, old, session_id, None))
            db.execute(sql.delete_rows, (session_id, row.ref, old))
        self._read_ends(session_id, state)
        if state.newest > self._seen:  # without a place of its own in the order: putting back is no change
            self._seen = state.newest
            db.execute(sql.see, (self._seen,))

    def _begin(self, name: Name, state: _State) -> None:
        """Begin an incarnation: what was put since the last one ended belongs to it, what was archived does not."""
        epoch = f"{now_text(self._now)}-{os.urandom(4).hex()}"
        state.epoch = epoch.encode()
        self.db.execute(self._sql.rename_epoch, (epoch, state.owner, ""))
        if name.kind == "session":
            self.db.execute(self._sql.delete_boxes, (name.id,))
        for cell, stored in state.cells.items():
            if stored is not None and stored[0] == NO_EPOCH:
                state.cells[cell] = (state.epoch, stored[1])

    def _put(self, change: Change, state: _State, values: list[str | bytes]) -> None:
        """Remove cells, and add those to write to `values`."""
        for prefix in change.sweep:
            self.db.execute(self._sql.delete_cells_between, (state.owner, *_between(prefix)))
            state.cells.clear()
        epoch = state.epoch.decode()
        for name, value in change.put.items():
            if value is None:
                self.db.execute(self._sql.delete_cell, (state.owner, name))
                state.cells[name] = None
            else:
                values += (state.owner, name, epoch, value)
                state.cells[name] = (state.epoch, value)
                self._known_bytes += len(value)

    def _touch(self, todo: Sequence[tuple[Change, _State]]) -> None:
        now = now_text(self._now)
        now_bytes = now.encode()
        kinds: dict[Kind, list[str | int | None]] = {}
        for change, state in todo:
            kind, name = change.name
            updated = now
            if state.updated is not None and state.updated >= now_bytes:
                updated = after_text(state.updated)
            state.updated = now_bytes if updated is now else updated.encode()
            state.created = state.created or state.updated
            labels = None if change.labels is None else labels_text(change.labels).encode()
            seen = (self._seen,) if kind == "session" else ()
            if self._newest.get(kind) == name and labels in (None, state.labels):
                # It stands first already. Its number is left alone, and with it every index over it.
                self.db.execute(self._sql.still_newest[kind], (updated, *seen, name))
                continue
            self._newest[kind] = name
            state.labels = labels or state.labels
            text = None if labels is None else labels.decode()
            created = updated
            if change.load is not None and change.load.created is not None:
                # Of a name that is there, its time stays as it is: the statement says so.
                created = time_text(min(change.load.created, self._now)) or updated
                self._doubtful.add(change.name)
            values = (name, created, updated, state.epoch.decode(), self._next_change(kind), text, *seen)
            kinds.setdefault(kind, []).extend(values)
        for kind, all_values in kinds.items():
            write_all(self.db, self._sql.touch[kind], 7 if kind == "session" else 6, all_values)

    # --- the order of changes ------------------------------------------------------------------------------

    def _put_in_order(self) -> None:
        """Before the first change: what other programs have written since our last one comes before it in a listing."""
        self._changed, seen, self._seen = listing.order(self.db, self._sql)
        if self._seen > seen:
            self._newest.pop("session", None)
            for _, row_id in self.db.execute(self._sql.foreign, (seen,)).fetchall():
                self.db.execute(self._sql.adopt, (self._next_change("session"), self._seen, row_id))

    def _next_change(self, kind: Kind) -> int:
        if kind == "session":
            assert self._changed is not None
            self._changed += 1
            return self._changed
        if self._run_changed is None:
            self._run_changed = self.db.execute(self._sql.newest_run).fetchone()[0] or 0
        self._run_changed += 1
        return self._run_changed

    # --- listing ------------------------------------------------------------------------------

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Names of a kind, newest change first."""
        return listing.page(self.db, self._sql, kind, after, limit, labels)

    def count(self, kind: Kind) -> int:
        """How many names of a kind there are."""
        return int(self.db.execute(self._sql.count(kind)).fetchone()[0])


def is_one_statement(look: Look) -> bool:
    """Whether one statement answers it."""
    return look.only_data or not (look.cells or look.prefixes or look.rows or look.upto or look.count)


def _asks_times(look: Look) -> bool:
    return any(wanted.times for wanted in look.rows)


def _between(prefix: str) -> tuple[str, str]:
    """The first name that begins with this, and the first behind all that do. SQLite compares UTF-8 bytes."""
    return prefix, prefix[:-1] + chr(ord(prefix[-1]) + 1)


def _bounds(wanted: Rows) -> tuple[int, int]:
    before = BEYOND if wanted.before is None else wanted.before
    return before, -1 if wanted.limit is None else min(wanted.limit, BEYOND)


def _padded(some: list[T]) -> list[T]:
    """As many as the next power of two, by repeating one: so that few different statements are prepared."""
    size = 1 << (len(some) - 1).bit_length()
    return some + some[:1] * (size - len(some))
