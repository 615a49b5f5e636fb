"""Verifying a PostgreSQL database: schemas of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from standfast._kits.conformance.backend import Backend
from standfast._kits.operators.open_store import open_store
from standfast._kits.operators.store_url import StoreURL, only
from standfast._kits.verifying.scratch_space import HARMLESS, PREFIX, SILENT_S, Beat, Leftover, Site, base_of, new_name
from standfast._src.base.errors import StoreUnavailableError
from standfast._src.sessions.backends.postgres.postgres_errors import refused_error, unreachable
from standfast._src.sessions.backends.postgres.postgres_session import PostgresSession
from standfast._src.sessions.backends.sqlite.process_liveness import is_gone, this_process

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store

CONNECT_S_MAX = 5
LOCK_S_MAX = 30
DROPS_MAX = 10
# How long removing waits for a statement of a client that was killed.


class LivePostgres(Backend):
    """Database with other users: every check has a schema with a name below the scratch name."""

    name = "postgresql"
    persistent = True
    closes_when_called = True
    remote = True
    any_bytes = False
    permitted = HARMLESS | {"processes", "import", "inject_record"}
    names: Mapping[str, Any] = {"sessions_table": "conversations", "messages_table": "turns"}
    not_applicable: Mapping[str, str] = {"A20": "no expiry can be configured"}

    def __init__(self, url: str) -> None:
        self.url = url
        self.scratch = ""
        self.unique = "probe"

    @property
    def schema(self) -> str:
        """The schema of the check at hand."""
        return f"{self.scratch or PREFIX}_{self.unique}"

    def open(self, session_id: str, **options: Any) -> PostgresSession:
        """A session in the check's schema."""
        return PostgresSession(session_id, url=self.url, schema=self.schema, **options)

    def whole_store(self, *, read_only: bool = False) -> Store:
        """The check's schema."""
        return open_store(f"{self.url}{'&' if '?' in self.url else '?'}schema={self.schema}", read_only=read_only)

    def teardown(self) -> None:
        """Remove the check's schema."""
        if not self.scratch:
            return  # only its abilities were asked for: nothing was opened
        with connect(self.url) as connection:
            drop(connection, self.schema)

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Put a text behind the newest record, as a faulty program would."""
        table = sql.Identifier(self.schema, "agent_messages")
        with connect(self.url) as connection:
            connection.execute(
                sql.SQL("INSERT INTO {} (session_id, message_data) VALUES (%s, %s)").format(table),
                (session_id, data.decode()),
            )


class PostgresSite(Site):
    """Scratch schema in a database, and a schema beside it for each check."""

    def __init__(self, url: StoreURL, live: type[LivePostgres] = LivePostgres) -> None:
        only(url, "sessions_table", "messages_table", "schema")
        self._url = url
        # SQLAlchemy's way of naming a driver: the database is the same.
        plain = f"{url.scheme}://{url.text.partition('://')[2]}"
        self._live = live(plain)
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
                drop(connection, schema)
            drop(connection, name)

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


@contextmanager
def connect(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection for the verification; errors have the backend's words."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S_MAX, prepare_threshold=None) as connection:
            yield connection
    except psycopg.OperationalError as error:
        raise (refused_error(error) if error.sqlstate else unreachable(error)) from error
    except psycopg.Error as error:
        raise refused_error(error) from error


def drop(connection: psycopg.Connection[Any], schema: str) -> None:
    """Drop a scratch schema with its contents."""
    assert base_of(schema) is not None, schema
    for left in reversed(range(DROPS_MAX)):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{LOCK_S_MAX}s'")
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        except psycopg.errors.DeadlockDetected:  # with the last question of a session that was just closed
            if not left:
                raise
        else:
            return
