"""Reads of the tables for a name, in SQL common to all these databases."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from standfast._src.sessions.backends.sqlalchemy.tables import Tables
from standfast._src.sessions.storage import Cell, Name, ReadAnswer, ReadRequest, Row, Rows, Tag
from standfast._src.sessions.storage_helpers import NUMBER_MAX, labels_of

Timed = list[tuple[Row, float | None]]
"""Rows, and when each was written."""


class NameFacts(NamedTuple):
    """Facts about a name besides its rows and cells."""

    now: float
    stamp: Any
    """The same moment as the SDK's columns have it."""
    edition: int = 0
    place: int = 0
    epoch: str = ""
    has_epoch: bool = False
    """Whether the epoch is that of what is stored, not of cells that were written before it."""
    is_there: bool = False
    created: float | None = None
    updated: float | None = None
    labels: Mapping[str, str] = {}


class Reading:
    """Read-only part of a transaction."""

    def __init__(self, tables: Tables, connection: Connection, *, ensure_ascii: bool) -> None:
        self._t, self._c, self._is_sqlite, self._ensure_ascii = tables, connection, tables.is_sqlite, ensure_ascii

    def look(self, look: ReadRequest) -> ReadAnswer:
        """Read every row, cell and mark of a request."""
        if look.only_data:
            return ReadAnswer(data=[row.data for row in self._rows(look.name, look.rows[0], None)])
        return self._read_sight(look, self._read_facts(look.name))

    def _read_sight(self, look: ReadRequest, known: NameFacts) -> ReadAnswer:
        name, is_session = look.name, look.name.kind == "session"
        boxes = [self._read_timed(name, wanted, known.place) for wanted in look.rows]
        return ReadAnswer(
            mark=self._mark(name.id, known.edition) if look.mark and is_session else "",
            now=known.now, epoch=known.epoch, created=known.created, updated=known.updated, labels=known.labels,
            cells=self._cells(name, known.epoch, look.cells, look.prefixes),
            rows=tuple([row for row, _ in found] for found in boxes),
            upto=None if look.upto is None else self._find_mark_end(name.id, known, look.upto),
            count=self._count(name.id) if look.count and is_session else 0,
            times=tuple([at for _, at in found] if look.rows[n].times else () for n, found in enumerate(boxes)),
        )  # fmt: skip

    def _read_facts(self, name: Name) -> NameFacts:
        n, s, dialect = self._t.n, self._t.s, self._t.dialect
        clock = sa.select(dialect.now().label("now"), dialect.stamp().label("stamp")).subquery()
        ours = clock.outerjoin(n, sa.and_(n.c.kind == name.kind, n.c.id == name.id))
        # A join inside a join is taken for a product of two tables on MySQL, and warned of.
        inner = sa.select(*clock.c, *n.c).select_from(ours).subquery()
        theirs = sa.and_(s.c.session_id == name.id, sa.true() if name.kind == "session" else sa.false())
        query = sa.select(*inner.c, *self._t.theirs).select_from(inner.outerjoin(s, theirs))
        row = self._c.execute(query).one()
        epoch = row.standfast_epoch or row.epoch  # a session's is in the SDK's row, a run's in ours
        known = NameFacts(
            row.now, row.stamp, row.edition or 0, row.place or 0, epoch or row.next_epoch or "", epoch is not None
        )
        if row.session_id is None and row.epoch is None:
            return known
        created, updated = times(row)
        return known._replace(is_there=True, created=created, updated=updated, labels=labels_of(row.labels))

    def _mark(self, session_id: str, edition: int) -> str:
        """Return the mark of the live rows' end.

        Other programs remove the newest row or all of them, and a place is never given twice: the last one vouches for
        everything before it. Rows that other programs have added since, still without a place, are covered by their
        ids.
        """
        m, place = self._t.m, self._t.place
        last = self._c.execute(sa.select(sa.func.max(place)).where(m.c.session_id == session_id)).scalar()
        unplaced = sa.select(m.c.id).where(m.c.session_id == session_id, place.is_(None)).order_by(m.c.id)
        loose = [] if self._is_sqlite else list(self._c.execute(unplaced).scalars())
        return f"{edition}.{last or 0}.{len(loose)}.{_digest(loose)}" if last is not None or loose else ""

    def _find_mark_end(self, session_id: str, known: NameFacts, mark: str) -> int | None:
        """Return the ref of the last row covered by a mark; None if anything up to there has changed."""
        if not mark:
            return 0
        parts = mark.split(".")
        if len(parts) != 4 or not all(part.isascii() and part.isdigit() and len(part) < 19 for part in parts[:3]):
            return None
        edition, last, count = (int(part) for part in parts[:3])
        m, place = self._t.m, self._t.place
        mine = m.c.session_id == session_id
        if edition != known.edition:
            return None
        if last and self._c.execute(sa.select(m.c.id).where(mine, place == last)).first() is None:
            return None
        if not count:
            return last
        behind = sa.select(m.c.id, place).where(mine, sa.or_(place > last, place.is_(None)))
        found = self._c.execute(behind.order_by(place.is_(None), place, m.c.id).limit(count)).all()
        if len(found) != count or _digest([id_ for id_, _ in found]) != parts[3]:
            return None
        loose = sum(at is None for _, at in found)
        return known.place + loose if loose else int(found[-1][1])

    def _count(self, session_id: str) -> int:
        m = self._t.m
        return int(self._c.execute(sa.select(sa.func.count()).where(m.c.session_id == session_id)).scalar_one())

    def _rows(self, name: Name, wanted: Rows, given: int | None) -> list[Row]:
        return [row for row, _ in self._read_timed(name, wanted, given)]

    def _read_timed(self, name: Name, wanted: Rows, given: int | None) -> Timed:
        """Rows of a box, oldest first, and when each was written, if that is wanted.

        What has no place yet counts on from the highest that was given.
        """
        if wanted.box:
            b = self._t.b
            columns = (b.c.place, self._text(b.c.message_data), b.c.writer, b.c.ordinal, b.c.replaces, sa.null())
            query = sa.select(*columns).where(b.c.session_id == name.id, b.c.box == wanted.box)
            return self._read(query, b.c.place, b.c.writer, wanted)
        m, place = self._t.m, self._t.place
        at = self._t.dialect.seconds(m.c.created_at) if wanted.times else sa.null()
        signed = (m.c.standfast_writer, m.c.standfast_ordinal, m.c.standfast_replaces)
        query = sa.select(place, self._text(m.c.message_data), *signed, at).where(m.c.session_id == name.id)
        rows = self._read(query.where(place.is_not(None)), place, m.c.standfast_writer, wanted)
        if self._is_sqlite or wanted.writer is not None:
            return rows
        loose = self._c.execute(query.where(place.is_(None)).order_by(m.c.id)).all()
        if loose and given is None:
            given = self._read_facts(name).place
        low, high = wanted.after or 0, NUMBER_MAX if wanted.before is None else wanted.before
        added = [_row(((given or 0) + n, *row[1:])) for n, row in enumerate(loose, 1)]
        rows += [one for one in added if low < one[0].ref < high]
        if wanted.after is not None:
            return rows[: wanted.limit]
        return rows if wanted.limit is None else rows[max(0, len(rows) - wanted.limit) :]

    def _read(
        self,
        query: sa.Select[*tuple[Any, ...]],
        place: sa.ColumnElement[Any],
        writer: sa.ColumnElement[Any],
        wanted: Rows,
    ) -> Timed:
        if wanted.before is not None:
            query = query.where(place < wanted.before)
        if wanted.after is not None:
            query = query.where(place > wanted.after)
        if wanted.writer is not None:
            query = query.where(writer == wanted.writer.encode())
        if wanted.limit is None or wanted.after is not None:
            return [_row(row) for row in self._c.execute(query.order_by(place).limit(wanted.limit))]
        return [_row(row) for row in self._c.execute(query.order_by(place.desc()).limit(wanted.limit))][::-1]

    def _text(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        """Read a record as bytes: in SQLite text may be invalid, and a single bad record must not
        fail the read (A14).
        """
        return sa.cast(column, sa.LargeBinary) if self._is_sqlite else column

    def _cells(self, name: Name, epoch: str, names: Iterable[str], prefixes: Iterable[str] = ()) -> dict[str, Cell]:
        c = self._t.c
        wanted = [c.c.name == cell.encode() for cell in names]
        wanted += [begins(c.c.name, prefix) for prefix in prefixes]
        if not wanted:
            return {}
        query = sa.select(c.c.name, c.c.epoch, c.c.value).where(
            c.c.kind == name.kind, c.c.id == name.id, sa.or_(*wanted)
        )
        return {
            bytes(cell).decode(): Cell(bytes(value), bool(epoch) and born == epoch)
            for cell, born, value in self._c.execute(query)
        }


def times(row: sa.Row[*tuple[Any, ...]]) -> tuple[float, float]:
    """Return the times of a stored name's creation and last change, from our columns and the SDK's."""
    is_ours = row.session_id is None or row.standfast_epoch is not None
    created = row.created if is_ours and row.created is not None else row.born
    return created, max(at for at in (created, row.updated, row.moved) if at is not None)


def _row(row: Sequence[Any]) -> tuple[Row, float | None]:
    ref, data, writer, ordinal, replaces, at = row
    tag = None if writer is None else Tag(bytes(writer).decode(), ordinal or 0, replaces or 0)
    return Row(ref, data.encode() if isinstance(data, str) else bytes(data), tag), at


def begins(column: sa.ColumnElement[Any], prefix: str) -> sa.ColumnElement[bool]:
    """Build the condition for names with a prefix. An index serves the condition, since UTF-8 never
    uses the byte 0xFF.
    """
    return sa.and_(column >= prefix.encode(), column < prefix.encode() + b"\xff")


def _digest(ids: Sequence[int]) -> str:
    return hashlib.md5(",".join(map(str, ids)).encode(), usedforsecurity=False).hexdigest() if ids else ""
