"""Tables of a database file, and the upgrade of an older file.

The sessions and messages tables and their index are the OpenAI Agents SDK's, to the letter; what standfast adds is
nullable columns that the SDK never names, an index over two of them, and further tables beside them, named after the
messages table so that several pairs can share a file. There is not a single trigger, and nothing is derived from a
number that only standfast keeps.

What a session is made of: its rows are the messages, its incarnation (`epoch`) and its place in the listing
(`changed`) are columns of its row, kept generations are in the archive, and everything else is a cell.

All that is missing is made in one BEGIN IMMEDIATE, by the first process (A9). A file of a newer release is refused
before anything is changed.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from standfast._src.base.errors import CorruptRecordError, InvalidNameError, SchemaTooNewError, StoreUnavailableError
from standfast._src.base.new_layouts import version_to_write
from standfast._src.sessions.client.sdk_tables import SQLALCHEMY_VERSION, check_table_names
from standfast._src.sessions.storage import Cell

_LABEL = re.compile(r"[a-z_]+\Z")

VERSIONS_TABLE = "standfast_schema"
VERSION, BEFORE = 2, 2
"""The newest layout that this release reads, and the newest that the release before it reads. 1 was never released."""

OLDEST = 2
# What `make_own_tables` makes; the steps of `UPGRADES` do the rest.


class TablesBeside(Protocol):
    """Another program's tables about a pair's rows, which must follow every change.

    Every method is called inside the caller's open transaction.
    """

    def is_ready(self, db: sqlite3.Connection, tables: Tables) -> bool:
        """Return whether the tables have the required form."""
        ...

    def prepare(self, db: sqlite3.Connection, tables: Tables) -> None:
        """Give the tables the required form, or raise an error with the reason."""
        ...

    def follow(self, db: sqlite3.Connection, tables: Tables, session_id: str) -> None:
        """Update after rows of the session were added, removed or moved."""
        ...

    def forget(self, db: sqlite3.Connection, session_id: str) -> None:
        """The session was cleared."""
        ...

    def cells(self, db: sqlite3.Connection, session_id: str, prefix: str) -> Mapping[str, Cell]:
        """Return the tables' contents as cells with names of a given prefix."""
        ...


@dataclass(frozen=True, eq=False)
class Tables:
    """Names of a pair of tables and of the tables and indexes beside them. All are quoted in SQL.

    `Tables.of` gives the same object for the same names, so that looking one up compares no strings.
    """

    sessions: str
    messages: str
    beside: TablesBeside | None = None

    @staticmethod
    def of(sessions: str, messages: str, beside: TablesBeside | None = None) -> Tables:
        """Return the pair of the names, checked, with its follower."""
        made = Tables(sessions, messages, beside)
        made.check()
        return _known.setdefault((sessions, messages, beside), made)

    def check(self) -> None:
        """Refuse invalid identifiers, and names that collide with each other or with a table of
        standfast's own (A15).
        """
        check_table_names(self.sessions, self.messages)
        taken = [VERSIONS_TABLE, f"idx_{self.messages}_session_id", *(self.own(kind) for kind in _OWN)]
        names = [name.lower() for name in (self.sessions, self.messages, *taken)]  # SQLite ignores case in names
        if len(set(names)) != len(names):
            raise InvalidNameError(
                f"the tables {self.sessions!r} and {self.messages!r} meet each other or one that goes with them",
                "Give the sessions and the messages table different names of their own.",
            )

    def own(self, kind: str) -> str:
        """Return the name of a table or index added by standfast for the pair."""
        return f"{self.messages}_standfast_{kind}"

    @cached_property
    def key(self) -> str:
        """Name of the pair in the table of versions."""
        return f"{self.sessions}/{self.messages}".lower()


_OWN = ("cells", "cells_by_name", "archive", "by_change", "runs", "runs_by_change", "runs_by_session", "runs_waiting")

_known: dict[tuple[str, str, TablesBeside | None], Tables] = {}


def quote(name: str) -> str:
    """A checked name, quoted for SQL."""
    return f'"{name}"'


def label_value(prefix: str, label: str) -> str:
    """Return the SQL expression of a label's value. An index on a label is used only by the very same expression."""
    assert _LABEL.match(label), label
    return f"json_extract({prefix}labels, '$.{label}')"


WAITING = ("paused", "ready")
WAITS = f"{label_value('', 'status')} IN {WAITING}"
"""That a run waits for a person or a worker; the index over those is used only where a statement says the same."""


# --- making ------------------------------------------------------------------------------


