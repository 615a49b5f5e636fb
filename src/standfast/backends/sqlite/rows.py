"""Rows of the port: made of what SQLite gives, and inserted, new ones and those of another store as they were."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from standfast.backends.sqlite.statements import Statements, chunks
from standfast.backends.sqlite.values import as_bytes, time_text
from standfast.sessions.port import Load, Row, Tag, as_tag

_as_row = partial(tuple.__new__, Row)  # as `as_tag`


def all_bytes(data: Sequence[Any]) -> Sequence[bytes]:
    """Records as they are, whatever another program has put there."""
    try:
        b"".join(data)  # a fifth of the time of looking at the type of each
    except TypeError:
        return [as_bytes(one) for one in data]
    return data


def rows_of(writer: str | None, found: Iterable[tuple[Any, ...]]) -> list[Row]:
    """Rows of one writer, from ids, records, ordinals and replaced generations; of None: without their tags.

    Column by column: ten thousand rows would be ten thousand turns of a Python loop.
    """
    columns = list(zip(*found, strict=True))
    if not columns:
        return []
    refs, data, *rest = columns
    tags: Iterable[Tag | None] = repeat(None)
    if writer is not None:
        tags = map(as_tag, zip(repeat(writer), *rest))
    return list(map(_as_row, zip(refs, all_bytes(data), tags)))  # noqa: B905 — as above


def as_rows(found: Iterable[Sequence[Any]]) -> list[Row]:
    """Rows with their tags, from ids and the columns that `ROW_COLUMNS` names; None for what another program wrote."""
    names: dict[bytes | None, str] = {None: ""}
    rows = []
    for ref, data, writer, ordinal, replaces in found:
        if writer is None and replaces is None:
            tag = None
        else:
            name = names.get(writer)
            if name is None:
                name = names[writer] = as_bytes(writer).decode()
            tag = as_tag((name, ordinal or 0, replaces or 0))
        rows.append(_as_row((ref, data if type(data) is bytes else as_bytes(data), tag)))
    return rows


Parts = Sequence[tuple[str, Sequence[tuple[bytes, Tag]]]]
"""Sessions, with what is to be added to each."""


def write_all(db: sqlite3.Connection, statement: Callable[[int], str], width: int, values: Sequence[Any]) -> int:
    """Do a statement for all rows of so many values; gives the id of the first row that it inserted, if it did."""
    first = 0
    for start, size in chunks(len(values) // width):
        made = db.execute(statement(size), values[width * start : width * (start + size)]).lastrowid
        first = first or (made or 0) - size + 1
    return first


def insert(db: sqlite3.Connection, sql: Statements, parts: Parts) -> int:
    """Insert rows of several sessions; gives the id of the first. Ids are consecutive: nobody else writes now."""
    values: list[Any] = []
    try:
        for session_id, rows in parts:
            for data, (writer, ordinal, replaces) in rows:
                if replaces:
                    return _insert_each(db, sql, parts)
                values += (session_id, data.decode(), writer, ordinal)
    except UnicodeDecodeError:  # a record that was corrupt comes back as it was
        return _insert_each(db, sql, parts)
    return write_all(db, sql.insert_rows, 4, values)


def _insert_each(db: sqlite3.Connection, sql: Statements, parts: Parts) -> int:
    """As `insert`, for rows that stand in for a generation, or are no text."""
    first = 0
    for session_id, rows in parts:
        for data, tag in rows:
            made = db.execute(sql.insert_bytes, (None, session_id, data, *_signed(tag))).lastrowid
            first = first or made or 0
    return first


def insert_loaded(db: sqlite3.Connection, sql: Statements, session_id: str, load: Load) -> None:
    """Insert rows and boxes that were kept elsewhere, with the times of the rows."""
    live = zip(map(time_text, load.times), load.live, strict=True)
    db.executemany(sql.insert_loaded, [(session_id, at, data, *_signed(tag)) for at, (data, tag) in live])
    for box, rows in load.boxes.items():
        boxed = [(session_id, box, place, data, *_signed(tag)) for place, (data, tag) in enumerate(rows, 1)]
        db.executemany(sql.insert_boxed, boxed)


def _signed(tag: Tag) -> tuple[str, int, int | None]:
    return tag.writer, tag.ordinal, tag.replaces or None
