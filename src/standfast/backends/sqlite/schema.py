"""The tables of one database file, and how an older file becomes a current one.

The sessions and messages tables and their index are the OpenAI Agents SDK's, to the letter; what standfast adds are
nullable columns that the SDK never names, and further tables beside them, named after the messages table so that
several pairs can share a file. There are no triggers, and nothing is derived from a number that only standfast keeps.

A migration is a numbered function. All that are missing run in one BEGIN IMMEDIATE; each only adds, so that a process
with an older release, or the SDK, keeps working on the file meanwhile. A file of a newer release is refused before
anything is changed.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from standfast.ground.errors import InvalidNameError, SchemaTooNewError, StoreUnavailableError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")

VERSIONS_TABLE = "standfast_schema"


@dataclass(frozen=True, eq=False)
class Tables:
    """The names of one pair of tables and of what belongs to it. All are quoted wherever they are used.

    `Tables.of` gives the same object for the same names, so that looking one up compares no strings.
    """

    sessions: str
    messages: str

    @staticmethod
    def of(sessions: str, messages: str) -> Tables:
        """The pair of these names, checked."""
        made = Tables(sessions, messages)
        made.check()
        return _known.setdefault((sessions, messages), made)

    def check(self) -> None:
        """Refuse names that are no identifiers, or that would meet each other or a table of standfast's own (A15)."""
        for name in (self.sessions, self.messages):
            if not isinstance(name, str) or not _NAME.match(name) or name.lower().startswith("sqlite_"):
                raise InvalidNameError(
                    f"{name!r} is not a table name",
                    "Use letters, digits and underscores, at most 63, not beginning with a digit or with sqlite_.",
                )
        taken = [VERSIONS_TABLE, f"idx_{self.messages}_session_id", *(self.own(kind) for kind in _OWN_TABLES)]
        names = [name.lower() for name in (self.sessions, self.messages, *taken)]  # SQLite ignores case in names
        if len(set(names)) != len(names):
            raise InvalidNameError(
                f"the tables {self.sessions!r} and {self.messages!r} meet each other or one that goes with them",
                "Give the sessions and the messages table different names of their own.",
            )

    def own(self, kind: str) -> str:
        """The name of a table that standfast adds for this pair."""
        return f"{self.messages}_standfast_{kind}"

    @cached_property
    def key(self) -> str:
        """What this pair is called in the table of versions."""
        return f"{self.sessions}/{self.messages}".lower()


_OWN_TABLES = (
    "writers",
    "writers_by_name",
    "batches",
    "generations",
    "archive",
    "leases",
    "runs",
    "run_log",
    "runs_updated",
)


_known: dict[tuple[str, str], Tables] = {}


def quoted(name: str) -> str:
    """A checked name, quoted for SQL."""
    return f'"{name}"'


# --- migrations ------------------------------------------------------------------------------


def _peer_tables(db: sqlite3.Connection, tables: Tables) -> None:
    """The SDK's own tables and index, where they are not there yet."""
    sessions, messages = quoted(tables.sessions), quoted(tables.messages)
    db.execute(
        f"CREATE TABLE IF NOT EXISTS {sessions} (session_id TEXT PRIMARY KEY, "
        "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
    )
    db.execute(
        f"CREATE TABLE IF NOT EXISTS {messages} (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
        "message_data TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
        f"FOREIGN KEY (session_id) REFERENCES {sessions} (session_id) ON DELETE CASCADE)"
    )
    index = quoted(f"idx_{tables.messages}_session_id")
    db.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {messages} (session_id, id)")


def _own_columns(db: sqlite3.Connection, tables: Tables) -> None:
    """Who wrote a row and as which of theirs, which generation it stands in for, and a session's incarnation.

    NULL: somebody who does not say; none, it was appended; one that standfast has not written to.
    """
    _add_column(db, tables.messages, "standfast_writer", "TEXT")
    _add_column(db, tables.messages, "standfast_ordinal", "INTEGER")
    _add_column(db, tables.messages, "standfast_replaces", "INTEGER")
    _add_column(db, tables.sessions, "standfast_epoch", "TEXT")


def _add_column(db: sqlite3.Connection, table: str, column: str, kind: str) -> None:
    names = {bytes(row[1]).decode() for row in db.execute(f"PRAGMA table_info({quoted(table)})")}
    if column not in names:
        db.execute(f"ALTER TABLE {quoted(table)} ADD COLUMN {column} {kind}")


