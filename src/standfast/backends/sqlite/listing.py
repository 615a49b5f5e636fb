"""The sessions of a file: listing, counting, and one session's times (A16, B9).

Newest change first means a scan of the sessions table, which has one short row per session: some 20 ms for 100,000
sessions, in a reading thread. An index on the SDK's table would make it independent of their number, but every program
that writes to the file would have to maintain it: additions are further tables and nullable columns only (B10).
"""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from standfast.backends.sqlite.rows import as_text, as_time
from standfast.backends.sqlite.statements import Statements
from standfast.ground.errors import NotFoundError
from standfast.sessions.protocol import SessionInfo, SessionPage


def info(db: sqlite3.Connection, sql: Statements, session_id: str) -> SessionInfo | None:
    """A session's times; None if nothing is stored for it."""
    row = db.execute(sql.times, (session_id,)).fetchone()
    return None if row is None else _info(row)


def list_sessions(db: sqlite3.Connection, sql: Statements, after: str | None, limit: int) -> SessionPage:
    """Sessions, newest change first."""
    if after is None:
        found = db.execute(sql.list_sessions, (limit + 1,)).fetchall()
    else:
        found = db.execute(sql.list_sessions_after, (*cursor(after), limit + 1)).fetchall()
    shown = found[:limit]
    more = cursor_text(shown[-1][2], shown[-1][0]) if len(found) > limit and shown else None
    return SessionPage([_info(row) for row in shown], more)


def count_sessions(db: sqlite3.Connection, sql: Statements) -> int:
    """How many sessions there are."""
    return int(db.execute(sql.count_sessions).fetchone()[0])


def cursor_text(updated_at: Any, name: Any) -> str:
    """A cursor: behind which change, and which of those made in the same instant."""
    return json.dumps([as_text(updated_at), as_text(name)])


def cursor(text: str) -> tuple[str, str]:
    """What a cursor says."""
    try:
        updated_at, name = json.loads(text)
        if isinstance(updated_at, str) and isinstance(name, str):
            return updated_at, name
    except (ValueError, TypeError):
        pass
    raise NotFoundError(f"{text!r} is no cursor of a listing", "Use the cursor that the page before it came with.")


def _info(row: tuple[Any, ...]) -> SessionInfo:
    return SessionInfo(as_text(row[0]), as_time(row[1]), as_time(row[2]))
