"""`SQLAlchemySession` for the kit: on an SQLite file, and on PostgreSQL and MariaDB through a proxy."""

from __future__ import annotations

import sqlite3
import sqlite3.dbapi2
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pymysql
from agents.extensions.memory import SQLAlchemySession as PeerSession
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from standfast._kits.conformance.network import Networked
from standfast._src.sessions.backends.sqlalchemy.dialects import ID_CHARS_MAX
from standfast._src.sessions.backends.sqlalchemy.sqlalchemy_session import SQLAlchemySession
from standfast._src.sessions.backends.sqlalchemy.tables import Tables
from standfast.conformance import Backend, message
from standfast.conformance.sqlite_file import SQLiteFile
from tests.conformance.kit_backends import BAD_TABLES, TABLES
from tests.conformance.server_backends import through
from tests.helpers import mariadb, servers

NO_EXPIRY = {"A20": "no expiry can be configured"}

SHOWN_ON_SQLITE = (
    "A1_any", "A17_any", "A18_different", "A21", "A23_every", "A5_a_writer_killed", "B3_a_process_killed",
    "B1_an_append_repeated_after_a_kill", "A13_a_call_past_its_deadline",
)  # fmt: skip
# All databases run the same code. On a server these take minutes: thousands of round trips, dozens of processes. The
# check of deadlines allows 0.3 s for a first operation, which needs a connection and some twenty round trips here: on a
# busy machine that is too little, and says nothing about deadlines.


class SQLAlchemySQLite(SQLiteFile):
    name = "SQLAlchemySession on SQLite"
    patience_s = 250  # the generated checks make some ten thousand statements, each its own way through SQLAlchemy
    closes_when_called = True
    names = TABLES
    bad_names = BAD_TABLES
    not_applicable: Mapping[str, str] = NO_EXPIRY
    not_claimed: Mapping[str, str] = {
        "B16": "a file that is only read is still opened for writing, and its log is written into it when it is closed",
    }

    @property
    def url(self) -> str:
        return f"sqlite+aiosqlite:///{self.path}"

    def open(self, session_id: str, **options: Any) -> SQLAlchemySession:
        url = self.url if hasattr(self, "folder") else "sqlite+aiosqlite:///none.db"
        return SQLAlchemySession.from_url(session_id, url=url, create_tables=True, **options)

    def whole_store(self, *, read_only: bool = False) -> Any:
        return Backend.whole_store(self, read_only=read_only)  # a path alone would mean SQLiteSession's tables

    def peer(self, session_id: str) -> PeerSession:
        return PeerSession.from_url(session_id, url=self.url, create_tables=True, engine_kwargs={"poolclass": NullPool})

    def shift_times(self, session_id: str, seconds: float) -> None:
        super().shift_times(session_id, seconds)
        names = Tables("agent_sessions", "agent_messages", "sqlite").n.name
        with self._connection() as connection:
            connection.execute(
                f"UPDATE {names} SET created = created + :by, updated = updated + :by WHERE id = :id",
                {"by": seconds, "id": session_id},
            )

    @contextmanager
    def watch_durability(self) -> Iterator[list[str]]:
        connect = sqlite3.dbapi2.connect
        with super().watch_durability() as complaints:
            sqlite3.dbapi2.connect = sqlite3.connect  # where SQLAlchemy looks for it
            try:
                yield complaints
            finally:
                sqlite3.dbapi2.connect = connect

    def handed_in(self, session_id: str) -> tuple[SQLAlchemySession, Callable[[], Awaitable[Any]]]:
        engine = create_async_engine(self.url)

        async def still_works() -> None:
            again = SQLAlchemySession(session_id, engine=engine, create_tables=True)
            await again.add_items([message("again")])
            assert len(await again.get_items()) == 3
            await engine.dispose()

        return SQLAlchemySession(session_id, engine=engine, create_tables=True), still_works


