"""Verifying what `SQLAlchemySession` keeps: in a copy of an SQLite file, and in schemas of their own on PostgreSQL."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from psycopg import sql

from standfast._kits.conformance.backend import Backend
from standfast._kits.operators.store_url import StoreURL
from standfast._kits.verifying.postgres import LivePostgres, PostgresSite, connect
from standfast._kits.verifying.scratch_space import HARMLESS
from standfast._kits.verifying.sqlite import CopiedFile, FileSite
from standfast._src.base.errors import NotADatabaseError
from standfast._src.sessions.backends.sqlalchemy.sqlalchemy_session import SQLAlchemySession
from standfast._src.sessions.backends.sqlite.read_only import AnyFile

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store


class CopyThroughSQLAlchemy(CopiedFile):
    """A copy of an SQLite file, opened through SQLAlchemy."""

    name = "sqlalchemy on sqlite"
    permitted = HARMLESS | {"processes", "import", "bad_names", "records", "inject_record", "damage_newest"}
    not_claimed: Mapping[str, str] = {
        "B16": "a file that is only read is still opened for writing, and its log is written into it when it is closed",
    }
    driver = "aiosqlite"

    def open(self, session_id: str, **options: Any) -> Any:
        """Return a session in the check's tables, or in other tables below the same name."""
        sessions, messages = self.chosen_tables(options)
        return SQLAlchemySession.from_url(
            session_id, url=f"sqlite+{self.driver}:///{quote(self.file)}", create_tables=True,
            sessions_table=sessions, messages_table=messages, **options,
        )  # fmt: skip

    def whole_store(self, *, read_only: bool = False) -> Store:
        """The check's tables."""
        return Backend.whole_store(self, read_only=read_only)


class FileThroughSQLAlchemy(FileSite):
    """A folder beside an SQLite file that holds the copy."""

    reader = AnyFile

    def __init__(self, url: StoreURL, *, timeout_s: float) -> None:
        super().__init__(url, in_place=False, timeout_s=timeout_s, live=CopyThroughSQLAlchemy)
        self.backend.driver = url.driver  # type: ignore[attr-defined]  # the backend is the class above
        self._messages = url.options.get("messages_table", "agent_messages")

    def look(self) -> None:
        """Raise if the file is missing, is not a database, or has no conversations."""
        if self._messages not in self._reading.table_names(self._messages, self._timeout_s):
            raise NotADatabaseError(
                f"{self._path!r} has no table {self._messages!r}: no conversations are kept there",
                "Give the file that SQLAlchemySession uses, and its tables (?messages_table=…).",
            )


class SchemaThroughSQLAlchemy(LivePostgres):
    """Database with other users, through SQLAlchemy: every check has a schema, selected by its connections."""

    name = "sqlalchemy on postgresql"
    patience_s = 400  # the generated checks make some ten thousand statements, each a round trip
    driver = "psycopg"

    def setup(self) -> None:
        """Make the check's schema: SQLAlchemySession makes tables, and no schema."""
        with connect(self.url) as connection:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self.schema)))

    def open(self, session_id: str, **options: Any) -> Any:
        """A session in the check's schema."""
        scheme, _, rest = self.url.partition("://")
        where: dict[str, Any] = {"options": f"-c search_path={self.schema}"}
        if self.driver == "asyncpg":
            where = {"server_settings": {"search_path": self.schema}}
        return SQLAlchemySession.from_url(
            session_id, url=f"{scheme}+{self.driver}://{rest}", create_tables=True,
            engine_kwargs={"connect_args": where}, **options,
        )  # fmt: skip

    def whole_store(self, *, read_only: bool = False) -> Store:
        """The check's schema."""
        return Backend.whole_store(self, read_only=read_only)


class PostgresThroughSQLAlchemy(PostgresSite):
    """Scratch schema in a database, and a schema beside it for each check."""

    def __init__(self, url: StoreURL) -> None:
        super().__init__(url, live=SchemaThroughSQLAlchemy)
        self.backend.driver = url.driver  # type: ignore[attr-defined]  # the backend is the class above