def _peer_tables(db: sqlite3.Connection, tables: Tables) -> None:
    """Create the SDK's own tables and index if missing."""
    sessions, messages = quote(tables.sessions), quote(tables.messages)
    db.execute(
        f"CREATE TABLE IF NOT EXISTS {sessions} (session_id TEXT PRIMARY KEY, "
        "created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
    )
    db.execute(
        f"CREATE TABLE IF NOT EXISTS {messages} (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
        "message_data TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP, "
        f"FOREIGN KEY (session_id) REFERENCES {sessions} (session_id) ON DELETE CASCADE)"
    )
    index = quote(f"idx_{tables.messages}_session_id")
    db.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {messages} (session_id, id)")


def _own_columns(db: sqlite3.Connection, tables: Tables) -> None:
    """Add standfast's columns. A row gets its writer, its number and the generation replaced by the row. A session gets
    its incarnation, its edition, its place in the listing, the newest row at the time, and its labels.

    NULL in a row's columns: an unknown writer; no replaced generation, the row was appended. NULL in a session's
    columns: standfast has not written to it.
    """
    columns = {
        tables.messages: (("writer", "TEXT"), ("ordinal", "INTEGER"), ("replaces", "INTEGER")),
        tables.sessions: (
            ("epoch", "TEXT"),
            ("edition", "INTEGER"),
            ("changed", "INTEGER"),
            ("seen", "INTEGER"),
            ("labels", "TEXT"),
        ),
    }
    for table, wanted in columns.items():
        there = columns_of(db, table)
        for column, kind in wanted:
            if f"standfast_{column}" not in there:
                db.execute(f"ALTER TABLE {quote(table)} ADD COLUMN standfast_{column} {kind}")
    # The id is in it for sessions that have no number yet: a row of another program without any messages.
    index, sessions = quote(tables.own("by_change")), quote(tables.sessions)
    db.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {sessions} (standfast_changed, session_id)")


def columns_of(db: sqlite3.Connection, table: str) -> set[str]:
    """The names of a table's columns."""
    return {bytes(row[1]).decode() for row in db.execute(f"PRAGMA table_info({quote(table)})")}


def make_own_tables(db: sqlite3.Connection, tables: Tables, *, temporary: bool = False) -> None:
    """Make the tables of cells, kept generations and saved runs; `temporary`: for this connection only."""

    def create(kind: str, columns: str, options: str = "") -> str:
        what = "TEMP TABLE" if temporary else "TABLE"
        db.execute(f"CREATE {what} IF NOT EXISTS {quote(tables.own(kind))} ({columns}) {options}")
        return quote(tables.own(kind))

    # A table with row ids and an index beside it, not one ordered by name: cells that change often were made at about
    # the same time and lie close together, so that a group of many sessions dirties few pages.
    cells = create(
        "cells",
        "id INTEGER PRIMARY KEY, owner TEXT NOT NULL, name TEXT NOT NULL, epoch TEXT NOT NULL, value BLOB NOT NULL",
    )
    db.execute(f"CREATE UNIQUE INDEX IF NOT EXISTS {quote(tables.own('cells_by_name'))} ON {cells} (owner, name)")
    create(
        "archive",
        "session_id TEXT NOT NULL, generation INTEGER NOT NULL, position INTEGER NOT NULL, message_data TEXT NOT "
        "NULL, created_at TIMESTAMP, standfast_writer TEXT, standfast_ordinal INTEGER, standfast_replaces INTEGER, "
        "PRIMARY KEY (session_id, generation, position)",
        "WITHOUT ROWID",
    )
    runs = create(
        "runs",
        "run_id TEXT PRIMARY KEY, created_at TIMESTAMP NOT NULL, updated_at TIMESTAMP NOT NULL, epoch TEXT NOT NULL, "
        "changed INTEGER NOT NULL, labels TEXT",
    )
    db.execute(f"CREATE INDEX IF NOT EXISTS {quote(tables.own('runs_by_change'))} ON {runs} (changed)")
    session = label_value("", "session")  # every run looks for unfinished ones of its session
    db.execute(f"CREATE INDEX IF NOT EXISTS {quote(tables.own('runs_by_session'))} ON {runs} ({session}, changed)")
    waiting = quote(tables.own("runs_waiting"))  # of any number that have ended, none is in it
    db.execute(f"CREATE INDEX IF NOT EXISTS {waiting} ON {runs} ({label_value('', 'status')}, changed) WHERE {WAITS}")
    # And on a server's conversation; a file of before has no such index, and reads every run in its place.
    server = label_value("", "conversation")
    index = quote(tables.own("runs_by_conversation"))
    db.execute(f"CREATE INDEX IF NOT EXISTS {index} ON {runs} ({server}, changed) WHERE {server} IS NOT NULL")