class SQLAlchemyPostgres(Networked):
    name = "SQLAlchemySession on PostgreSQL"
    opens_before_setup = True
    patience_s = 400  # the generated checks make some ten thousand statements, each a round trip
    persistent = True
    closes_when_called = True
    any_bytes = False
    names = TABLES
    bad_names = BAD_TABLES
    not_applicable: Mapping[str, str] = NO_EXPIRY
    driver = "asyncpg"
    url = ""
    direct = ""

    def setup(self) -> None:
        self.direct = servers.postgres_url()
        with psycopg.connect(self.direct, autocommit=True) as connection:
            connection.execute(f'CREATE SCHEMA IF NOT EXISTS "{self.schema}"')
        # The tables are made here: a check that allows an operation 0.3 s does not mean the very first one. That first
        # writers make them together is shown on SQLite, and in sessions/backends/sqlalchemy/test_session.py.
        engine = create_engine(
            self.direct.replace("postgresql://", "postgresql+psycopg://"),
            connect_args={"options": f"-c search_path={self.schema}"},
        )
        with engine.begin() as connection:
            Tables("agent_sessions", "agent_messages", "postgresql").install(connection, create=True)
        engine.dispose()
        self.proxy, self.url = through(self.direct, lambda sent: b"COMMIT;" in sent)

    def teardown(self) -> None:
        self.proxy.close()
        servers.drop_schema(self.direct, self.schema)

    def child_state(self) -> dict[str, Any]:
        return {"url": self.url, "direct": self.direct}

    @property
    def schema(self) -> str:
        return f"kit_{self.unique}"

    def _options(self) -> dict[str, Any]:
        if self.driver == "asyncpg":
            return {"connect_args": {"server_settings": {"search_path": self.schema}}}
        return {"connect_args": {"options": f"-c search_path={self.schema}"}}

    def open(self, session_id: str, **options: Any) -> SQLAlchemySession:
        url = (self.url or "postgresql://127.0.0.1:1/none").replace("postgresql://", f"postgresql+{self.driver}://")
        kwargs = self._options() if self.url else {}
        return SQLAlchemySession.from_url(session_id, url=url, engine_kwargs=kwargs, create_tables=True, **options)

    def peer(self, session_id: str) -> PeerSession:
        url = self.direct.replace("postgresql://", "postgresql+asyncpg://")
        arguments = {"connect_args": {"server_settings": {"search_path": self.schema}}, "poolclass": NullPool}
        return PeerSession.from_url(session_id, url=url, create_tables=True, engine_kwargs=arguments)

    @contextmanager
    def _connection(self) -> Iterator[psycopg.Connection[Any]]:
        with psycopg.connect(self.direct, autocommit=True, options=f"-c search_path={self.schema}") as connection:
            yield connection

    def inject_record(self, session_id: str, data: bytes) -> None:
        with self._connection() as connection:
            connection.execute(
                "INSERT INTO agent_messages (session_id, message_data) VALUES (%s, %s)", (session_id, data.decode())
            )

    def shift_times(self, session_id: str, seconds: float) -> None:
        names = Tables("agent_sessions", "agent_messages", "postgresql").n.name
        by = {"by": timedelta(seconds=seconds), "seconds": seconds, "id": session_id}
        with self._connection() as connection:
            connection.execute(
                "UPDATE agent_messages SET created_at = created_at + %(by)s WHERE session_id = %(id)s", by
            )
            connection.execute(
                "UPDATE agent_sessions SET created_at = created_at + %(by)s, updated_at = updated_at + %(by)s "
                "WHERE session_id = %(id)s", by,
            )  # fmt: skip
            connection.execute(
                f"UPDATE {names} SET created = created + %(seconds)s, updated = updated + %(seconds)s "
                "WHERE id = %(id)s",
                by,
            )


