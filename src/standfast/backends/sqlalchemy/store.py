"""Listing and changing, inside a transaction of the caller's.

The code is synchronous: SQLAlchemy's asyncio connections run it with `run_sync`, whatever driver is below.
"""

from __future__ import annotations

import json
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from standfast.backends.sqlalchemy.reading import Known, Reading, begins
from standfast.backends.sqlalchemy.tables import LABELS, Tables
from standfast.sessions.answering import NUMBER_MAX, conditions, in_range, read_cursor, refusal
from standfast.sessions.port import (
    Arrange,
    Change,
    Done,
    Kind,
    Listed,
    Load,
    Name,
    Range,
    Refused,
    Row,
    Rows,
    Sight,
    Step,
    Tag,
)

SOME = 500
"""How many values one statement names at most: SQLite knows a limit, and so does patience."""

TICK_S = 1e-6
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


class Transaction(Reading):
    """One transaction on one connection, as a store (see `sessions.port`): it answers one question."""

    loses_answers = False  # whoever commits it knows whether that was answered

    def __init__(self, tables: Tables, connection: Connection, *, ensure_ascii: bool) -> None:
        super().__init__(tables, connection)
        self._new = _escaped if ensure_ascii else bytes

    # --- listing -----------------------------------------------------------------------------------------------------

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> list[Listed]:
        """A page by the order of changes, from an index."""
        n, s = self._t.n, self._t.s
        below = NUMBER_MAX if after is None else read_cursor(after)
        if kind == "session":
            if after is None:
                self._adopt_sessions()
            born = sa.case(
                (sa.or_(s.c.standfast_epoch.is_(None), n.c.created.is_(None)), self._t.dialect.seconds(s.c.created_at)),
                else_=n.c.created,
            )
            query = sa.select(n.c.id, born, self._t.dialect.seconds(s.c.updated_at), n.c.updated, sa.null(), n.c.seq)
            query = query.join(s, s.c.session_id == n.c.id).where(n.c.kind == kind)
        else:
            query = sa.select(n.c.id, n.c.created, n.c.updated, n.c.updated, n.c.labels, n.c.seq)
            query = query.where(n.c.kind == kind, n.c.epoch.is_not(None))
        query = query.where(*(n.c[label] == value for label, value in labels.items() if label in LABELS))
        query = query.where(n.c.seq < below)
        rest = {label: value for label, value in labels.items() if label not in LABELS}
        found: list[Listed] = []
        for id_, created, moved, updated, has, seq in self._c.execute(
            query.order_by(n.c.seq.desc()).limit(None if rest else limit)
        ):
            known = json.loads(has) if has else {}
            if all(known.get(label) == value for label, value in rest.items()):
                found.append(Listed(id_, created, max(created, moved or 0.0, updated or 0.0), known, str(seq)))
        return found[:limit]

    def count(self, kind: Kind) -> int:
        """How many names there are."""
        n, s = self._t.n, self._t.s
        runs = sa.select(sa.func.count()).select_from(n).where(n.c.kind == "run", n.c.epoch.is_not(None))
        return int(self._c.execute(runs if kind == "run" else sa.select(sa.func.count()).select_from(s)).scalar_one())

    def _adopt_sessions(self) -> None:
        """Put sessions that other programs have written to since at the front of the listing, by their times."""
        n, s = self._t.n, self._t.s
        moved = self._t.dialect.seconds(s.c.updated_at)
        joined = s.outerjoin(n, sa.and_(n.c.kind == "session", n.c.id == s.c.session_id))
        newer = sa.or_(n.c.seq.is_(None), moved > n.c.updated + 1.0)
        query = (
            sa.select(s.c.session_id, moved, n.c.updated)
            .select_from(joined)
            .where(newer)
            .order_by(moved, s.c.session_id)
        )
        for id_, at, before in self._c.execute(query).all():
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
            self._c.execute(sa.delete(numbers).where(numbers.c.number == number))  # what is gone is not given again
            return number
        return int(self._c.execute(sa.select(sa.func.coalesce(sa.func.max(self._t.n.c.seq), 0) + 1)).scalar_one())

    # --- changing ----------------------------------------------------------------------------------------------------

    def commit(self, step: Step) -> Done | Refused:
        """Do the whole step if all conditions hold."""
        for name in sorted({change.name for change in step}):  # in one order for everybody
            self._lock(name)
        seen: list[Known] = []
        for place, change in enumerate(step):
            known = self._known(change.name)
            refused = self._refused(place, change, known)
            if refused is not None:
                return refused
            seen.append(known)
        arranged = [None if change.arrange is None else self._arranged(change.name, change.arrange) for change in step]
        done = [self._change(change, rows, known) for change, rows, known in zip(step, arranged, seen, strict=True)]
        return Done(tuple(done))

    def _lock(self, name: Name) -> None:
        """Keep others from changing a name. Other programs' inserts wait at the session's row, by their foreign key."""
        n, s = self._t.n, self._t.s
        mine = sa.and_(n.c.kind == name.kind, n.c.id == name.id)
        query = sa.select(n.c.id).where(mine).with_for_update()
        if self._c.execute(query).first() is None:
            self._upsert(n, {"kind": name.kind, "id": name.id}, {}, edition=0, place=0)
            self._c.execute(query)
        if name.kind == "session" and not self._is_sqlite:
            self._c.execute(sa.select(s.c.session_id).where(s.c.session_id == name.id).with_for_update())

    def _update(self, name: Name, **values: Any) -> None:
        n = self._t.n
        self._c.execute(sa.update(n).where(n.c.kind == name.kind, n.c.id == name.id).values(**values))

    def _upsert(self, table: sa.Table, key: Mapping[str, Any], values: Mapping[str, Any], **new: Any) -> None:
        """Insert a row, or give the one of that key these values; `new` only if there is none."""
        self._c.execute(self._t.dialect.put(table, {**key, **values, **new}, list(key), values))

    def _refused(self, place: int, change: Change, known: Known) -> Refused | None:
        name = change.name
        sight = Sight(
            mark="" if change.mark is None else self._mark(name.id, known.edition),
            cells=self._cells(name, known.epoch, change.cells),
            upto=None if change.prefix is None else self._upto(name.id, known, change.prefix),
        )
        # Most changes have no condition on marks, and where rows end takes a question of its own.
        is_kept = refusal(place, change, sight) is None
        return None if is_kept else refusal(place, change, self.look(conditions(change)))

    def _arranged(self, name: Name, arrange: Arrange) -> tuple[list[Row], list[Row]]:
        """The live rows and the kept ones of an arrangement, taken from what is there before the step."""
        live: list[Row] = []
        for part in arrange.live:
            live += self._range(name, part) if isinstance(part, Range) else self._rows_of(part)
        return live, [row for part in arrange.keep for row in self._range(name, part)]

    def _rows_of(self, new: Sequence[tuple[bytes, Tag]]) -> list[Row]:
        return [Row(0, self._new(data), tag) for data, tag in new]

    def _range(self, name: Name, part: Range) -> list[Row]:
        before = None if part.upto is None else part.upto + 1
        return in_range(self._rows(part.of or name, Rows(box=part.box, before=before), None), part)

    def _change(self, change: Change, arranged: tuple[list[Row], list[Row]] | None, known: Known) -> str:
        """Do one change; where the live rows end now."""
        name, is_session = change.name, change.name.kind == "session"
        if change.remove or change.wipe is not None:
            self._empty(name, None if change.remove else change.wipe)
            if change.remove:
                return ""
            known = self._known(name)
        epoch = known.epoch
        if not known.has_epoch and (change.touch or change.put):
            epoch = epoch or secrets.token_hex(8)
            if known.is_there:  # into the session's own row, so that it ends when the SDK clears the session
                self._c.execute(
                    sa.update(self._t.s).where(self._t.s.c.session_id == name.id).values(standfast_epoch=epoch)
                )
            self._update(name, next_epoch=None if known.is_there else epoch)
        load = change.load if is_session else None
        moves = bool(change.drop or change.arrange is not None or change.back or change.push or load is not None)
        if change.touch or (moves and not known.is_there):
            born = None if change.load is None else change.load.created
            self._touch(name, known, epoch or secrets.token_hex(8), is_new=change.touch, born=born)
        edition = self._move(change, arranged, known) if moves else known.edition
        c = self._t.c
        mine = sa.and_(c.c.kind == name.kind, c.c.id == name.id)
        if change.sweep:
            self._c.execute(sa.delete(c).where(mine, sa.or_(*(begins(c.c.name, prefix) for prefix in change.sweep))))
        for cell, value in change.put.items():
            if value is None:
                self._c.execute(sa.delete(c).where(mine, c.c.name == cell.encode()))
                continue
            key = {"kind": name.kind, "id": name.id, "name": cell.encode()}
            self._upsert(c, key, {"epoch": epoch, "value": value})
        if change.labels is not None:
            columns = {label: change.labels.get(label) for label in LABELS}
            self._update(name, labels=json.dumps(dict(change.labels)), **columns)
        return self._mark(name.id, edition) if is_session else ""

    def _empty(self, name: Name, keep: tuple[str, ...] | None) -> None:
        """Remove a name altogether, or all but cells whose names begin with one of `keep`."""
        t = self._t
        if name.kind == "session":
            self._adopt(name, self._known(name))
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

    def _touch(self, name: Name, known: Known, epoch: str, *, is_new: bool, born: float | None = None) -> None:
        """Make the name if it is not there, and, if `is_new`, move its time on and put it first in the listing."""
        s = self._t.s
        stamp = self._t.dialect.stamp(self._c)
        moment = known.now if known.updated is None else max(known.now, known.updated + TICK_S)
        if name.kind == "session" and not known.is_there:
            made = {"session_id": name.id}
            self._upsert(s, made, {"standfast_epoch": epoch}, created_at=stamp, updated_at=stamp)
        elif name.kind == "session":
            moved = {"standfast_epoch": epoch, "updated_at": _later(s.c.updated_at, stamp)}
            self._c.execute(sa.update(s).where(s.c.session_id == name.id).values(**moved))
        if is_new:
            values: dict[str, Any] = {"seq": self._next(), "updated": moment, "next_epoch": None}
            created = known.now if born is None else min(born, known.now)
            values |= {} if known.is_there else {"created": created, "updated": known.now}
            self._update(name, **values, epoch=epoch if name.kind == "run" else None)

    # --- rows --------------------------------------------------------------------------------------------------------

    def _move(self, change: Change, arranged: tuple[list[Row], list[Row]] | None, known: Known) -> int:
        """Do what a change does to rows; the edition then."""
        name, m, place = change.name, self._t.m, self._t.place
        mine = m.c.session_id == name.id
        given = self._adopt(name, known)
        edition = known.edition
        if change.drop:
            for some in _parts(list(change.drop)):
                self._c.execute(sa.delete(m).where(mine, place.in_(some)))
            # A hole that no mark could tell of: none that was given out may hold any more.
            if self._c.execute(sa.select(m.c.id).where(mine, place > min(change.drop)).limit(1)).first() is not None:
                edition += 1
        if change.arrange is not None and arranged is not None:
            edition += 1
            given = self._arrange(name, change.arrange, arranged, given)
        for row in change.back:
            edition += 1
            self._put_back(name.id, row)
        if change.push:
            given = self._add(name.id, self._rows_of(change.push), given)
        if change.load is not None:
            given = self._load(name.id, change.load, given)
        self._update(name, edition=edition, place=given)
        return edition

    def _last(self, session_id: str) -> Any:
        """The latest time among the rows; None if there is none."""
        m = self._t.m
        return self._c.execute(sa.select(sa.func.max(m.c.created_at)).where(m.c.session_id == session_id)).scalar()

    def _adopt(self, name: Name, known: Known) -> int:
        """Give a place to what other programs wrote, behind what has one, and times that follow each other."""
        m, place = self._t.m, self._t.place
        mine = m.c.session_id == name.id
        new = place > known.place if self._is_sqlite else place.is_(None)
        loose = self._c.execute(sa.select(m.c.id, m.c.created_at).where(mine, new).order_by(m.c.id)).all()
        if not loose:
            return known.place
        last = self._c.execute(sa.select(sa.func.max(m.c.created_at)).where(mine, sa.not_(new))).scalar()
        given = known.place
        for id_, at in loose:
            last = (
                at if last is None else max(at, last) if self._is_sqlite else max(at, last + timedelta(microseconds=1))
            )
            given = id_ if self._is_sqlite else given + 1
            values = {"created_at": last} | ({} if self._is_sqlite else {"standfast_place": given})
            self._c.execute(sa.update(m).where(m.c.id == id_).values(**values))
        self._update(name, place=given)
        return given

    def _arrange(self, name: Name, arrange: Arrange, arranged: tuple[list[Row], list[Row]], given: int) -> int:
        """Write the live rows anew, in order, and those that are kept into their box."""
        m, b, (live, kept) = self._t.m, self._t.b, arranged
        boxes = [*arrange.forget, *((arrange.box,) if arrange.box else ())]
        if boxes:
            self._c.execute(sa.delete(b).where(b.c.session_id == name.id, b.c.box.in_(boxes)))
        if arrange.box:
            self._fill(name.id, arrange.box, kept)
        last = self._last(name.id)
        self._c.execute(sa.delete(m).where(m.c.session_id == name.id))
        return self._add(name.id, live, given, last) if live else given

    def _fill(self, session_id: str, box: int, rows: Sequence[Row]) -> None:
        values = [
            {"session_id": session_id, "box": box, "place": at, "message_data": self._stored(row.data)}
            | _signed(row.tag, "")
            for at, row in enumerate(rows, 1)
        ]
        if values:
            self._c.execute(sa.insert(self._t.b), values)

    def _load(self, session_id: str, load: Load, given: int) -> int:
        """Insert what was kept elsewhere, with its times; the last row's place."""
        for box, rows in load.boxes.items():
            self._fill(session_id, box, self._rows_of(rows))
        if not load.live:
            return given
        moments = self._t.dialect.moments(self._c, [us / 1e6 for us in load.rising_us(time.time_ns() // 1000)])
        return self._add(session_id, self._rows_of(load.live), given, moments=moments)

    def _add(
        self, session_id: str, rows: Sequence[Row], given: int, last: Any = None, moments: Sequence[Any] = ()
    ) -> int:
        """Insert rows at the end; the last one's place. `moments`: when each was written, if not now."""
        stamp = self._t.dialect.stamp(self._c)
        last = last or self._last(session_id)
        if self._is_sqlite:
            used = self._c.exec_driver_sql(
                "SELECT seq FROM sqlite_sequence WHERE name = ?", (self._t.messages,)
            ).scalar()
            given, stamp = max(int(used or 0), given), stamp if last is None else max(stamp, last)
        elif last is not None:
            stamp = max(stamp, last + timedelta(microseconds=1))
        values = []
        for at, row in enumerate(rows):
            when = stamp if self._is_sqlite else stamp + timedelta(microseconds=at)
            if moments and last is None:
                when = moments[at]
            elif moments:  # behind the last one that is there, also for those who read by time
                when = max(moments[at], last if self._is_sqlite else last + timedelta(microseconds=at + 1))
            values.append(self._values(session_id, row, given + 1 + at, when))
        self._c.execute(sa.insert(self._t.m), values)
        return given + len(rows)

    def _put_back(self, session_id: str, row: Row) -> None:
        """Insert a row where its ref belongs, with a time by which the SDK reads it there."""
        m, place = self._t.m, self._t.place
        times = sa.select(m.c.created_at).where(m.c.session_id == session_id).limit(1)
        before: Any = self._c.execute(times.where(place < row.ref).order_by(place.desc())).scalar()
        after: Any = self._c.execute(times.where(place > row.ref).order_by(place)).scalar()
        tick = timedelta(microseconds=1)
        if before is None and after is None:
            when = self._t.dialect.stamp(self._c)
        elif self._is_sqlite:
            when = before or after
        elif before is not None and after is not None:
            when = before + (after - before) / 2
        else:
            when = after - tick if before is None else before + tick
        self._c.execute(sa.insert(m), [self._values(session_id, row, row.ref, when)])

    def _values(self, session_id: str, row: Row, place: int, when: Any) -> dict[str, Any]:
        values = {"session_id": session_id, "message_data": self._stored(row.data), "created_at": when}
        values["id" if self._is_sqlite else "standfast_place"] = place
        return values | _signed(row.tag, "standfast_")

    def _stored(self, data: bytes) -> Any:
        """A record as text; on SQLite even one that is none can be moved."""
        try:
            return data.decode()
        except UnicodeDecodeError:
            if not self._is_sqlite:
                raise
            return sa.cast(sa.literal(data, sa.LargeBinary), sa.Text)


def _escaped(data: bytes) -> bytes:
    """JSON in ASCII, as the SDK writes it unless told otherwise: outside of strings there is nothing else anyway."""
    return data if data.isascii() else _NOT_ASCII.sub(_escape, data.decode()).encode()


def _escape(found: re.Match[str]) -> str:
    return json.dumps(found[0])[1:-1]


def _signed(tag: Tag | None, prefix: str) -> dict[str, Any]:
    """The columns that say who wrote a row."""
    if tag is None:
        return {f"{prefix}writer": None, f"{prefix}ordinal": None, f"{prefix}replaces": None}
    return {f"{prefix}writer": tag.writer.encode(), f"{prefix}ordinal": tag.ordinal, f"{prefix}replaces": tag.replaces}


def _later(column: Any, stamp: Any) -> Any:
    return sa.case((column > stamp, column), else_=stamp)


def _parts(values: list[int]) -> list[list[int]]:
    return [values[start : start + SOME] for start in range(0, len(values), SOME)]
