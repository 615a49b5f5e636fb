"""Read a file of the OpenAI Agents SDK, without tables of ours, and leave every byte unchanged.

A connection that may write nothing may still have temporary tables and views, in its own memory, and a name without a
schema means the temporary one first. So the tables that the statements of `statements` name are made there: the SDK's
messages as a view with the columns that are missing, what standfast keeps beside them as empty tables. Only the
sessions are copied, one row for each.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

import sqlite3

from standfast._src.base.errors import NotADatabaseError
from standfast._src.sessions.backends.sqlite import schema
from standfast._src.sessions.backends.sqlite.schema import Tables, quote


def prepare(db: sqlite3.Connection, path: str, tables: Tables) -> int:
    """Prepare the connection to answer as if to a file of today's layout; return the file's actual layout.

    Raises SchemaTooNewError for a newer one, and NotADatabaseError if it holds no such tables at all.
    """
    version = schema.version_of(db, tables)
    if version:  # every layout that this release knows has the tables that are read
        return version
    there = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name IN (?, ?) COLLATE NOCASE"
    if db.execute(there, (tables.sessions, tables.messages)).fetchone()[0] < 2:
        raise NotADatabaseError(
            f"{path!r} is a database without the tables {tables.sessions!r} and {tables.messages!r}: it holds no "
            "conversations of standfast's or of the OpenAI Agents SDK's",
            "Check the path; other table names are given as ?sessions_table=…&messages_table=… behind it.",
        )
    db.execute("PRAGMA temp_store=MEMORY")
    db.execute("BEGIN")
    _make_views(db, tables)
    schema.make_own_tables(db, tables, temporary=True)
    schema.put_in_order(db, tables)
    db.execute("COMMIT")
    return version


def _make_views(db: sqlite3.Connection, tables: Tables) -> None:
    """Show the SDK's tables under their own names, with the columns that standfast adds."""
    sessions, messages = quote(tables.sessions), quote(tables.messages)
    db.execute(
        f"CREATE TEMP TABLE {sessions} AS SELECT session_id, created_at, updated_at, NULL AS standfast_epoch, "
        "NULL AS standfast_edition, CAST(NULL AS INTEGER) AS standfast_changed, CAST(NULL AS INTEGER) AS "
        f"standfast_seen, NULL AS standfast_labels FROM main.{sessions}"
    )
    db.execute(f"CREATE UNIQUE INDEX temp.{quote(tables.own('ids'))} ON {sessions} (session_id)")
    db.execute(f"CREATE INDEX temp.{quote(tables.own('by_change'))} ON {sessions} (standfast_changed, session_id)")
    own = ", ".join(f"NULL AS standfast_{column}" for column in ("writer", "ordinal", "replaces"))
    db.execute(
        f"CREATE TEMP VIEW {messages} AS SELECT id, session_id, message_data, created_at, {own} FROM main.{messages}"
    )
