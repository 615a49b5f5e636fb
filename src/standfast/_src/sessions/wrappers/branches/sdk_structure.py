"""Tables of the OpenAI Agents SDK's `AdvancedSQLiteSession` with the kind and the branch of each message.

standfast needs none of these tables: a branch is a session of its own, and turns are read from the items. They are kept
so that the SDK can still read items written here. The SDK shows only messages with a row in `message_structure`, and
its next pop *removes* all others. A writer of session rows therefore updates the table in the same transaction, at a
cost proportional to the change and not to the length of the history.

Branches of the SDK are rows of one session id, all in one order. Such a session is copied once, each branch into a
session of its own; the SDK's rows stay unchanged, and both copies continue separately.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

import json
import sqlite3
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from standfast._src.base.errors import InvalidSettingError, SessionConflictError
from standfast._src.base.json_values import CorruptJSON, Item, decode, encode_value
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.backends.sqlite.values import as_bytes, as_seconds, as_text
from standfast._src.sessions.rules.history import BRANCHES
from standfast._src.sessions.storage import Cell
from standfast._src.sessions.wrappers.branches.branch_rules import (
    SDK_USAGE,
    Branch,
    Branches,
    branch_session_id,
    encode_branches,
)
from standfast._src.sessions.wrappers.branches.turns import MAIN, is_user, kind_of, tool_of

_CREATE = (
    "CREATE TABLE IF NOT EXISTS message_structure (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
    "message_id INTEGER NOT NULL, branch_id TEXT NOT NULL DEFAULT 'main', message_type TEXT NOT NULL, "
    "sequence_number INTEGER NOT NULL, user_turn_number INTEGER, branch_turn_number INTEGER, tool_name TEXT, "
    "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
    'FOREIGN KEY (session_id) REFERENCES "{sessions}"(session_id) ON DELETE CASCADE, '
    'FOREIGN KEY (message_id) REFERENCES "{messages}"(id) ON DELETE CASCADE)',
    "CREATE TABLE IF NOT EXISTS turn_usage (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
    "branch_id TEXT NOT NULL DEFAULT 'main', user_turn_number INTEGER NOT NULL, requests INTEGER DEFAULT 0, "
    "input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0, total_tokens INTEGER DEFAULT 0, "
    "input_tokens_details JSON, output_tokens_details JSON, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
    'FOREIGN KEY (session_id) REFERENCES "{sessions}"(session_id) ON DELETE CASCADE, '
    "UNIQUE(session_id, branch_id, user_turn_number))",
    "CREATE TABLE IF NOT EXISTS branch_reservations (session_id TEXT NOT NULL, branch_id TEXT NOT NULL, "
    "PRIMARY KEY (session_id, branch_id))",
    "CREATE TABLE IF NOT EXISTS session_clear_generations (session_id TEXT PRIMARY KEY, "
    "generation INTEGER NOT NULL DEFAULT 0)",
    "CREATE INDEX IF NOT EXISTS idx_structure_session_seq ON message_structure(session_id, sequence_number)",
    "CREATE INDEX IF NOT EXISTS idx_structure_branch ON message_structure(session_id, branch_id)",
    "CREATE INDEX IF NOT EXISTS idx_structure_turn ON message_structure(session_id, branch_id, user_turn_number)",
    "CREATE INDEX IF NOT EXISTS idx_structure_branch_seq ON message_structure(session_id, branch_id, sequence_number)",
    "CREATE INDEX IF NOT EXISTS idx_turn_usage_session_turn ON turn_usage(session_id, branch_id, user_turn_number)",
)
_NAMES = ("message_structure", "turn_usage", "branch_reservations", "session_clear_generations")


# --- opening ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TurnTables:
    """Tables of the SDK beside a pair of sessions and messages. `are_made`: make missing tables, or raise an error."""

    are_made: bool

    def is_ready(self, db: sqlite3.Connection, tables: Tables) -> bool:
        """Return True if all tables exist and no branches of the SDK wait to be copied."""
        there = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN (?, ?, ?, ?)"
        return bool(
            db.execute(there, _NAMES).fetchone()[0] == len(_NAMES) and not _find_branched_sessions(db, tables.messages)
        )

    def prepare(self, db: sqlite3.Connection, tables: Tables) -> None:
        """Make missing tables, and copy branches of the SDK."""
        found = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'message_structure'").fetchone()
        if found is None and not self.are_made:
            raise InvalidSettingError(
                "this file has no tables of branches and turns",
                "Give AdvancedSQLiteSession(..., create_tables=True), which makes them and changes nothing else.",
            )
        sessions, messages = tables.sessions, tables.messages
        for statement in _CREATE:
            db.execute(statement.format(sessions=sessions, messages=messages))
        _check_owners(db, sessions, messages)
        for session_id in _find_branched_sessions(db, messages):
            _copy_branches(db, sessions, messages, session_id)

    def follow(self, db: sqlite3.Connection, tables: Tables, session_id: str) -> None:
        """Bring the rows of `message_structure` up to date with the messages of a session."""
        _follow(db, tables.messages, session_id)

    def forget(self, db: sqlite3.Connection, session_id: str) -> None:
        """Record a clear of the session in the SDK's way, so that its own objects notice."""
        for table in _NAMES[:2]:
            db.execute(f"DELETE FROM {table} WHERE session_id = ?", (session_id,))
        db.execute(
            "INSERT INTO session_clear_generations (session_id, generation) VALUES (?, 1) "
            "ON CONFLICT (session_id) DO UPDATE SET generation = generation + 1",
            (session_id,),
        )

    def cells(self, db: sqlite3.Connection, session_id: str, prefix: str) -> dict[str, Cell]:
        """Return the costs kept by the SDK, by branch and turn."""
        return _usage_cells(db, session_id) if prefix == SDK_USAGE else {}


