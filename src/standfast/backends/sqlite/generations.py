"""Replacing the front of a history, keeping what was replaced, and putting it back.

A replacement moves the old front into the archive as a numbered generation and gives every row of the new history a
fresh id: the SDK reads by id, so the replacement must come first and what was appended since must come behind it.
Corrupt rows are never moved; they stay in the live table until cleared or repaired (A14).

A row that stands in for a generation says so; one that does not was appended. So the history that restoring generation
k gives is: its own rows, then all that was appended since, found in the later generations and in the present, in
order, without the rows that stand in for k or a later one. Those of them that are live are displaced and become a
generation in turn: undo can be undone (B4). Generations are never changed or removed by restoring; only the last few
are kept. (Remembering a boundary per generation instead of a mark per row fails when nothing is replaced, by an empty
head: the replacement of an earlier one is then behind the newest boundary.)

A generation belongs to one incarnation of its session, the epoch on the session's row. The SDK's clear deletes that
row, and with it every claim of older generations to be part of the session.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from standfast.backends.sqlite import history
from standfast.backends.sqlite.rows import (
    BEYOND,
    as_text,
    as_time,
    check_head,
    corrupt_ids,
    item_or_fault,
    moved,
    now_text,
    parts,
    read_head,
    touch,
    valid_items,
)
from standfast.backends.sqlite.statements import Statements, numbered
from standfast.ground.errors import NotFoundError
from standfast.ground.jsonvalue import Item
from standfast.sessions.protocol import Generation, Head

GENERATIONS_KEPT = 3
# Enough to undo a compaction, and to undo that undo, without keeping a conversation's whole past alive.


@dataclass(frozen=True, slots=True)
class Kept:
    """One generation of the present incarnation."""

    number: int
    epoch: str
    created_at: datetime
    item_count: int

    @property
    def id(self) -> str:
        """What callers know it by; no two incarnations of a session share one."""
        return f"{self.number}@{self.epoch}"


def kept(db: sqlite3.Connection, sql: Statements, session_id: str) -> list[Kept]:
    """The generations of the session as it is now, oldest first."""
    row = db.execute(sql.epoch, (session_id,)).fetchone()
    if row is None or row[0] is None:
        return []
    epoch = as_text(row[0])
    found = db.execute(sql.generations, (session_id, epoch))
    return [Kept(number, epoch, as_time(created_at), item_count) for number, created_at, item_count in found]


def listed(db: sqlite3.Connection, sql: Statements, session_id: str) -> list[Generation]:
    """The kept generations, newest first."""
    return [Generation(one.id, one.created_at, one.item_count) for one in reversed(kept(db, sql, session_id))]


def chain(db: sqlite3.Connection, sql: Statements, session_id: str, generation_id: str) -> list[Kept]:
    """That generation and all later ones, oldest first."""
    found = kept(db, sql, session_id)
    for place, one in enumerate(found):
        if one.id == generation_id:
            return found[place:]
    raise NotFoundError(
        f"session {session_id!r} has no generation {generation_id!r}",
        f"The last {GENERATIONS_KEPT} are kept: see generations().",
    )


def read(db: sqlite3.Connection, sql: Statements, session_id: str, generation_id: str) -> list[Item]:
    """The items of a kept generation."""
    one = chain(db, sql, session_id, generation_id)[0]
    return valid_items(db, sql, db.execute(sql.archived, (session_id, one.number)))


def written(db: sqlite3.Connection, sql: Statements, session_id: str, writer: str) -> list[Item]:
    """This writer's items that are still kept, in order, those in a kept generation included (B1)."""
    count = history.accepted(db, sql, session_id, writer)
    found: dict[int, Item] = {}
    for one in kept(db, sql, session_id):
        for ordinal, data in db.execute(sql.archived_of_writer, (session_id, one.number, writer)):
            item, _ = item_or_fault(data)
            if item is not None:
                found[ordinal] = item
    found |= history.written(db, sql, session_id, writer)
    return [found[ordinal] for ordinal in sorted(found) if ordinal < count]


# --- replace and restore ------------------------------------------------------------------------------


def replace(
    db: sqlite3.Connection, sql: Statements, session_id: str, texts: Sequence[str], upto: Head, fence: int | None
) -> Head:
    """Put items in place of the rows up to that head; the rows themselves become a generation (B3)."""
    history.check_fence(db, sql, session_id, fence)
    boundary = _place_of(db, sql, session_id, upto)
    event = _Event(db, sql, session_id)
    front = db.execute(sql.rows_upto, (session_id, boundary)).fetchall()
    event.archive(sql.archive_upto, sql.delete_upto, boundary, front)
    history.insert(db, sql, session_id, texts)
    event.finish(boundary)
    return read_head(db, sql, session_id)


