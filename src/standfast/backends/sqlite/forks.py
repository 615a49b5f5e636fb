"""Forking: a new session that continues from any position of the live history or of a kept generation.

One transaction copies the valid items and what each writer is known to have written as of that point, so that a run
that goes on in the fork is neither refused as a gap nor skipped as a repeat (B6).
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from standfast.backends.sqlite import writer_counts as writers
from standfast.backends.sqlite.generations import chain, kept
from standfast.backends.sqlite.rows import BEYOND, as_text, item_or_fault, touch
from standfast.backends.sqlite.statements import Statements, numbered
from standfast.ground.errors import NotFoundError, SessionConflictError
from standfast.sessions.protocol import Position


def fork(db: sqlite3.Connection, sql: Statements, session_id: str, new_id: str, at: Position | None) -> None:
    """Make session `new_id`, which must be empty, continue from that position."""
    if new_id == session_id or db.execute(sql.first_id, (new_id,)).fetchone() is not None or kept(db, sql, new_id):
        raise SessionConflictError(
            f"session {new_id!r} is not empty and cannot be forked into", "Choose an id that was never used."
        )
    if at is not None and at.generation is not None:
        number = chain(db, sql, session_id, at.generation)[0].number
        end, corrupt = _cut(db.execute(sql.archived, (session_id, number)), at)
        lowest = _lowest_after_archived(db, sql, session_id, number, end)
        copy = sql.fork_archived
    else:
        number = 0
        end, corrupt = _cut(db.execute(sql.all_rows, (session_id,)), at)
        lowest = _lowest(db.execute(sql.lowest_live_after, (session_id, end)))
        copy = sql.fork_live
    copied = db.execute(copy, numbered(session_id, new_id, end, json.dumps(corrupt), number)).rowcount
    first = db.execute(sql.first_id, (new_id,)).fetchone()
    writers.copy(db, sql, session_id, new_id, lowest, 0 if first is None else first[0])
    if copied:
        touch(db, sql, new_id)


def _cut(found: Iterable[tuple[int, bytes]], at: Position | None) -> tuple[int, list[int]]:
    """The place of the last row to copy, and the corrupt ones up to it."""
    end, valid_count = 0, 0
    corrupt: list[int] = []
    for place, data in found:
        if at is not None and valid_count == at.index:
            return end, corrupt
        if item_or_fault(data)[0] is None:
            corrupt.append(place)
        else:
            valid_count += 1
            end = place
    if at is not None and not 0 <= at.index <= valid_count:
        raise NotFoundError(
            f"there is no position {at.index} among {valid_count} items", f"Give an index from 0 to {valid_count}."
        )
    return (end if at is not None else BEYOND), corrupt


def _lowest(found: Iterable[tuple[bytes, int]]) -> dict[str, int]:
    return {as_text(writer): ordinal for writer, ordinal in found}


def _lowest_after_archived(
    db: sqlite3.Connection, sql: Statements, session_id: str, number: int, end: int
) -> dict[str, int]:
    """The lowest ordinal of each writer behind a position in a generation: in it, and in what was appended since."""
    lowest = _lowest(db.execute(sql.lowest_archived_after, (session_id, number, end)))
    for name, ordinal in db.execute(sql.lowest_since, numbered(session_id, number)):
        writer = as_text(name)
        lowest[writer] = min(ordinal, lowest.get(writer, ordinal))
    return lowest
