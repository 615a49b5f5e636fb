"""Names of the tables, and their installation and upgrades."""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted

from __future__ import annotations

from importlib.resources import files
from typing import Any, NamedTuple, Self

import psycopg

from standfast._src.base.errors import SchemaTooNewError, StoreUnavailableError
from standfast._src.base.new_layouts import version_to_write
from standfast._src.sessions.client.sdk_tables import (
    MAKING_LOCK,
    SQLALCHEMY_VERSION,
    check_table_names,
    check_two_tables,
    own_stem,
)

VERSION, BEFORE = 2, 2
"""The newest layout that this release reads, and the newest that the release before it reads. 1 was never released."""

OLDEST = 2
# What `schema.sql` makes; the steps of `UPGRADES` do the rest.

UPGRADES: dict[int, str] = {}
"""SQL from layout N to N + 1; `{own}` is what names of ours begin with."""


class Tables(NamedTuple):
    """The SDK's two tables, and the names of our tables beside them."""

    sessions: str
    messages: str
    schema: str | None = None

    @classmethod
    def of(cls, sessions: str, messages: str, schema: str | None = None) -> Self:
        """The names, checked (A15)."""
        check_two_tables(sessions, messages)
        if schema is not None:
            check_table_names(schema)
        return cls(sessions, messages, schema)

    def _qualify(self, name: str) -> str:
        return f'"{name}"' if self.schema is None else f'"{self.schema}"."{name}"'

    @property
    def s(self) -> str:
        """The table of sessions, quoted."""
        return self._qualify(self.sessions)

    @property
    def m(self) -> str:
        """The table of messages, quoted."""
        return self._qualify(self.messages)

    @property
    def _stem(self) -> str:
        return own_stem(self.sessions, self.messages)

    @property
    def own(self) -> str:
        """Quoted beginning of our names; the quotation mark is left open."""
        return self._qualify(self._stem)[:-1]

    def sql(self) -> str:
        """Return the SQL for the tables, columns and functions."""
        text = (files("standfast._src.sessions.backends.postgres") / "schema.sql").read_text("utf-8")
        parts = {
            "{s}": self.s,
            "{m}": self.m,
            "{own}": self.own,
            "{seq}": f'{self.own}seq"',
            "{time_index}": f'"idx_{self.messages[:50]}_session_time"',
            "{place_index}": f'"{self._stem}place"',
            "{seq_index}": f'"{self._stem}seq_index"',
            "{label_index}": f'"{self._stem}session_index"',
            "{server_index}": f'"{self._stem}conversation_index"',
        }
        for mark, name in parts.items():
            text = text.replace(mark, name)
        return text


def install(connection: psycopg.Connection[Any], tables: Tables, *, create: bool) -> None:
    """Create or upgrade the tables, one process at a time.

    A look comes first: DDL that finds nothing to do still takes exclusive locks, and deadlocks with writers.
    """
    target = version_to_write(VERSION, BEFORE)
    if _version(connection, tables) >= target:
        return
    if not create:
        raise StoreUnavailableError(
            f"the tables {tables.s} and {tables.m} have no additions of standfast",
            "Run the SQL that PostgresSession.schema_sql() gives, or open the session with create_tables=True.",
        )
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock($1)", (MAKING_LOCK,))
        version = _version(connection, tables)
        if version < OLDEST:
            if tables.schema is not None:
                connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{tables.schema}"')
            connection.execute(tables.sql())
        for older in range(max(version, OLDEST), target):
            connection.execute(UPGRADES[older].replace("{own}", tables.own))
            connection.execute(f'INSERT INTO {tables.own}version" VALUES ({older + 1}) ON CONFLICT DO NOTHING')


def _version(connection: psycopg.Connection[Any], tables: Tables) -> int:
    """Return the stored version of our additions; 0 without any."""
    name = f'{tables.own}version"'
    row = connection.execute("SELECT to_regclass($1) IS NOT NULL", (name,)).fetchone()
    if row is None or not row[0]:
        return 0
    row = connection.execute(f"SELECT max(version) FROM {name}").fetchone()
    found = int(row[0] or 0) if row is not None else 0
    if found >= SQLALCHEMY_VERSION:
        raise SchemaTooNewError(
            f"SQLAlchemySession keeps its own records beside {tables.m}; they were left as they are",
            "Open these tables with SQLAlchemySession; open_store takes postgresql+psycopg://….",
        )
    if found > VERSION:
        raise SchemaTooNewError(
            f"the tables of {tables.m} were written by a newer standfast (version {found}, this one knows {VERSION})",
            "Upgrade standfast in this process.",
        )
    return found
