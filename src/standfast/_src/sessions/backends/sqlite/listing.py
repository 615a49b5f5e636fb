"""The names of a file, newest change first, a page at a time (B9).

Every change of ours gives a session the next *change number*; the order of changes is their order and no clock's. What
another program wrote is found by its records: those behind the highest row id that our last change accounted for. They
are newer than every change of ours, and are numbered here as our next change will number them for good. An index over
the numbers makes a page cost what a page costs, whatever the number of sessions.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from standfast._src.sessions.backends.sqlite.statements import Statements
from standfast._src.sessions.backends.sqlite.values import BEYOND, as_number, as_seconds, as_text, label_text, labels_in
from standfast._src.sessions.storage import Kind, Listed
from standfast._src.sessions.storage_helpers import read_cursor

_UNNUMBERED = "-"
# Begins the cursor of a name that has no number, behind all that have one.


def page(
    db: sqlite3.Connection, sql: Statements, kind: Kind, after: str | None, limit: int, labels: Mapping[str, str]
) -> list[Listed]:
    """Return at most `limit` names behind a cursor (None: from the newest on)."""
    before, behind = _parse_cursor(after)
    found: list[Listed] = []
    wanted = [label_text(value) for value in labels.values()]
    foreign = _foreign(db, sql) if kind == "session" else {}
    for session_id, number in reversed(foreign.items()):
        if number < before and len(found) < limit:
            row = db.execute(sql.session_times, (session_id,)).fetchone()
            if row is not None and _has(row[2], labels):
                found.append(_parse_row((session_id, *row, number)))
    if behind is None:
        statement = sql.build_listing(kind, labels, numbered=True)
        rows = db.execute(statement, (before, *wanted, limit - len(found) + len(foreign))).fetchall()
        found += [one for one in map(_parse_row, rows) if one.id not in foreign]
    if len(found) < limit:
        statement = sql.build_listing(kind, labels, numbered=False)
        rows = db.execute(statement, (behind or "", *wanted, limit - len(found) + len(foreign))).fetchall()
        found += [one for one in map(_parse_row, rows) if one.id not in foreign]
    return found[:limit]


def order(db: sqlite3.Connection, sql: Statements) -> tuple[int, int, int]:
    """The newest change number, the newest row id when it was given, and the newest row id now.

    All of it is read from what is there, so that a change writes nothing beside the session's own row.
    """
    changed, seen, newest = db.execute(sql.order).fetchone() or (0, 0, db.execute(sql.newest_id).fetchone()[0])
    return as_number(changed), as_number(seen), as_number(newest)


def _foreign(db: sqlite3.Connection, sql: Statements) -> dict[str, int]:
    """Return sessions written by other programs since our last change, in order, with their future change numbers."""
    changed, seen, newest = order(db, sql)
    if newest <= seen:
        return {}
    rows = db.execute(sql.foreign, (seen,)).fetchall()
    return {as_text(row[0]): changed + place for place, row in enumerate(rows, 1)}


def _has(stored: bytes | None, labels: Mapping[str, str]) -> bool:
    known = labels_in(stored)
    return all(known.get(label) == value for label, value in labels.items())


def _parse_row(row: Sequence[Any]) -> Listed:
    name, created, updated, labels, number = row
    found = as_text(name)
    cursor = f"{_UNNUMBERED}{found}" if number is None else str(number)
    return Listed(found, as_seconds(created), as_seconds(updated), labels_in(labels), cursor)


def _parse_cursor(text: str | None) -> tuple[int, str | None]:
    """The change number to go below, and, among names without one, the id to go behind."""
    if text is None:
        return BEYOND, None
    if isinstance(text, str) and text.startswith(_UNNUMBERED):
        return 0, text[len(_UNNUMBERED) :]
    return read_cursor(text), None
