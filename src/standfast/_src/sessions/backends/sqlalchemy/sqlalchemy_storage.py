"""Listing and changing, inside a transaction of the caller's.

The code is synchronous: SQLAlchemy's asyncio connections run it with `run_sync`, whatever driver is below.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from standfast._src.base.json_values import in_ascii
from standfast._src.sessions.backends.sqlalchemy.dialects import parts
from standfast._src.sessions.backends.sqlalchemy.read_queries import NameFacts, Reading, begins, times
from standfast._src.sessions.backends.sqlalchemy.tables import LABELS
from standfast._src.sessions.storage import (
    Arrange,
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Load,
    Name,
    Range,
    Refused,
    Row,
    Rows,
)
from standfast._src.sessions.storage_helpers import (
    NUMBER_MAX,
    apply_arrangement,
    conditions,
    labels_of,
    new_rows,
    read_cursor,
    refusal,
    sum_value,
    value_at,
)

if TYPE_CHECKING:
    from datetime import datetime

TICK_S = 1e-6  # a change moves the time on even where the clock has not moved since the one before (A16)

Arranged = tuple[list[Row], list[Row]]
"""The live rows and the kept ones of an arrangement."""


class Transaction(Reading):
    """Transaction on a connection, as a store for a single question (see `_src.sessions.storage`)."""

    loses_answers = False  # the caller commits, and knows whether the commit was acknowledged

    # --- listing -----------------------------------------------------------------------------------------------------

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> list[Listed]:
        """A page by the order of changes, from an index."""
        n, s = self._t.n, self._t.s
        below = NUMBER_MAX if after is None else read_cursor(after)
        if kind == "session" and after is None:
            self._adopt_sessions()
        rest = {label: value for label, value in labels.items() if label not in LABELS}
        wanted = [n.c[label] == value for label, value in labels.items() if label in LABELS]
        is_stored = sa.or_(n.c.epoch.is_not(None), s.c.session_id.is_not(None))
        query = sa.select(*n.c, *self._t.theirs)
        query = query.outerjoin_from(n, s, sa.and_(n.c.kind == "session", s.c.session_id == n.c.id))
        query = query.where(n.c.kind == kind, n.c.seq < below, is_stored, *wanted).order_by(n.c.seq.desc())
        found: list[Listed] = []
        for row in self._c.execute(query.limit(None if rest else limit)):
            has = labels_of(row.labels)
            if rest.items() <= has.items():
                found.append(Listed(row.id, *times(row), has, str(row.seq)))
        return found[:limit]

    def count(self, kind: Kind) -> int:
        """Count the names of a kind."""
        n, s = self._t.n, self._t.s
        runs = sa.select(sa.func.count()).select_from(n).where(n.c.kind == "run", n.c.epoch.is_not(None))
        return int(self._c.execute(runs if kind == "run" else sa.select(sa.func.count()).select_from(s)).scalar_one())

    def _adopt_sessions(self) -> None:
        """Put sessions changed by other programs at the front of the listing, by their times."""
        n, s = self._t.n, self._t.s
        moved = self._t.dialect.seconds(s.c.updated_at)
        query = sa.select(s.c.session_id, moved, n.c.updated)
        query = query.outerjoin_from(s, n, sa.and_(n.c.kind == "session", n.c.id == s.c.session_id))
        query = query.where(sa.or_(n.c.seq.is_(None), moved > n.c.updated + 1.0))
        for id_, at, before in self._c.execute(query.order_by(moved, s.c.session_id)).all():
            name = Name("session", id_)
            self._lock(name)
            self._update(name, seq=self._next(), updated=max(at or 0.0, before or 0.0))

    def _next(self) -> int:
        """The next number in the order of changes."""
        if self._t.seq is not None:
            return int(self._c.execute(sa.select(self._t.seq.next_value())).scalar_one())
        if self._t.is_mysql:
            numbers = self._t.numbers
            number = int(self._c.execute(sa.insert(numbers)).inserted_primary_key[0])  # type: ignore[index]
            self._c.execute(sa.delete(numbers).where(numbers.c.number == number))  # a deleted number is not used again
            return number
        return int(self._c.execute(sa.select(sa.func.coalesce(sa.func.max(self._t.n.c.seq), 0) + 1)).scalar_one())

    # --- changing ----------------------------------------------------------------------------------------------------

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Do the whole step if all conditions hold."""
        for name in sorted({change.name for change in step}):  # in one order for everybody
            self._lock(name)
        seen = [self._read_facts(change.name) for change in step]
        for place, change in enumerate(step):
            refused = self._find_refusal(place, change, seen[place])
            if refused is not None:
                return refused
        moved = [
            None if change.arrange is None else self._apply_arrangement(change.name, change.arrange) for change in step
        ]
        return Done(tuple(map(self._change, step, moved, seen)))

    def _lock(self, name: Name) -> None:
        """Lock a name against changes. Inserts of other programs wait for the session's row, by their foreign key."""
        n, s = self._t.n, self._t.s
        mine = sa.and_(n.c.kind == name.kind, n.c.id == name.id)
        query = sa.select(n.c.id).where(mine).with_for_update()
        if self._c.execute(query).first() is None:
            self._upsert(n, {"kind": name.kind, "id": name.id}, {}, edition=0, place=0)
            self._c.execute(query)
        if name.kind == "session" and not self._is_sqlite:
            self._c.execute(sa.select(s.c.session_id).where(s.c.session_id == name.id).with_for_update())

    def _update(self, name: Name, **values: object) -> None:
        n = self._t.n
        self._c.execute(sa.update(n).where(n.c.kind == name.kind, n.c.id == name.id).values(**values))

    def _upsert(self, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any], **new: object) -> None:
        """Insert a row, or update the row of the same key with `values`; `new` is for an insert only."""
        # Nearly always there is one, and SQLAlchemy compiles an insert that may become an update anew each time.
        mine = [table.c[name] == value for name, value in key.items()]
        if values and self._c.execute(sa.update(table).where(*mine).values(**values)).rowcount:
            return
        self._c.execute(self._t.dialect.put(table, {**key, **values, **new}, list(key), values))

    def _find_refusal(self, place: int, change: KeyUpdate, known: NameFacts) -> Refused | None:
        # Where rows end takes a question of its own, and most changes have no condition on it.
        if refusal(place, change, self._read_sight(conditions(change, mark=False), known)) is None:
            return None
        return refusal(place, change, self._read_sight(conditions(change), known))

    def _apply_arrangement(self, name: Name, arrange: Arrange) -> Arranged:
        def box_of(part: Range) -> list[Row]:
            before = None if part.upto is None else part.upto + 1
            return self._rows(part.of or name, Rows(box=part.box, before=before), None)

        return apply_arrangement(arrange, box_of)

    def _change(self, change: KeyUpdate, moved: Arranged | None, known: NameFacts) -> str:
        """Apply a change and return the mark of the live rows."""
        name, is_session = change.name, change.name.kind == "session"
        if change.remove or change.wipe is not None:
            self._empty(name, None if change.remove else change.wipe)
            if change.remove:
                return ""
            known = self._read_facts(name)
        epoch = known.epoch or secrets.token_hex(8)
        load = change.load if is_session else None
        moves = bool(change.drop or change.arrange is not None or change.back or change.push or load is not None)
        if change.touch or (moves and not known.is_there):
            self._touch(change, known, epoch)
        elif (change.put or change.add) and not known.has_epoch:
            if known.is_there:  # into the session's own row, so that it ends when the SDK clears the session
                s = self._t.s
                self._c.execute(sa.update(s).where(s.c.session_id == name.id).values(standfast_epoch=epoch))
            self._update(name, next_epoch=None if known.is_there else epoch)
        edition = self._move(change, moved, known) if moves else known.edition
        self._put_cells(change, known, epoch)
        if change.labels is not None:
            columns = {label: change.labels.get(label) for label in LABELS}
            self._update(name, labels=json.dumps(dict(change.labels)), **columns)
        return self._mark(name.id, edition) if is_session else ""

    def _put_cells(self, change: KeyUpdate, known: NameFacts, epoch: str) -> None:
        c, (kind, id_) = self._t.c, change.name
        gone = [c.c.name == cell.encode() for cell, value in change.put.items() if value is None]
        gone += [begins(c.c.name, prefix) for prefix in change.sweep]
        if gone:
            self._c.execute(sa.delete(c).where(c.c.kind == kind, c.c.id == id_, sa.or_(*gone)))
        sight = self._read_sight(conditions(change, mark=False), known) if change.add else None
        sums = (
            {cell: sum_value(value_at(sight.cells.get(cell)), one) for cell, one in change.add.items()} if sight else {}
        )
        for cell, value in {**change.put, **sums}.items():
            if value is not None:
                self._upsert(c, {"kind": kind, "id": id_, "name": cell.encode()}, {"epoch": epoch, "value": value})

    def _empty(self, name: Name, keep: tuple[str, ...] | None) -> None:
        """Remove a name altogether, or all cells except names with a prefix in `keep`."""
        t = self._t
        if name.kind == "session":
            self._adopt(name, self._read_facts(name))
            for table in (t.m, t.s, t.b):
                self._c.execute(sa.delete(table).where(table.c.session_id == name.id))
        c = t.c
        kept = [] if keep is None else [sa.not_(begins(c.c.name, prefix)) for prefix in keep]
        self._c.execute(sa.delete(c).where(c.c.kind == name.kind, c.c.id == name.id, *kept))
        if keep is None:
            self._c.execute(sa.delete(t.n).where(t.n.c.kind == name.kind, t.n.c.id == name.id))
        else:
            nothing: dict[str, Any] = dict.fromkeys(("next_epoch", "epoch", "seq", "labels", *LABELS))
            self._update(name, edition=t.n.c.edition + 1, **nothing)

    def _touch(self, change: KeyUpdate, known: NameFacts, epoch: str) -> None:
        """Create a missing name; on a touch, advance the name's time and put the name first in the listing."""
        name, s, now = change.name, self._t.s, known.now
        if name.kind == "session":
            stands = sa.case((s.c.updated_at > known.stamp, s.c.updated_at), else_=known.stamp)
            stamps = {"created_at": known.stamp, "updated_at": known.stamp}
            self._upsert(s, {"session_id": name.id}, {"standfast_epoch": epoch, "updated_at": stands}, **stamps)
        if not change.touch:
            return
        values: dict[str, Any] = {"seq": self._next(), "updated": now, "next_epoch": None}
        if known.is_there:
            values["updated"] = max(now, (known.updated or now) + TICK_S)
        else:
            born = None if change.load is None else change.load.created
            values["created"] = now if born is None else min(born, now)
        self._update(name, **values, epoch=epoch if name.kind == "run" else None)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _move(self, change: KeyUpdate, moved: Arranged | None, known: NameFacts) -> int:
        """Apply a change's effects on rows and return the resulting edition."""
        name, m, place = change.name, self._t.m, self._t.place
        mine = m.c.session_id == name.id
        given, edition = self._adopt(name, known), known.edition
        if change.drop:
            for some in parts(change.drop):
                self._c.execute(sa.delete(m).where(mine, place.in_(some)))
            # A hole that no mark could tell of: none that was given out may hold any more.
            if self._c.execute(sa.select(m.c.id).where(mine, place > min(change.drop)).limit(1)).first() is not None:
                edition += 1
        if change.arrange is not None and moved is not None:
            edition += 1
            self._set_boxes(name.id, change.arrange, moved[1])
            before, given = given, self._add(name.id, moved[0], given, repeat(known.stamp))
            self._c.execute(sa.delete(m).where(mine, place <= before))
        for row in change.back:
            edition += 1
            self._put_back(name.id, row, known.stamp)
        given = self._add(name.id, new_rows(change.push), given, repeat(known.stamp))
        if change.load is not None:
            given = self._load(name.id, change.load, given)
        self._update(name, edition=edition, place=given)
        return edition

    def _last(self, *where: sa.ColumnElement[bool]) -> datetime | None:
        """Return the latest time among the selected rows; None without rows."""
        return self._c.execute(sa.select(sa.func.max(self._t.m.c.created_at)).where(*where)).scalar()

    def _make_increasing(self, last: datetime | None, times: Iterable[Any]) -> Iterator[Any]:
        """Yield the times, each moved behind `last` and behind its predecessor: the SDK reads in order of time."""
        for at in times:
            last = at if last is None else max(at, self._t.dialect.later(last))
            yield last

    def _adopt(self, name: Name, known: NameFacts) -> int:
        """Assign places to the rows of other programs, behind all placed rows, and make their times increase."""
        m, place, given = self._t.m, self._t.place, known.place
        mine = m.c.session_id == name.id
        new = place > given if self._is_sqlite else place.is_(None)
        loose = self._c.execute(sa.select(m.c.id, m.c.created_at).where(mine, new).order_by(m.c.id)).all()
        if not loose:
            return given
        times = self._make_increasing(self._last(mine, sa.not_(new)), [at for _, at in loose])
        for (id_, _), at in zip(loose, times, strict=True):
            given = id_ if self._is_sqlite else given + 1
            values = {"created_at": at} | ({} if self._is_sqlite else {"standfast_place": given})
            self._c.execute(sa.update(m).where(m.c.id == id_).values(**values))
        self._update(name, place=given)
        return given

    def _set_boxes(self, session_id: str, arrange: Arrange, kept: Sequence[Row]) -> None:
        b = self._t.b
        if arrange.forget or arrange.box:
            gone = [*arrange.forget, arrange.box]
            self._c.execute(sa.delete(b).where(b.c.session_id == session_id, b.c.box.in_(gone)))
        if arrange.box:
            self._fill(session_id, arrange.box, kept)

    def _fill(self, session_id: str, box: int, rows: Sequence[Row]) -> None:
        values = [
            {
                "session_id": session_id,
                "box": box,
                "place": at,
                "message_data": self._encode_record(row),
                **_tag_columns(row, ""),
            }
            for at, row in enumerate(rows, 1)
        ]
        if values:
            self._c.execute(sa.insert(self._t.b), values)

    def _load(self, session_id: str, load: Load, given: int) -> int:
        """Insert a loaded history with its times; return the last row's place."""
        for box, rows in load.boxes.items():
            self._fill(session_id, box, new_rows(rows))
        moments = self._t.dialect.moments(self._c, [us / 1e6 for us in load.rising_us(time.time_ns() // 1000)])
        return self._add(session_id, new_rows(load.live), given, moments)

    def _add(self, session_id: str, rows: Sequence[Row], given: int, times: Iterable[Any]) -> int:
        """Insert rows at the end, with the given times or as soon after the stored rows; return the
        last row's place.
        """
        if not rows:
            return given
        if self._is_sqlite:  # an id is never used again, by no session
            used = self._c.exec_driver_sql("SELECT seq FROM sqlite_sequence WHERE name = ?", (self._t.messages,))
            given = max(used.scalar() or 0, given)
        m = self._t.m
        rising = self._make_increasing(self._last(m.c.session_id == session_id), times)
        placed = zip(rows, range(given + 1, given + 1 + len(rows)), rising, strict=False)
        self._c.execute(sa.insert(m), [self._values(session_id, *one) for one in placed])
        return given + len(rows)

    def _put_back(self, session_id: str, row: Row, now: datetime) -> None:
        """Insert a row at its ref, with a time in the SDK's order of reading."""
        m, place, later = self._t.m, self._t.place, self._t.dialect.later
        times = sa.select(m.c.created_at).where(m.c.session_id == session_id).limit(1)
        before: Any = self._c.execute(times.where(place < row.ref).order_by(place.desc())).scalar()
        after: Any = self._c.execute(times.where(place > row.ref).order_by(place)).scalar()
        when = now
        if before is not None:
            when = later(before) if after is None or self._is_sqlite else before + (after - before) / 2
        elif after is not None:
            when = later(after, -1)
        self._c.execute(sa.insert(m), [self._values(session_id, row, row.ref, when)])

    def _values(self, session_id: str, row: Row, place: int, when: datetime) -> dict[str, Any]:
        values: dict[str, Any] = {
            "session_id": session_id,
            "message_data": self._encode_record(row),
            "created_at": when,
        }
        values["id" if self._is_sqlite else "standfast_place"] = place
        return values | _tag_columns(row, "standfast_")

    def _encode_record(self, row: Row) -> str | sa.ColumnElement[str]:
        """Encode a record as text, a new record in the SDK's form. On SQLite, invalid text can be moved too."""
        try:
            return (in_ascii(row.data) if self._ensure_ascii and not row.ref else row.data).decode()
        except UnicodeDecodeError:
            if not self._is_sqlite:
                raise
            return sa.cast(sa.literal(row.data, sa.LargeBinary), sa.Text)


def _tag_columns(row: Row, prefix: str) -> dict[str, Any]:
    """Return the columns of a row's author."""
    tag = row.tag
    if tag is None:
        return dict.fromkeys((f"{prefix}writer", f"{prefix}ordinal", f"{prefix}replaces"))
    return {f"{prefix}writer": tag.writer.encode(), f"{prefix}ordinal": tag.ordinal, f"{prefix}replaces": tag.replaces}