EXPECTED, MADE = TurnTables(are_made=False), TurnTables(are_made=True)


def _check_owners(db: sqlite3.Connection, sessions: str, messages: str) -> None:
    """Raise for tables that belong to another pair."""
    owner = db.execute("PRAGMA foreign_key_list(message_structure)").fetchall()
    owners = {as_text(row[3]): as_text(row[2]) for row in owner}
    if (owners.get("session_id", "").lower(), owners.get("message_id", "").lower()) != (
        sessions.lower(),
        messages.lower(),
    ):
        raise InvalidSettingError(
            f"the table message_structure of this file belongs to {' and '.join(sorted(owners.values()))!r}, not to "
            f"{sessions!r} and {messages!r}",
            "A file has one such table: give each pair of tables a file of its own.",
        )


def _find_branched_sessions(db: sqlite3.Connection, messages: str) -> list[str]:
    """Return sessions with branches of the SDK that were not copied yet."""
    found = db.execute(
        "SELECT DISTINCT session_id FROM message_structure s WHERE branch_id <> ? AND NOT EXISTS "
        f'(SELECT 1 FROM "{messages}_standfast_cells" c WHERE c.owner = ? || s.session_id AND c.name = ?)',
        (MAIN, "s", BRANCHES),
    )
    return [as_text(session_id) for (session_id,) in found.fetchall()]


def _copy_branches(db: sqlite3.Connection, sessions: str, messages: str, session_id: str) -> None:
    """Copy each branch of an SDK session into a session of its own, and record their ids."""
    names = db.execute(
        "SELECT branch_id, min(created_at) FROM message_structure WHERE session_id = ? GROUP BY branch_id "
        "ORDER BY 2, branch_id",
        (session_id,),
    ).fetchall()
    used = db.execute("SELECT branch_id FROM branch_reservations WHERE session_id = ?", (session_id,)).fetchall()
    made = {}
    for branch, at in [(as_text(branch), as_seconds(at)) for branch, at in names]:
        made[branch] = Branch(branch_session_id(session_id, branch, uuid4().hex), at)
        _copy_branch(db, sessions, messages, session_id, branch, made[branch].id)
    main = made.pop(MAIN, None) or Branch(branch_session_id(session_id, MAIN, uuid4().hex), 0.0)
    kept = Branches(main.id, MAIN, made, sorted({as_text(name) for (name,) in used} | made.keys()))
    db.execute(
        f'INSERT INTO "{messages}_standfast_cells" (owner, name, epoch, value) SELECT ?, ?, '
        f'coalesce((SELECT standfast_epoch FROM "{sessions}" WHERE session_id = ?), ?), ?',
        ("s" + session_id, BRANCHES, session_id, "", encode_branches(kept)),
    )