def restore(db: sqlite3.Connection, sql: Statements, session_id: str, generation_id: str, expect: Head | None) -> Head:
    """Put a generation back in place of what replaced it; what that displaces becomes a generation (B4)."""
    links = chain(db, sql, session_id, generation_id)
    check_head(db, sql, session_id, expect)
    event = _Event(db, sql, session_id)
    number = links[0].number
    displaced = db.execute(sql.displaced_rows, (session_id, number)).fetchall()
    event.archive(sql.archive_displaced, sql.delete_displaced, number, displaced)
    front = _front_without_items(db, sql, session_id, displaced[0][0] if displaced else BEYOND)
    db.execute(sql.append_archived, numbered(session_id, number, BEYOND))  # all of it
    for later in links[1:]:
        db.execute(sql.append_archived, numbered(session_id, later.number, number))
    event.finish(front)
    return read_head(db, sql, session_id)


def _front_without_items(db: sqlite3.Connection, sql: Statements, session_id: str, before: int) -> int:
    """The id up to which a history has only corrupt rows: those stay in front, where they are."""
    end = 0
    for row_id, data in db.execute(sql.all_rows, (session_id,)):
        if row_id >= before or item_or_fault(data)[0] is not None:
            break
        end = row_id
    return end


def _place_of(db: sqlite3.Connection, sql: Statements, session_id: str, upto: Head) -> int:
    """The id of the last row up to that head; refuses if anything up to it has moved since.

    Only the ends of a history can go away without every row getting a new id, so a front whose first row and whose
    newest item are still there is untouched.
    """
    if upto == Head():
        return 0
    first, newest, valid = parts(upto)
    row = db.execute(sql.first_id, (session_id,)).fetchone()
    same_front = row is not None and row[0] == first
    if not same_front or (valid and db.execute(sql.row_here, (valid, session_id)).fetchone() is None):
        raise moved(session_id, upto, read_head(db, sql, session_id))
    return newest


class _Event:
    """One replacement or restoration: the front goes, something comes, the rest follows behind it."""

    def __init__(self, db: sqlite3.Connection, sql: Statements, session_id: str) -> None:
        self._db, self._sql, self._session_id = db, sql, session_id
        row = db.execute(sql.newest_id, (session_id,)).fetchone()
        self._newest = 0 if row is None else int(row[0])
        touch(db, sql, session_id)
        self._epoch = as_text(db.execute(sql.epoch, (session_id,)).fetchone()[0])
        db.execute(sql.drop_generations_except, (session_id, self._epoch))
        db.execute(sql.drop_archive_except, numbered(session_id))
        self._number = (db.execute(sql.last_generation, (session_id,)).fetchone()[0] or 0) + 1
        self._item_count = 0

    def archive(self, copy: str, delete: str, bound: int, candidates: Sequence[tuple[int, bytes]]) -> None:
        """Move rows into the archive as the next generation, except those that are no items."""
        values = numbered(self._session_id, self._number, bound, json.dumps(corrupt_ids(candidates)))
        self._item_count = self._db.execute(copy, values).rowcount
        self._db.execute(delete, values)

    def finish(self, front: int) -> None:
        """Mark what has come as standing in for the generation, and put the rows behind `front` behind it."""
        db, sql, session_id = self._db, self._sql, self._session_id
        db.execute(sql.mark_replacing, (self._number, session_id, self._newest))
        rest = numbered(session_id, front, self._newest)
        db.execute(sql.append_again, rest)
        db.execute(sql.delete_between, rest)
        db.execute(sql.add_generation, (session_id, self._number, self._epoch, now_text(), self._item_count))
        db.execute(sql.drop_generations_upto, (session_id, self._number - GENERATIONS_KEPT))
        db.execute(sql.drop_archive_upto, (session_id, self._number - GENERATIONS_KEPT))


def rewind(db: sqlite3.Connection, sql: Statements, session_id: str, writer: str, to: int, expect: Head | None) -> Head:
    """Exact rewind (B5): what was replaced is not part of any tail, unless it was restored."""
    live = history.written(db, sql, session_id, writer)
    lowest = max(0, min(to, BEYOND))  # what is out of range is refused below; SQLite would not even take it
    archived = any(
        ordinal not in live
        for one in kept(db, sql, session_id)
        for (ordinal,) in db.execute(sql.archived_of_writer_from, (session_id, one.number, writer, lowest))
    )
    return history.rewind(db, sql, session_id, writer, to, expect, archived)
