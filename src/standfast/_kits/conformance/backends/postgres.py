"""`PostgresSession` for the kit: a database in which each check has a schema of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import sql

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.backends.sqlite import BAD_TABLES, NO_EXPIRY, TABLES
from standfast._kits.operators.open_store import open_store
from standfast._src.sessions.backends.postgres.postgres_errors import refused_error, unreachable
from standfast._src.sessions.backends.postgres.postgres_session import PostgresSession
from standfast._src.sessions.backends.postgres.schema import Tables

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store

CONNECT_S_MAX = 5
LOCK_S_MAX = 30
DROPS_MAX = 10
# How long dropping waits for a statement of a client that was killed.


class OnPostgres(Backend):
    """A store in a PostgreSQL database, and a schema for each check."""

    persistent = True
    opens_before_setup = True
    closes_when_called = True
    remote = True
    any_bytes = False
    names: Mapping[str, Any] = TABLES
    bad_names: tuple[Mapping[str, Any], ...] = BAD_TABLES
    not_applicable: Mapping[str, str] = NO_EXPIRY

    url = "postgresql://127.0.0.1:1/none"
    """The way of the sessions to the server. Before `setup` no session asks it."""
    direct = ""
    """The way of the faults to the server."""
    scratch = "kit"
    """Beginning of every schema's name."""

    @property
    def schema(self) -> str:
        """The schema of the present check."""
        return f"{self.scratch}_{self.unique}"

    def setup(self) -> None:
        """Create the schema of the check."""
        with connect(self.direct) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))

    def teardown(self) -> None:
        """Drop the schema of the check."""
        with connect(self.direct) as connection:
            drop_schema(connection, self.schema)

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.direct, autocommit=True, options=f"-c search_path={self.schema}") as connection:
            yield connection

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Put a text behind the newest record, as a faulty program would."""
        with self._connection() as connection:
            connection.execute(
                "INSERT INTO agent_messages (session_id, message_data) VALUES (%s, %s)", (session_id, data.decode())
            )


class PostgresBackend(OnPostgres):
    """`PostgresSession` in a database."""

    name = "PostgresSession"
    patience_s = 250  # a loaded machine starts fifty processes and connections one after the other
    bad_names = (*BAD_TABLES, {"schema": "no; DROP TABLE agent_messages"}, {"schema": ""})

    def open(self, session_id: str, **options: Any) -> Any:
        """Return a session in the schema of the check."""
        return PostgresSession(session_id, url=self.url, **{"schema": self.schema, **options})

    def whole_store(self, *, read_only: bool = False) -> Store:
        """Open the schema of the check."""
        return open_store(f"{self.url}{'&' if '?' in self.url else '?'}schema={self.schema}", read_only=read_only)

    def raw_records(self, session_id: str) -> list[bytes]:
        """Every record, in the order of the history."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT message_data FROM agent_messages WHERE session_id = %s "
                "ORDER BY standfast_place NULLS LAST, id", (session_id,)
            )  # fmt: skip
            return [text.encode() for (text,) in rows]

    def shift_times(self, session_id: str, seconds: float) -> None:
        """Move the times in the SDK's tables and in standfast's own."""
        names = Tables.of("agent_sessions", "agent_messages", self.schema).own + 'names"'
        by = {"by": timedelta(seconds=seconds), "id": session_id}
        with self._connection() as connection:
            connection.execute(
                "UPDATE agent_messages SET created_at = created_at + %(by)s WHERE session_id = %(id)s", by
            )
            connection.execute(
                "UPDATE agent_sessions SET created_at = created_at + %(by)s, updated_at = updated_at + %(by)s "
                "WHERE session_id = %(id)s", by
            )  # fmt: skip
            connection.execute(
                f"UPDATE {names} SET created = created + %(by)s, updated = updated + %(by)s "  # noqa: S608 — our own
                "WHERE kind = 'session' AND id = %(id)s", by
            )  # fmt: skip

    def stored_times(self, session_id: str) -> tuple[datetime, datetime] | None:
        """Read the times of the SDK's table."""
        with self._connection() as connection:
            found = connection.execute(
                "SELECT created_at::timestamptz, updated_at::timestamptz FROM agent_sessions WHERE session_id = %s",
                (session_id,),
            ).fetchone()
        return None if found is None else (found[0], found[1])

    @contextmanager
    def watch_durability(self) -> Iterator[list[str]]:
        """Ask the server, after the fact, for what a commit waits."""
        complaints: list[str] = []
        yield complaints
        with self._connection() as connection:
            row = connection.execute("SHOW synchronous_commit").fetchone()
            if row is None or row[0] != "on":
                complaints.append(f"synchronous_commit is {row}")


@contextmanager
def connect(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a connection for faults and verifications; errors have the words of the backend."""
    try:
        with psycopg.connect(url, autocommit=True, connect_timeout=CONNECT_S_MAX, prepare_threshold=None) as connection:
            yield connection
    except psycopg.OperationalError as error:
        raise (refused_error(error) if error.sqlstate else unreachable(error)) from error
    except psycopg.Error as error:
        raise refused_error(error) from error


def drop_schema(connection: psycopg.Connection[Any], schema: str) -> None:
    """Drop a schema with its contents, beside the last request of a session that was just closed."""
    for left in reversed(range(DROPS_MAX)):
        try:
            with connection.transaction():
                connection.execute(f"SET LOCAL lock_timeout = '{LOCK_S_MAX}s'")
                connection.execute(sql.SQL("DROP SCHEMA IF EXISTS {} CASCADE").format(sql.Identifier(schema)))
        except psycopg.errors.DeadlockDetected:
            if not left:
                raise
        else:
            return
