"""`SQLAlchemySession` for the kit: on an SQLite file, and on PostgreSQL through a proxy and each of two drivers."""

from __future__ import annotations

import sqlite3
import sqlite3.dbapi2
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg
from agents.extensions.memory import SQLAlchemySession as PeerSession
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from standfast.backends.sqlalchemy.session import SQLAlchemySession
from standfast.backends.sqlalchemy.tables import Tables
from standfast.conformance import Backend, message
from standfast.conformance.network import Networked
from standfast.conformance.sqlite_file import SQLiteFile
from tests.conformance.kit_backends import BAD_TABLES, TABLES
from tests.conformance.server_backends import through
from tests.helpers import servers

NO_EXPIRY = {"A20": "no expiry can be configured"}


class SQLAlchemySQLite(SQLiteFile):
    name = "SQLAlchemySession on SQLite"
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
        # writers make them together is shown on SQLite, and in test_sqlalchemy_session.
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
