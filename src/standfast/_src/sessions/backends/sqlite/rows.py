"""Rows of the storage port: decoded from SQLite, inserted new, and loaded from another store unchanged."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, overload

from standfast._src.sessions.backends.sqlite.statements import Statements, chunks
from standfast._src.sessions.backends.sqlite.values import as_bytes, as_number, as_text, time_text
from standfast._src.sessions.storage import Load, NewRows, Row, Tag, as_tag

_as_row = partial(tuple.__new__, Row)  # as `as_tag`


def all_bytes(data: Sequence[Any]) -> Sequence[bytes]:
    """Return records as bytes, whatever type another program has stored."""
    try:
        b"".join(data)  # a fifth of the time of looking at the type of each
    except TypeError:
        return [as_bytes(one) for one in data]
    return data


class RowsOf(Sequence[Row]):
    """Rows of a writer, from ids, records, ordinals and replaced generations; for None without tags.

    They are kept as columns, and each row is made when it is asked for. Ten thousand rows that are all there would be
    twenty thousand objects for the garbage collector to go through, and with them whatever else the process has.
    """

    def __init__(
        self, writer: str | None, refs: Sequence[int] = (), data: Sequence[Any] = (), *rest: Sequence[Any]
    ) -> None:
        self._writer, self._refs, self._data, self._rest = writer, refs, all_bytes(data), rest

    @classmethod
    def read(cls, writer: str | None, found: Iterable[tuple[Any, ...]]) -> RowsOf:
        """Build the rows from a statement's result."""
        return cls(writer, *zip(*found, strict=True))

    def __len__(self) -> int:
        return len(self._refs)

    def __iter__(self) -> Iterator[Row]:
        tags: Iterable[Tag | None] = repeat(None)
        if self._writer is not None:
            tags = map(as_tag, zip(repeat(self._writer), *self._rest))
        return map(_as_row, zip(self._refs, self._data, tags))  # noqa: B905 — a tag for each, or None without end

    @overload
    def __getitem__(self, place: int) -> Row: ...
    @overload
    def __getitem__(self, place: slice) -> RowsOf: ...
    def __getitem__(self, place: int | slice) -> Row | RowsOf:
        if not isinstance(place, slice):
            at = range(len(self))[place]
            return next(iter(self[at : at + 1]))
        return RowsOf(self._writer, self._refs[place], self._data[place], *[column[place] for column in self._rest])


def as_rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    """Build rows from ids and the columns of `ROW_COLUMNS`. A row of another program has no tag."""
    names: dict[bytes | None, str] = {None: "", b"": ""}
    rows = []
    for ref, data, writer, ordinal, replaces in found:
        if writer is None and replaces is None:
            tag = None
        else:
            name = names.get(writer)
            if name is None:
                name = names[writer] = as_text(writer)
            tag = as_tag((name, as_number(ordinal), as_number(replaces)))
        rows.append(_as_row((ref, data if type(data) is bytes else as_bytes(data), tag)))
    return rows


Part = tuple[str, Sequence[bytes], str, int, Sequence[Tag] | None]
"""A session and records to add to it: a writer's from a number on (of writer "": nobody's), or each with its tag."""


def part_of(session_id: str, rows: Sequence[tuple[bytes, Tag]]) -> Part:
    """Rows of the port, to be added to a session."""
    if type(rows) is NewRows:  # nearly always
        return session_id, rows.data, rows.writer, rows.start, None
    return session_id, [data for data, _ in rows], "", 0, [tag for _, tag in rows]


def write_all(db: sqlite3.Connection, statement: Callable[[int], str], width: int, values: Sequence[Any]) -> int:
    """Execute a statement for all rows of `width` values; return the id of the first inserted row."""
    parts = chunks(len(values) // width)
    if len(parts) == 1:
        size = parts[0][1]
        return (db.execute(statement(size), values).lastrowid or 0) - size + 1
    first = 0
    for start, size in parts:
        made = db.execute(statement(size), values[width * start : width * (start + size)]).lastrowid
        first = first or (made or 0) - size + 1
    return first


def insert(db: sqlite3.Connection, sql: Statements, parts: Sequence[Part]) -> int:
    """Insert rows of several sessions; return the first id. Ids are consecutive, since there is no other writer."""
    values: list[Any] = []
    try:
        for session_id, records, writer, ordinal, tags in parts:
            if tags is None:  # nearly always
                step = 1 if writer else 0
                for data in records:
                    values += (session_id, data.decode(), writer, ordinal)
                    ordinal += step
                continue
            for data, (writer, ordinal, replaces) in zip(records, tags, strict=True):
                if replaces:
                    return _insert_each(db, sql, parts)
                values += (session_id, data.decode(), writer, ordinal)
    except UnicodeDecodeError:  # a record that was corrupt comes back as it was
        return _insert_each(db, sql, parts)
    return write_all(db, sql.insert_rows, 4, values)


def _insert_each(db: sqlite3.Connection, sql: Statements, parts: Sequence[Part]) -> int:
    """As `insert`, for rows with a replaced generation or with invalid text."""
    first = 0
    for session_id, records, writer, start, tags in parts:
        for data, tag in NewRows(records, writer, start) if tags is None else zip(records, tags, strict=True):
            made = db.execute(sql.insert_bytes, (None, session_id, data, *_tag_values(tag))).lastrowid
            first = first or made or 0
    return first


def insert_loaded(db: sqlite3.Connection, sql: Statements, session_id: str, load: Load) -> None:
    """Insert rows and boxes that were kept elsewhere, with the times of the rows."""
    live = zip(map(time_text, load.times), load.live, strict=True)
    db.executemany(sql.insert_loaded, [(session_id, at, data, *_tag_values(tag)) for at, (data, tag) in live])
    for box, rows in load.boxes.items():
        boxed = [(session_id, box, place, data, *_tag_values(tag)) for place, (data, tag) in enumerate(rows, 1)]
        db.executemany(sql.insert_boxed, boxed)


def _tag_values(tag: Tag) -> tuple[str, int, int | None]:
    return tag.writer, tag.ordinal, tag.replaces or None
