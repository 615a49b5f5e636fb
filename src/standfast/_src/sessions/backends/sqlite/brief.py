"""Fast listing of a whole file: every session's id and times as lines of text, formatted by SQLite.

A listing in pages builds an object for each session and imports what runs are made of; for a hundred thousand sessions
that takes ten times as long as the question. This answers the one simple case, a file in today's layout that can be
read in place, in the order of `listing`, and nothing else: wherever there is any doubt it returns None, and the caller
uses the paged listing, which also reports what is wrong. Little is imported here on purpose.
"""

# ruff: noqa: S608 — these table names are constants
from __future__ import annotations

import os
import sqlite3
from typing import NamedTuple
from urllib.parse import quote

from standfast._src.sessions.backends.sqlite.sidecar_files import find_sidecars

SESSIONS, MESSAGES = "agent_sessions", "agent_messages"
LAYOUT = 2
PRINTABLE = bytes(range(0x20, 0x7F))

# One text for all, because a row for each would take as long again. The limit, which is none, keeps the order: without
# it SQLite may leave out the sorting of what is only put together.
_TOGETHER = (
    "SELECT group_concat(session_id || char(9) || updated_at || '+00:00' || char(9) || created_at || '+00:00', "
    "char(10)), count(*), sum(length(session_id)) "
    f"FROM (SELECT session_id, created_at, updated_at FROM {SESSIONS} WHERE %s LIMIT -1)"
)
WITHOUT_ID = len("\t2026-11-16 10:00:00.000001+00:00\t2026-11-16 10:00:00.000001+00:00\n")
NUMBERED = _TOGETHER % "standfast_changed IS NOT NULL ORDER BY standfast_changed DESC"
UNNUMBERED = _TOGETHER % "standfast_changed IS NULL ORDER BY session_id"
NEWEST = (
    f"SELECT standfast_seen, (SELECT max(id) FROM {MESSAGES}) FROM {SESSIONS} "
    "WHERE standfast_changed IS NOT NULL ORDER BY standfast_changed DESC LIMIT 1"
)


class Lines(NamedTuple):
    """Lines as a text without a last line break, and their number."""

    text: str
    number: int


def session_lines(path: str) -> Lines | None:
    """List the id, last change and creation of every session, newest change first, separated by tabs; None if unable.

    Only if all of it is plain ASCII and no id holds a control character: it can be printed unchanged.
    """
    path = os.path.abspath(path)
    beside = find_sidecars(path)
    how = beside.how()
    if how == "copy" or (how == "immutable" and beside.is_fresh()):
        return None
    options = "mode=ro&immutable=1" if how == "immutable" else "mode=ro"
    try:
        db = sqlite3.connect(f"file:{quote(os.fsencode(path))}?{options}", uri=True, isolation_level=None)
        try:
            db.execute("BEGIN")
            lines = _lines(db)
        finally:
            db.close()
    except sqlite3.Error:
        return None
    if lines is None or not _is_plain(lines):
        return None
    return lines if how == "ro" or find_sidecars(path) == beside else None


def _lines(db: sqlite3.Connection) -> Lines | None:
    known = db.execute("SELECT version FROM standfast_schema WHERE tables = ?", (f"{SESSIONS}/{MESSAGES}",)).fetchone()
    if known is None or known[0] != LAYOUT:
        return None
    seen, last = db.execute(NEWEST).fetchone() or (0, 0)
    if (last or 0) > (seen or 0):
        return None  # another program has written since: those sessions come first, in an order of their own
    texts, lines, letters = [], 0, 0
    for statement in (NUMBERED, UNNUMBERED):
        text, some, of_ids = db.execute(statement).fetchone()
        if some and not isinstance(text, str):
            return None
        texts += [text] if some else []
        lines, letters = lines + some, letters + (of_ids or 0)
    together = "\n".join(texts)
    # Times of another length are another program's, and an extra space belongs to an id: both need the paged listing.
    if together and (len(together) + 1 != letters + lines * WITHOUT_ID or together.count(" ") != 2 * lines):
        return None
    return Lines(together.replace(" ", "T"), lines)


def _is_plain(lines: Lines) -> bool:
    """Return whether the text is plain ASCII, with two tabs in each line and no further control character."""
    if not lines.text.isascii():
        return False
    others = lines.text.encode("ascii").translate(None, PRINTABLE)
    return others == (b"\t\t\n" * lines.number)[:-1]
