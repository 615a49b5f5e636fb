"""Rows as they come from the database: which are items, which are corrupt, and where a history ends.

Text arrives as bytes. A row whose bytes are no JSON object is corrupt: it is skipped, stays where it is, and is
logged once per process, by its number and never by its content (A14).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from standfast.backends.sqlite.files import log
from standfast.backends.sqlite.statements import Statements
from standfast.ground.errors import SessionConflictError
from standfast.ground.jsonvalue import CorruptJSON, Item, decode, decode_many
from standfast.sessions.protocol import Head

BEYOND = 2**63 - 1
"""Larger than any row id."""

_REPORTED_MAX = 10_000
_reported: set[tuple[bytes | int, str, int]] = set()


@contextmanager
def snapshot(db: sqlite3.Connection) -> Iterator[None]:
    """Let several reads see one state; inside a transaction they do anyway."""
    if db.in_transaction:
        yield
        return
    db.execute("BEGIN")
    try:
        yield
    finally:
        db.execute("COMMIT")


def now_text() -> str:
    """The wall clock as SQLite and the SDK write it, in UTC, with microseconds. Orders nothing."""
    seconds, part = divmod(time.time(), 1)
    return f"{_second_text(seconds)}.{int(part * 1e6):06d}"


@lru_cache(maxsize=2)
def _second_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def touch(db: sqlite3.Connection, sql: Statements, session_id: str) -> None:
    """The session has changed: make its row if there is none, and move its time on."""
    now = now_text()
    db.execute(sql.touch, (session_id, now, now, now))


def as_time(value: Any) -> datetime:
    """A stored time, always with its zone; the SDK writes UTC without saying so."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)  # somebody else's notion of a time; not worth failing a listing
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def as_text(value: Any) -> str:
    """A text column of a connection that reads text as bytes."""
    return value.decode() if isinstance(value, bytes) else str(value)


def as_bytes(value: Any) -> bytes:
    """A stored record as it is; another program may have put a number where text belongs."""
    return value if isinstance(value, bytes) else str(value).encode()


def item_or_fault(data: Any) -> tuple[Item | None, str]:
    """The item these bytes hold, or None and why not."""
    try:
        return decode(as_bytes(data)), ""
    except CorruptJSON as fault:
        return None, f"not a JSON object ({fault})"


def all_valid(found: Iterable[Sequence[Any]]) -> list[Item] | None:
    """The items of rows of (data,), or None if one of them is none: the fast way for what is nearly always so."""
    try:
        return decode_many([data for (data,) in found])
    except (CorruptJSON, TypeError):
        return None


def report(db: sqlite3.Connection, sql: Statements, row_id: int, fault: str) -> None:
    """Log a corrupt record, once."""
    file = bytes(db.execute("PRAGMA database_list").fetchone()[2])
    key = (file or id(db), sql.tables.messages, row_id)  # a database in memory has one connection and no name
    if key not in _reported and len(_reported) < _REPORTED_MAX:
        _reported.add(key)
        log.warning(
            "record %d of %s is %s; it stays where it is: see corrupt_records()", row_id, sql.tables.messages, fault
        )


def valid_items(db: sqlite3.Connection, sql: Statements, rows: Iterable[Sequence[Any]]) -> list[Item]:
    """The items of rows of (id, data), corrupt ones left out and reported."""
    found = []
    for row_id, data in rows:
        item, fault = item_or_fault(data)
        if item is None:
            report(db, sql, row_id, fault)
        else:
            found.append(item)
    return found


def corrupt_ids(rows: Iterable[Sequence[Any]]) -> list[int]:
    """The ids of those rows of (id, data) that are no items."""
    return [row_id for row_id, data in rows if item_or_fault(data)[0] is None]


def newest_valid(db: sqlite3.Connection, sql: Statements, session_id: str) -> tuple[int, Item] | None:
    """The newest row that is an item."""
    before, window = BEYOND, 1
    while True:
        rows = db.execute(sql.rows_before, (session_id, before, window)).fetchall()
        for row_id, data in rows:
            item, fault = item_or_fault(data)
            if item is not None:
                return row_id, item
            report(db, sql, row_id, fault)
        if len(rows) < window:
            return None
        before, window = rows[-1][0], min(window * 4, 1_000)


# --- the head ------------------------------------------------------------------------------
#
# Row ids are never used again, whoever writes, so the newest id tells whether a history moved and nothing has to be
# counted. The newest valid id belongs to it because our pop leaves corrupt rows behind it, and the first id because
# other programs prune histories from the front.


def head_of(first: int, newest: int, valid: int) -> Head:
    """The head of a history with these rows."""
    return Head(f"{first}.{newest}.{valid}")


def parts(head: Head) -> tuple[int, int, int]:
    """First, newest and newest valid row id of a head; zeros for the empty one and for what is no head of ours."""
    try:
        first, newest, valid = map(int, head.value.split("."))
    except ValueError:
        return 0, 0, 0
    return (first, newest, valid) if 0 <= max(first, newest, valid) <= BEYOND else (0, 0, 0)


def read_head(db: sqlite3.Connection, sql: Statements, session_id: str) -> Head:
    """Where the history ends now."""
    row = db.execute(sql.ends, (session_id, session_id)).fetchone()
    if row is None:
        return Head()
    newest, data, first = row
    if item_or_fault(data)[0] is not None:
        return head_of(first, newest, newest)
    found = newest_valid(db, sql, session_id)
    return head_of(first, newest, 0 if found is None else found[0])


def check_head(db: sqlite3.Connection, sql: Statements, session_id: str, expect: Head | None) -> None:
    """Refuse if the session is not where the caller believes it is (B2)."""
    if expect is not None:
        actual = read_head(db, sql, session_id)
        if actual != expect:
            raise moved(session_id, expect, actual)


def moved(session_id: str, expected: Head, actual: Head) -> SessionConflictError:
    """The error of a change that expected another history."""
    return SessionConflictError(
        f"session {session_id!r} is at {actual} and {expected} was expected",
        "Somebody else wrote to it: reload it and try again.",
        expected=expected,
        actual=actual,
    )
