"""What each writer has written, apart from the rows themselves, which anybody may pop, replace or clear (B1).

A writer is one row: how many items it has had accepted, and its newest batch. A batch is one row per append: the
digest of each of its items, and the batch before it. Batches are only ever added at the end of their table, and the
rows of writers that are active lie close together, so that a group of many sessions dirties few pages; ordering
batches by session, as an index would, cost as many page writes as there were sessions in the group.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...errors import SessionConflictError
from ...jsonvalue import DIGEST_BYTES
from .rows import as_text
from .statements import Statements


@dataclass(frozen=True, slots=True)
class Writer:
    """One writer of one session. `first_id`: none of its rows has a lower id."""

    row: int
    count: int
    last_batch: int | None
    first_id: int


NOBODY = Writer(0, 0, None, 0)
"""A writer that has not written yet."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Ordinals `start` to `start` + `count`, and what each is known by."""

    row: int
    start: int
    count: int
    digests: bytes


def find(db: sqlite3.Connection, sql: Statements, session_id: str, name: str) -> Writer:
    """What is known of this writer."""
    row = db.execute(sql.writer, (session_id, name)).fetchone()
    return NOBODY if row is None else Writer(*row)


def record(
    db: sqlite3.Connection,
    sql: Statements,
    session_id: str,
    name: str,
    writer: Writer,
    digests: Sequence[bytes],
    first_id: int,
) -> None:
    """Add a batch behind what the writer has written."""
    batch = (writer.last_batch, writer.count, len(digests), b"".join(digests))
    row = db.execute(sql.add_batch, batch).lastrowid
    if writer.row:
        db.execute(sql.move_writer, (writer.count + len(digests), row, writer.row))
    else:
        db.execute(sql.add_writer, (session_id, name, len(digests), row, first_id))


def check_digests(
    db: sqlite3.Connection, sql: Statements, name: str, writer: Writer, start: int, digests: Sequence[bytes]
) -> None:
    """Refuse a batch that says something else where this writer has already said something.

    After a clear only the count is left, and what is below it is taken to be a repeat.
    """
    if start >= writer.count:
        return
    end = start + len(digests)
    for batch in _batches(db, sql, writer):
        for ordinal in range(max(batch.start, start), min(batch.start + batch.count, end)):
            place = (ordinal - batch.start) * DIGEST_BYTES
            if batch.digests[place : place + DIGEST_BYTES] != digests[ordinal - start]:
                raise SessionConflictError(
                    f"writer {name!r} has already written another item number {ordinal}",
                    "Use a new writer name for a new history, or rewind first.",
                )
        if batch.start <= start:
            return


def cut(db: sqlite3.Connection, sql: Statements, writer: Writer, to: int) -> None:
    """Let the writer have written only `to` items."""
    if to >= writer.count:
        return
    last: int | None = None
    for batch in _batches(db, sql, writer):
        if batch.start >= to:
            db.execute(sql.drop_batch, (batch.row,))
            continue
        kept = to - batch.start
        if kept < batch.count:
            db.execute(sql.cut_batch, (kept, batch.digests[: kept * DIGEST_BYTES], batch.row))
        last = batch.row
        break
    db.execute(sql.move_writer, (to, last, writer.row))


def forget_digests(db: sqlite3.Connection, sql: Statements, session_id: str) -> None:
    """Keep nothing of this session's writers but their counts (A12)."""
    for writer in _all(db, sql, session_id).values():
        for batch in _batches(db, sql, writer):
            db.execute(sql.drop_batch, (batch.row,))
    db.execute(sql.forget_batches, (session_id,))


def copy(
    db: sqlite3.Connection, sql: Statements, session_id: str, new_id: str, lowest: Mapping[str, int], first_id: int
) -> None:
    """Give a fork every writer's count as of its position: the lowest ordinal behind it, else all there is (B6)."""
    for name, writer in _all(db, sql, session_id).items():
        cut(db, sql, find(db, sql, new_id, name), 0)  # what a cleared session of that id remembered is another story
        db.execute(sql.drop_writer, (new_id, name))
        last = None
        for batch in reversed(list(_batches(db, sql, writer))):
            last = db.execute(sql.add_batch, (last, batch.start, batch.count, batch.digests)).lastrowid
        db.execute(sql.add_writer, (new_id, name, writer.count, last, first_id))
        if name in lowest:
            cut(db, sql, find(db, sql, new_id, name), lowest[name])


def _all(db: sqlite3.Connection, sql: Statements, session_id: str) -> dict[str, Writer]:
    return {as_text(name): Writer(*row) for name, *row in db.execute(sql.writers, (session_id,)).fetchall()}


def _batches(db: sqlite3.Connection, sql: Statements, writer: Writer) -> Iterator[Batch]:
    """The writer's batches, newest first."""
    row = writer.last_batch
    while row is not None:
        previous, start, count, digests = db.execute(sql.batch, (row,)).fetchone()
        yield Batch(row, start, count, digests)
        row = previous
