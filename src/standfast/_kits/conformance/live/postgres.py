"""Verification of a PostgreSQL database, in schemas of their own."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg import sql

from standfast._kits.conformance.backends.postgres import OnPostgres, connect, drop_schema
from standfast._kits.conformance.live.scratch_space import (
    HARMLESS,
    PREFIX,
    SILENT_S,
    Beat,
    Leftover,
    Site,
    base_of,
    new_name,
)
from standfast._kits.operators.store_url import StoreURL, only
from standfast._src.base.errors import StoreUnavailableError
from standfast._src.sessions.backends.sqlite.process_liveness import is_gone, this_process

PERMITTED = HARMLESS | {"processes", "import", "inject_record"}


class PostgresSite(Site):
    """Scratch schema in a database, and a schema beside it for each check."""

    def __init__(self, url: StoreURL, live: OnPostgres) -> None:
        only(url, "sessions_table", "messages_table", "schema")
        # SQLAlchemy's way of naming a driver: the database is the same.
        live.url = live.direct = f"{url.scheme}://{url.text.partition('://')[2]}"
        live.permitted = PERMITTED
        self._live = live
        self._beat: Beat | None = None
        super().__init__(self._live)
        self.where = f"{url.shown}, in schemas whose names begin with {PREFIX}"
        self.writes = (
            "A schema with tables and functions for each check, with some thousand small rows; each is dropped after "
            "its check.",
            "Tables of other schemas are neither read nor written. Making and dropping tables leaves work for "
            "autovacuum in the system catalogue.",
        )

    def leftovers(self) -> list[Leftover]:
        """Return scratch names with schemas; a name without a sign of life is dead."""
        with connect(self._live.url) as connection:
            self._check_rights(connection)
            rows = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", (PREFIX,)
            ).fetchall()
            names = {base_of(row[0]) for row in rows} - {None}
            return [Leftover(name, _is_dead(connection, name)) for name in sorted(filter(None, names))]

    @staticmethod
    def _check_rights(connection: psycopg.Connection[Any]) -> None:
        row = connection.execute(
            "SELECT has_database_privilege(current_database(), 'CREATE'), current_user, current_database()"
        ).fetchone()
        if row is not None and not row[0]:
            raise StoreUnavailableError(
                f"{row[1]!r} may not create a schema in the database {row[2]!r}, and checks are made in nothing else",
                "Verify as a role that may (GRANT CREATE ON DATABASE), or another database of the same server.",
            )

    def begin(self) -> None:
        """Make the schema that marks a new scratch name as used, and renew the mark."""
        self.name = self._live.scratch = new_name()
        with connect(self._live.url) as connection, connection.transaction():
            connection.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.name)))
            connection.execute(
                sql.SQL("CREATE TABLE {} (process text NOT NULL, at timestamptz NOT NULL)").format(_alive(self.name))
            )
            connection.execute(
                sql.SQL("INSERT INTO {} VALUES (%s, now())").format(_alive(self.name)), (this_process() or "",)
            )
        self._beat = Beat(self._say)

    def _say(self) -> None:
        with connect(self._live.url) as connection:
            connection.execute(sql.SQL("UPDATE {} SET at = now()").format(_alive(self.name)))

    def remove(self, name: str) -> None:
        """Drop every schema of the name, and the marking one last."""
        assert base_of(name) == name, name
        with connect(self._live.url) as connection:
            rows = connection.execute(
                "SELECT nspname FROM pg_namespace WHERE starts_with(nspname, %s)", (f"{name}_",)
            ).fetchall()
            for (schema,) in rows:
                drop_schema(connection, schema)
            drop_schema(connection, name)

    def end(self) -> None:
        """Remove our own."""
        if self._beat is not None:
            self._beat.stop()
        if self.name:
            self.remove(self.name)


def _alive(name: str) -> sql.Identifier:
    return sql.Identifier(name, "alive")


def _is_dead(connection: psycopg.Connection[Any], name: str) -> bool:
    """Return True if the scratch name's table has no sign of life, an old one, or a crashed process's name."""
    try:
        row = connection.execute(
            sql.SQL("SELECT process, now() - at > make_interval(secs => %s) FROM {}").format(_alive(name)), (SILENT_S,)
        ).fetchone()
    except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
        return True
    except psycopg.errors.InsufficientPrivilege:
        return False  # another role's: theirs to remove
    return row is None or bool(row[1]) or is_gone(row[0])
