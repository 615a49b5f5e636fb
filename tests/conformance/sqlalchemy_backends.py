"""`SQLAlchemySession` for the kit: on an SQLite file, and on PostgreSQL and MariaDB through a proxy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

import pymysql
from agents.extensions.memory import SQLAlchemySession as PeerSession
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from standfast._kits.conformance.backends.sqlalchemy import SQLAlchemyPostgresBackend, SQLAlchemySQLiteBackend
from standfast._kits.conformance.backends.sqlite import BAD_TABLES, NO_EXPIRY, TABLES
from standfast._kits.conformance.network import Networked
from standfast._src.sessions.backends.sqlalchemy.dialects import ID_CHARS_MAX
from standfast._src.sessions.backends.sqlalchemy.sqlalchemy_session import SQLAlchemySession
from standfast._src.sessions.backends.sqlalchemy.tables import Tables
from tests.conformance.server_backends import through
from tests.helpers import mariadb, servers

SHOWN_ON_SQLITE = (
    "A1_any", "A17_any", "A18_different", "A21", "A23_every", "A5_a_writer_killed", "B3_a_process_killed",
    "B1_an_append_repeated_after_a_kill", "A13_a_call_past_its_deadline",
)  # fmt: skip
# All databases run the same code. On a server these take minutes: thousands of round trips, dozens of processes. The
# check of deadlines allows 0.3 s for a first operation, which needs a connection and some twenty round trips here: on a
# busy machine that is too little, and says nothing about deadlines.


class SQLAlchemySQLite(SQLAlchemySQLiteBackend):
    def peer(self, session_id: str) -> PeerSession:
        return PeerSession.from_url(session_id, url=self.url, create_tables=True, engine_kwargs={"poolclass": NullPool})


class SQLAlchemyPostgres(SQLAlchemyPostgresBackend, Networked):
    def setup(self) -> None:
        self.direct = servers.postgres_url()
        super().setup()
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
        super().teardown()

    def peer(self, session_id: str) -> PeerSession:
        url = self.direct.replace("postgresql://", "postgresql+asyncpg://")
        arguments = {"connect_args": {"server_settings": {"search_path": self.schema}}, "poolclass": NullPool}
        return PeerSession.from_url(session_id, url=url, create_tables=True, engine_kwargs=arguments)


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