class SQLAlchemyMariaDB(Networked):
    name = "SQLAlchemySession on MariaDB"
    id_chars_max = ID_CHARS_MAX
    patience_s = 400  # as on PostgreSQL
    persistent = True
    closes_when_called = True
    any_bytes = False
    names = TABLES
    bad_names = BAD_TABLES
    not_applicable: Mapping[str, str] = NO_EXPIRY
    url = ""
    direct = ""
    port = 0

    def setup(self) -> None:
        server = mariadb.shared()
        self.port = server.port
        self.direct = f"{server.url.rpartition('/')[0]}/{self.database}"
        with closing(server.connect()) as connection:
            connection.cursor().execute(f"CREATE DATABASE {self.database}")
        engine = create_engine(self.direct.replace("+aiomysql", "+pymysql"))
        with engine.begin() as made:  # as on PostgreSQL
            Tables("agent_sessions", "agent_messages", "mysql").install(made, create=True)
        engine.dispose()
        self.proxy, self.url = through(self.direct, lambda sent: b"\x03COMMIT" in sent)  # not READ COMMITTED

    def teardown(self) -> None:
        self.proxy.close()
        with closing(mariadb.shared().connect()) as connection:
            connection.cursor().execute(f"DROP DATABASE {self.database}")

    def child_state(self) -> dict[str, Any]:
        return {"url": self.url, "direct": self.direct, "port": self.port}

    @property
    def database(self) -> str:
        return f"kit_{self.unique}"

    def open(self, session_id: str, **options: Any) -> SQLAlchemySession:
        url = self.url or "mysql+aiomysql://127.0.0.1:1/none"
        return SQLAlchemySession.from_url(session_id, url=url, create_tables=True, **options)

    def peer(self, session_id: str) -> PeerSession:
        # It cannot make its tables here (a VARCHAR needs a length), so it uses those that are there.
        return PeerSession.from_url(session_id, url=self.direct, engine_kwargs={"poolclass": NullPool})

    @contextmanager
    def _cursor(self) -> Iterator[Any]:
        given: Any = {"user": mariadb.USER, "password": mariadb.USER, "database": self.database, "autocommit": True}
        with closing(pymysql.connect(host="127.0.0.1", port=self.port, **given)) as connection:
            yield connection.cursor()

    def inject_record(self, session_id: str, data: bytes) -> None:
        with self._cursor() as cursor:
            cursor.execute(
                "INSERT INTO agent_messages (session_id, message_data) VALUES (%s, %s)", (session_id, data.decode())
            )

    def raw_records(self, session_id: str) -> list[bytes]:
        with self._cursor() as cursor:
            cursor.execute(
                "SELECT message_data FROM agent_messages WHERE session_id = %s "
                "ORDER BY standfast_place IS NULL, standfast_place, id", (session_id,)
            )  # fmt: skip
            return [text.encode() for (text,) in cursor.fetchall()]

    def shift_times(self, session_id: str, seconds: float) -> None:
        names = Tables("agent_sessions", "agent_messages", "mysql").n.name
        by = f"INTERVAL {seconds:.6f} SECOND"
        with self._cursor() as cursor:
            for table, columns in (
                ("agent_messages", ["created_at"]),
                ("agent_sessions", ["created_at", "updated_at"]),
            ):
                moved = ", ".join(f"{column} = {column} + {by}" for column in columns)
                cursor.execute(f"UPDATE {table} SET {moved} WHERE session_id = %s", (session_id,))
            cursor.execute(
                f"UPDATE {names} SET created = created + %s, updated = updated + %s WHERE id = %s",
                (seconds, seconds, session_id),
            )

    @contextmanager
    def watch_durability(self) -> Iterator[list[str]]:
        """Ask the server, after the fact, what it waits for when it commits."""
        complaints: list[str] = []
        yield complaints
        with self._cursor() as cursor:
            cursor.execute("SELECT @@innodb_flush_log_at_trx_commit, @@innodb_doublewrite")
            if (row := cursor.fetchone()) != (1, 1):
                complaints.append(f"innodb_flush_log_at_trx_commit and innodb_doublewrite are {row}")