def _own_tables(db: sqlite3.Connection, tables: Tables) -> None:
    """What each writer wrote, what was replaced, who holds a session, and saved runs."""

    def create(kind: str, columns: str, options: str = "WITHOUT ROWID") -> None:
        db.execute(f"CREATE TABLE IF NOT EXISTS {quoted(tables.own(kind))} ({columns}) {options}")

    create(
        "writers",
        "id INTEGER PRIMARY KEY, session_id TEXT NOT NULL, writer TEXT NOT NULL, count INTEGER NOT NULL, "
        "digests BLOB NOT NULL, last_batch INTEGER, first_id INTEGER NOT NULL",
        "",
    )
    index, writers = quoted(tables.own("writers_by_name")), quoted(tables.own("writers"))
    db.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {writers} (session_id, writer)")
    create(
        "batches",
        "id INTEGER PRIMARY KEY, previous INTEGER, start INTEGER NOT NULL, digests BLOB NOT NULL",
        "",
    )
    create(
        "generations",
        "session_id TEXT NOT NULL, number INTEGER NOT NULL, epoch TEXT NOT NULL, created_at TIMESTAMP NOT NULL, "
        "item_count INTEGER NOT NULL, PRIMARY KEY (session_id, number)",
    )
    create(
        "archive",
        "session_id TEXT NOT NULL, generation INTEGER NOT NULL, position INTEGER NOT NULL, message_data TEXT NOT NULL, "
        "created_at TIMESTAMP, standfast_writer TEXT, standfast_ordinal INTEGER, standfast_replaces INTEGER, "
        "PRIMARY KEY (session_id, generation, position)",
    )
    create("leases", "session_id TEXT PRIMARY KEY, number INTEGER NOT NULL, expires_at REAL NOT NULL, holder TEXT")
    create(
        "runs",
        "run_id TEXT PRIMARY KEY, revision INTEGER NOT NULL, status TEXT NOT NULL, session_id TEXT, "
        "agent TEXT NOT NULL, created_at TIMESTAMP NOT NULL, updated_at TIMESTAMP NOT NULL, head BLOB NOT NULL",
    )
    create(
        "run_log",
        "run_id TEXT NOT NULL, log TEXT NOT NULL, ordinal INTEGER NOT NULL, data BLOB NOT NULL, "
        "PRIMARY KEY (run_id, log, ordinal)",
    )
    index, runs = quoted(tables.own("runs_updated")), quoted(tables.own("runs"))
    db.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {runs} (updated_at, run_id)")


Migration = Callable[[sqlite3.Connection, Tables], None]

MIGRATIONS: tuple[tuple[Migration, ...], ...] = ((_peer_tables, _own_columns, _own_tables),)
# Entry n leads from version n to version n + 1. A released entry is never edited: a change is a new entry.

VERSION = len(MIGRATIONS)


def version_of(db: sqlite3.Connection, tables: Tables) -> int:
    """The version this pair of tables has in the file; 0 where standfast has not been yet."""
    known = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (VERSIONS_TABLE,)).fetchone()
    if known is None:
        return 0
    row = db.execute(f"SELECT version FROM {VERSIONS_TABLE} WHERE tables = ?", (tables.key,)).fetchone()
    version = 0 if row is None else int(row[0])
    if version > VERSION:
        raise SchemaTooNewError(
            f"the tables {tables.sessions!r} and {tables.messages!r} have layout {version} and this release knows "
            f"layouts up to {VERSION}; they were left as they are",
            "Upgrade standfast, or open another file.",
        )
    return version


def migrate(db: sqlite3.Connection, tables: Tables) -> bool:
    """Bring this pair of tables up to date; the caller has begun an immediate transaction.

    True if another program had made these tables before standfast saw them.
    """
    version = version_of(db, tables)
    if version == VERSION:
        return False
    named = "SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE"
    found = db.execute(named, (tables.messages,)).fetchone()
    foreign = version == 0 and found is not None
    if foreign and b"AUTOINCREMENT" not in bytes(found[0]).upper():
        raise StoreUnavailableError(
            f"the table {tables.messages!r} was made by a program that lets SQLite use row ids again (it has no "
            "AUTOINCREMENT): a history that changed could look unchanged. It was left as it is",
            "Give other table names or another file, and copy the conversations over.",
        )
    db.execute(f"CREATE TABLE IF NOT EXISTS {VERSIONS_TABLE} (tables TEXT PRIMARY KEY, version INTEGER NOT NULL)")
    for steps in MIGRATIONS[version:]:
        for step in steps:
            step(db, tables)
    db.execute(f"INSERT OR REPLACE INTO {VERSIONS_TABLE} (tables, version) VALUES (?, ?)", (tables.key, VERSION))
    return foreign