def _copy_branch(
    db: sqlite3.Connection, sessions: str, messages: str, session_id: str, branch: str, new_id: str
) -> None:
    db.execute(f'INSERT INTO "{sessions}" (session_id) VALUES (?)', (new_id,))
    if branch == MAIN:  # and whatever has no row there: it was written before there were branches
        chosen = (
            "m.id IN (SELECT message_id FROM message_structure WHERE session_id = :s AND branch_id = :b) OR m.id "
            "NOT IN (SELECT message_id FROM message_structure WHERE session_id = :s)"
        )
        rows = (
            f'SELECT :n, message_data, created_at FROM "{messages}" m WHERE session_id = :s AND ({chosen}) ORDER BY id'
        )
    else:
        rows = (
            f'SELECT :n, m.message_data, m.created_at FROM "{messages}" m JOIN message_structure t ON t.message_id = '
            "m.id WHERE m.session_id = :s AND t.session_id = :s AND t.branch_id = :b ORDER BY t.sequence_number"
        )
    copied = f'INSERT INTO "{messages}" (session_id, message_data, created_at) {rows}'
    db.execute(copied, {"n": new_id, "s": session_id, "b": branch})
    _follow(db, messages, new_id)


# --- following -------------------------------------------------------------------------------------------------------


def _follow(db: sqlite3.Connection, messages: str, session_id: str) -> None:
    for apart in ("branch_id < ?", "branch_id > ?"):  # two steps into the index, however many rows there are
        one = f"SELECT branch_id FROM message_structure WHERE session_id = ? AND {apart} LIMIT 1"
        if db.execute(one, (session_id, MAIN)).fetchone():
            raise SessionConflictError(
                f"the OpenAI Agents SDK has made a branch in session {session_id!r} while it was open here",
                "Open this file in a new process: each of the SDK's branches then becomes one of standfast's.",
            )
    last, sequence, turn = _without_stale_end(db, messages, session_id)
    rows = f'SELECT id, message_data FROM "{messages}" WHERE session_id = ? AND id > ? ORDER BY id'
    missing = db.execute(rows, (session_id, last)).fetchall()
    values: list[tuple[Any, ...]] = []
    for number, (row_id, data) in enumerate(missing, sequence + 1):
        item = _item(as_bytes(data))
        turn += is_user(item)
        values.append((session_id, row_id, MAIN, kind_of(item), number, turn, turn, tool_of(item)))
    db.executemany(
        "INSERT INTO message_structure (session_id, message_id, branch_id, message_type, sequence_number, "
        "user_turn_number, branch_turn_number, tool_name) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )


def _without_stale_end(db: sqlite3.Connection, messages: str, session_id: str) -> tuple[int, int, int]:
    """Remove rows of deleted messages from the end; return the first remaining row.

    The result has its message id, its sequence number and its turn.
    """
    newest = (
        "SELECT s.id, s.message_id, s.sequence_number, s.user_turn_number, m.id FROM message_structure s LEFT JOIN "
        f'"{messages}" m ON m.id = s.message_id AND m.session_id = s.session_id '
        "WHERE s.session_id = ? AND s.branch_id = ? ORDER BY s.sequence_number DESC LIMIT 1"
    )
    while (row := db.execute(newest, (session_id, MAIN)).fetchone()) is not None:
        if row[4] is not None:
            return row[1], row[2], row[3] or 0
        db.execute("DELETE FROM message_structure WHERE id = ?", (row[0],))
    return 0, 0, 0


def _item(data: bytes) -> Item:
    """Return the item of a message; data that is not an item is "other" for the SDK."""
    try:
        return decode(data)
    except CorruptJSON:
        return {}


# --- reading ---------------------------------------------------------------------------------------------------------


def _usage_cells(db: sqlite3.Connection, session_id: str) -> dict[str, Cell]:
    rows = db.execute(
        "SELECT branch_id, user_turn_number, requests, input_tokens, output_tokens, total_tokens, "
        "input_tokens_details, output_tokens_details FROM turn_usage WHERE session_id = ?",
        (session_id,),
    )
    found = {}
    for branch, turn, *counts, tokens_in, tokens_out in rows.fetchall():
        names = ("requests", "input_tokens", "output_tokens", "total_tokens")
        usage: dict[str, Any] = dict(zip(names, (count or 0 for count in counts), strict=True))
        usage["input_tokens_details"], usage["output_tokens_details"] = _details(tokens_in), _details(tokens_out)
        found[f"{SDK_USAGE}{turn}/{as_text(branch)}"] = Cell(encode_value(usage), alive=True)
    return found


def _details(stored: str | bytes | None) -> Any:
    try:
        return json.loads(stored) if stored else None
    except ValueError:
        return None
