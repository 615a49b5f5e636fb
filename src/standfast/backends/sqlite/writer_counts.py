"""What each writer has written, apart from the rows themselves, which anybody may pop, replace or clear (B1).

A writer is one row: how many items it has had accepted, the digests of its latest, and the newest of its batches. When
the digests in the row become many they move into a batch, a row that is never touched again and knows the batch before
it. So a turn updates one short row; the rows of writers that are active lie close together and batches are added at the
end of their table, so that a group of many sessions dirties few pages. (Batches ordered by session, as an index would
have them, cost as many page writes as there were sessions in the group; a batch per append cost a statement and a page
more per turn.)
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from standfast.backends.sqlite.rows import as_text
from standfast.backends.sqlite.statements import Statements
from standfast.ground.errors import SessionConflictError
from standfast.ground.jsonvalue import DIGEST_BYTES

ROW_DIGESTS_MAX = 32
# Half a kilobyte: eight writers to a page, and few turns that need a batch.


class Writer(NamedTuple):
    """One writer of one session: `digests` are those of its latest items, up to number `total`."""

    row: int
    total: int
    digests: bytes
    last_batch: int | None
    first_id: int
    """None of its rows has a lower id."""
    first_row: int | None
    """The id of the session's first row, whoever wrote it: what a head begins with."""

    @property
    def start(self) -> int:
        """The number of the first item whose digest is in the row."""
        return self.total - len(self.digests) // DIGEST_BYTES


class Batch(NamedTuple):
    """Digests that have left the row: those of items `start` and on."""

    row: int
    previous: int | None
    start: int
    digests: bytes


def find(db: sqlite3.Connection, sql: Statements, session_id: str, name: str) -> Writer:
    """What is known of this writer; of one that has not written, that."""
    row = db.execute(sql.writer, (session_id, session_id, name)).fetchone()
    if row is not None:
        return Writer(*row)
    first = db.execute(sql.first_id, (session_id,)).fetchone()
    return Writer(0, 0, b"", None, 0, None if first is None else first[0])


def record(
    db: sqlite3.Connection,
    sql: Statements,
    session_id: str,
    name: str,
    writer: Writer,
    digests: Sequence[bytes],
    first_id: int,
) -> None:
    """Let the writer have written these items too, the first of them in that row."""
    total, last = writer.total + len(digests), writer.last_batch
    latest = writer.digests + b"".join(digests)
    if len(latest) > ROW_DIGESTS_MAX * DIGEST_BYTES:
        last = db.execute(sql.add_batch, (last, writer.start, latest)).lastrowid
        latest = b""
    if writer.row:
        db.execute(sql.move_writer, (total, latest, last, writer.row))
    else:
        db.execute(sql.add_writer, (session_id, name, total, latest, last, first_id))


def check_digests(
    db: sqlite3.Connection, sql: Statements, name: str, writer: Writer, start: int, digests: Sequence[bytes]
) -> None:
    """Refuse a batch that says something else where this writer has already said something.

    After a clear only the count is left, and what is below it is taken to be a repeat.
    """
    if start >= writer.total:
        return
    for known_start, known in _stretches(db, sql, writer):
        end = min(known_start + len(known) // DIGEST_BYTES, start + len(digests))
        for ordinal in range(max(known_start, start), end):
            place = (ordinal - known_start) * DIGEST_BYTES
            if known[place : place + DIGEST_BYTES] != digests[ordinal - start]:
                raise SessionConflictError(
                    f"writer {name!r} has already written another item number {ordinal}",
                    "Use a new writer name for a new history, or rewind first.",
                )
        if known_start <= start:
            return


def cut(db: sqlite3.Connection, sql: Statements, writer: Writer, to: int) -> None:
    """Let the writer have written only `to` items."""
    if to >= writer.total:
        return
    latest, last = writer.digests[: max(0, to - writer.start) * DIGEST_BYTES], writer.last_batch
    for batch in _batches(db, sql, writer):
        if batch.start + len(batch.digests) // DIGEST_BYTES <= to:
            break
        # The batch is cut: what is left of it is again the latest, and fits into the row or is a batch again.
        latest = batch.digests[: max(0, to - batch.start) * DIGEST_BYTES]
        db.execute(sql.drop_batch, (batch.row,))
        last = batch.previous
    db.execute(sql.move_writer, (to, latest, last, writer.row))


def forget_digests(db: sqlite3.Connection, sql: Statements, session_id: str) -> None:
    """Keep nothing of this session's writers but their counts (A12)."""
    for writer in _all(db, sql, session_id).values():
        _drop_batches(db, sql, writer)
    db.execute(sql.forget_digests, (session_id,))


def copy(
    db: sqlite3.Connection, sql: Statements, session_id: str, new_id: str, lowest: Mapping[str, int], first_id: int
) -> None:
    """Give a fork every writer's count as of its position: the lowest ordinal behind it, else all there is (B6)."""
    for name, writer in _all(db, sql, session_id).items():
        _drop_batches(db, sql, find(db, sql, new_id, name))  # of a session of that id that was cleared: another story
        db.execute(sql.drop_writer, (new_id, name))
        last = None
        for batch in reversed(list(_batches(db, sql, writer))):
            last = db.execute(sql.add_batch, (last, batch.start, batch.digests)).lastrowid
        db.execute(sql.add_writer, (new_id, name, writer.total, writer.digests, last, first_id))
        if name in lowest:
            cut(db, sql, find(db, sql, new_id, name), lowest[name])


def _all(db: sqlite3.Connection, sql: Statements, session_id: str) -> dict[str, Writer]:
    found = db.execute(sql.writers, (session_id,)).fetchall()
    return {as_text(row[0]): Writer(row[1], row[2], row[3], row[4], row[5], None) for row in found}


def _stretches(db: sqlite3.Connection, sql: Statements, writer: Writer) -> Iterator[tuple[int, bytes]]:
    """Digests and the number of the first, latest first."""
    if writer.digests:
        yield writer.start, writer.digests
    for batch in _batches(db, sql, writer):
        yield batch.start, batch.digests


def _batches(db: sqlite3.Connection, sql: Statements, writer: Writer) -> Iterator[Batch]:
    """The writer's batches, newest first."""
    row = writer.last_batch
    while row is not None:
        batch = Batch(row, *db.execute(sql.batch, (row,)).fetchone())
        yield batch
        row = batch.previous


def _drop_batches(db: sqlite3.Connection, sql: Statements, writer: Writer) -> None:
    for batch in _batches(db, sql, writer):
        db.execute(sql.drop_batch, (batch.row,))
