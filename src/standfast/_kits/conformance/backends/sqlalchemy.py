"""`SQLAlchemySession` for the kit: on an SQLite file, and in schemas of their own on PostgreSQL."""

from __future__ import annotations

import sqlite3
import sqlite3.dbapi2
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from sqlalchemy.ext.asyncio import create_async_engine

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.backends.postgres import OnPostgres
from standfast._kits.conformance.backends.sqlite import SQLiteBackend
from standfast._kits.conformance.check_context import message
from standfast._src.sessions.backends.sqlalchemy.sqlalchemy_session import SQLAlchemySession
from standfast._src.sessions.backends.sqlalchemy.tables import Tables

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store


class SQLAlchemySQLiteBackend(SQLiteBackend):
    """`SQLAlchemySession` on an SQLite file."""

    name = "SQLAlchemySession on SQLite"
    patience_s = 250  # the generated checks make some ten thousand statements, each its own way through SQLAlchemy
    not_claimed: Mapping[str, str] = {
        "B16": "a file that is only read is still opened for writing, and its log is written into it when it is closed",
    }
    driver = "aiosqlite"

    @property
    def url(self) -> str:
        """Address of the file for SQLAlchemy."""
        return f"sqlite+{self.driver}:///{quote(str(self.path))}"

    def open(self, session_id: str, **options: Any) -> Any:
        """Return a session in the tables of the check, or in the tables of the options."""
        sessions, messages = self.chosen_tables(options)
        return SQLAlchemySession.from_url(
            session_id, url=self.url, create_tables=True, sessions_table=sessions, messages_table=messages, **options
        )

    def whole_store(self, *, read_only: bool = False) -> Store:
        """Make the store of sessions: a path alone would name the tables of `SQLiteSession`."""
        return Backend.whole_store(self, read_only=read_only)

    def shift_times(self, session_id: str, seconds: float) -> None:
        """Move the times in the SDK's tables and in standfast's own."""
        super().shift_times(session_id, seconds)
        names = Tables(*self.tables, "sqlite").n.name
        with self._connection() as connection:
            connection.execute(
                f"UPDATE {names} SET created = created + :by, updated = updated + :by WHERE id = :id",  # noqa: S608
                {"by": seconds, "id": session_id},
            )

    @contextmanager
    def watch_durability(self) -> Iterator[list[str]]:
        """Watch the module in which SQLAlchemy looks for `connect`."""
        connect = sqlite3.dbapi2.connect
        with super().watch_durability() as complaints:
            sqlite3.dbapi2.connect = sqlite3.connect
            try:
                yield complaints
            finally:
                sqlite3.dbapi2.connect = connect

    def handed_in(self, session_id: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
        """Return a session that was given an engine."""
        engine = create_async_engine(self.url)

        async def still_works() -> None:
            again = SQLAlchemySession(session_id, engine=engine, create_tables=True)
            await again.add_items([message("again")])
            assert len(await again.get_items()) == 3
            await engine.dispose()

        return SQLAlchemySession(session_id, engine=engine, create_tables=True), still_works


class SQLAlchemyPostgresBackend(OnPostgres):
    """`SQLAlchemySession` on PostgreSQL. Its connections select the schema of the check."""

    name = "SQLAlchemySession on PostgreSQL"
    patience_s = 400  # the generated checks make some ten thousand statements, each a round trip
    driver = "asyncpg"

    def connect_args(self) -> dict[str, Any]:
        """Return the options of the driver that select the schema."""
        if self.driver == "asyncpg":
            return {"server_settings": {"search_path": self.schema}}
        return {"options": f"-c search_path={self.schema}"}

    def open(self, session_id: str, **options: Any) -> Any:
        """Return a session in the schema of the check."""
        scheme, _, rest = self.url.partition("://")
        return SQLAlchemySession.from_url(
            session_id, url=f"{scheme}+{self.driver}://{rest}", create_tables=True,
            engine_kwargs={"connect_args": self.connect_args()}, **options,
        )  # fmt: skip

    def shift_times(self, session_id: str, seconds: float) -> None:
        """Move the times in the SDK's tables and in standfast's own."""
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
                f"UPDATE {names} SET created = created + %(seconds)s, updated = updated + %(seconds)s "  # noqa: S608
                "WHERE id = %(id)s",
                by,
            )