def put_in_order(db: sqlite3.Connection, tables: Tables) -> None:
    """Number the sessions older than our tables, by their newest record: every later write is newer."""
    sessions, messages = quote(tables.sessions), quote(tables.messages)
    (changed,) = db.execute(f"SELECT coalesce(max(standfast_changed), 0) FROM {sessions}").fetchone()
    found = db.execute(
        f"SELECT rowid FROM {sessions} s WHERE standfast_changed IS NULL "
        f"ORDER BY (SELECT max(id) FROM {messages} m WHERE m.session_id = s.session_id), updated_at"
    ).fetchall()
    db.executemany(
        f"UPDATE {sessions} SET standfast_changed = ? WHERE rowid = ?",
        [(number, row_id) for number, (row_id,) in enumerate(found, changed + 1)],
    )
    db.execute(f"UPDATE {sessions} SET standfast_seen = (SELECT max(id) FROM {messages})")


def version_of(db: sqlite3.Connection, tables: Tables) -> int:
    """Return the version of the pair of tables in the file; 0 before standfast's first use."""
    _refuse_views(db, tables)
    version = _version_in(db, VERSIONS_TABLE, tables)
    if version >= SQLALCHEMY_VERSION:
        raise SchemaTooNewError(
            f"SQLAlchemySession keeps its own records beside {tables.messages!r}; they were left as they are",
            "Open these tables with SQLAlchemySession; open_store takes sqlite+aiosqlite:///….",
        )
    if version > VERSION:
        raise SchemaTooNewError(
            f"the tables {tables.sessions!r} and {tables.messages!r} have layout {version} and this release knows "
            f"layouts up to {VERSION}; they were left as they are",
            "Upgrade standfast, or open another file.",
        )
    return version


def _version_in(db: sqlite3.Connection, versions: str, tables: Tables) -> int:
    known = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (versions,)).fetchone()
    row = known and db.execute(f"SELECT version FROM {versions} WHERE tables = ?", (tables.key,)).fetchone()
    if row and type(row[0]) is not int:
        raise CorruptRecordError(
            f"the layout of the tables {tables.sessions!r} and {tables.messages!r} cannot be read: {versions} holds "
            "no number; they were left as they are",
            f"Restore the file from a backup, or put the layout's number ({VERSION}) into that table.",
        )
    return int(row[0]) if row else 0


def _refuse_views(db: sqlite3.Connection, tables: Tables) -> None:
    """Refuse a view in place of a table: its query would be executed, and might never end."""
    names = [VERSIONS_TABLE, tables.sessions, tables.messages, *map(tables.own, _OWN)]
    marks = ", ".join("?" * len(names))
    there = f"SELECT name FROM main.sqlite_master WHERE type = 'view' AND name COLLATE NOCASE IN ({marks})"
    found = db.execute(there, names).fetchone()
    if found is not None:
        raise CorruptRecordError(
            f"{bytes(found[0]).decode(errors='replace')!r} is a view and must be a table; nothing was read",
            "Do not use this file: it was changed by another program. Restore it from a backup.",
        )


UPGRADES: dict[int, Callable[[sqlite3.Connection, Tables], None]] = {}
"""From layout N to N + 1, in the transaction that the caller has begun."""


def _choose_version() -> int:
    return version_to_write(VERSION, BEFORE)


def migrate(db: sqlite3.Connection, tables: Tables) -> bool:
    """Bring this pair of tables up to date; the caller has begun an immediate transaction.

    True if another program had made these tables before standfast saw them.
    """
    version = version_of(db, tables)
    foreign = False if version >= _choose_version() else _brought_up_to_date(db, tables, version)
    if tables.beside is not None:
        tables.beside.prepare(db, tables)
    return foreign


def is_current(db: sqlite3.Connection, tables: Tables) -> bool:
    """Return whether the pair of tables needs no change."""
    if version_of(db, tables) < _choose_version():
        return False
    return tables.beside is None or tables.beside.is_ready(db, tables)


def _brought_up_to_date(db: sqlite3.Connection, tables: Tables, version: int) -> bool:
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
    if version == 0:
        for step in (_peer_tables, _own_columns, make_own_tables, put_in_order):
            step(db, tables)
    target = _choose_version()
    for older in range(max(version, OLDEST), target):
        UPGRADES[older](db, tables)
    db.execute(f"INSERT OR REPLACE INTO {VERSIONS_TABLE} (tables, version) VALUES (?, ?)", (tables.key, target))
    return foreign
