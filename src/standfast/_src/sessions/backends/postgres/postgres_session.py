"""Sessions in PostgreSQL: the OpenAI Agents SDK's SQLAlchemy tables, with every ability of part B on top.

What a session does is in `StoredSession`, what it promises in the rules of `sessions/`; this says which database and
which tables. Constructing one does no I/O. All sessions of a database share a few connections, in threads of ours.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, Self

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict

from standfast._src.base.errors import CallerError, InvalidSettingError
from standfast._src.sessions.backends.postgres.postgres_storage import PostgresStore
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast._src.sessions.client.lingering import LINGER_S, checked_linger
from standfast._src.sessions.client.server_session import ServerSession, host_key
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.protocol import SessionSettings, check_text_id

__all__ = ["PostgresSession"]

READERS = 2  # beside the connection that writes, so that one long read does not keep every other waiting
_SCHEMES = ("postgresql://", "postgres://")


class PostgresSession(ServerSession):
    """A conversation in PostgreSQL. Any number of objects, threads, loops and processes may share it.

    Args:
        session_id: The name of the conversation.
        url: A PostgreSQL URL, or a connection string as `libpq` takes it.
        sessions_table: The table of sessions, as the OpenAI Agents SDK names it.
        messages_table: The table of items, as the OpenAI Agents SDK names it.
        schema: The schema of the tables; left out, the connection's own.
        create_tables: True to make tables and functions when they are first needed; with False they must be there
            (`schema_sql` gives what makes them).
        connect_options: Further options of a connection.
        session_settings: Settings such as the default limit of reads.
        timeout_s: The deadline of each operation.
        linger_s: The seconds that threads and connections stay open after the last session on the database, for the
            next one; 0: they end with the last.
    """

    def __init__(
        self,
        session_id: str,
        *,
        url: str,
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        schema: str | None = None,
        create_tables: bool = True,
        connect_options: Mapping[str, Any] | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        timeout_s: float = 30.0,
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(session_id, session_settings=session_settings, timeout_s=timeout_s)
        self.linger_s = checked_linger(linger_s)
        self._options = dict(connect_options or {})
        self._url, self.create_tables = _checked_url(url), create_tables
        _place(self._url, self._place_options())
        self._tables = Tables.of(sessions_table, messages_table, schema)

    @classmethod
    def from_url(cls, session_id: str, *, url: str, **kwargs: Any) -> Self:
        """Construct a session, under the name common to the sessions on servers."""
        return cls(session_id, url=url, **kwargs)

    @staticmethod
    def schema_sql(
        sessions_table: str = "agent_sessions", messages_table: str = "agent_messages", schema: str | None = None
    ) -> str:
        """Return the SQL for the tables, columns and functions. Running the SQL again changes nothing."""
        return Tables.of(sessions_table, messages_table, schema).sql()

    # --- what ServerSession asks --------------------------------------------------------------------------------------

    def _make_executor(self) -> ThreadedExecutor:
        url, tables, options, create = self._url, self._tables, self._options, self.create_tables

        def open_store() -> PostgresStore:
            return PostgresStore(url, tables, options=options, create_tables=create)

        return ThreadedExecutor(open_store, loses_answers=True, readers=READERS, is_many=True)

    def _store_key(self) -> Hashable:
        return ("postgres", _place(self._url, self._place_options()), self._tables)

    def _place_options(self) -> tuple[tuple[str, str], ...]:
        given = self._options.items()
        return tuple((name, str(value)) for name, value in given if name in _PLACE and value is not None)

    def _carrier_key(self) -> Hashable:
        return ("postgres", self._url, repr(sorted(self._options.items())), self._tables, self.create_tables)

    def _constructor_arguments(self) -> dict[str, Any]:
        sessions, messages, schema = self._tables
        return {
            "url": self._url, "connect_options": self._options, "create_tables": self.create_tables,
            "sessions_table": sessions, "messages_table": messages, "schema": schema,
        }  # fmt: skip

    def _check_id(self, session_id: str) -> str:
        return check_text_id(session_id)


_PLACE = ("host", "hostaddr", "port", "dbname", "user", "service", "options")


@lru_cache(maxsize=256)
def _place(url: str, options: tuple[tuple[str, str], ...]) -> Hashable:
    """Return a key for the database, equal for different spellings of the address.

    The user and `options` are part of it: tables may be found by who asks, and in the schemas of a search_path. Two
    ways of one place that are taken for two may keep a run waiting; two places taken for one, and neither is guarded.
    """
    try:
        given = conninfo_to_dict(url, **dict(options))
    except ProgrammingError as error:
        has_password = "@" in url or "password" in url  # then what it cannot read, and quotes, may be a part of that
        why = "" if has_password else f": {' '.join(str(error).split())}"
        hint = " In a URL's password % is written as %25, / as %2F and @ as %40." if has_password else ""
        raise InvalidSettingError(
            f"PostgreSQL's library cannot read this address{why}",
            f"Give a URL like postgresql://user@host/database, or a text like 'host=… dbname=…'.{hint}",
        ) from None
    host = given.get("hostaddr") or given.get("host") or os.environ.get("PGHOST")
    port = given.get("port") or os.environ.get("PGPORT") or 5432
    user = given.get("user") or os.environ.get("PGUSER")
    return (
        host_key(host),
        str(port),
        given.get("dbname") or os.environ.get("PGDATABASE") or user,
        user,
        given.get("service"),
        given.get("options"),
    )


def _checked_url(url: object) -> str:
    if not isinstance(url, str) or not url:
        raise CallerError(f"{url!r} names no database", "Give a URL like postgresql://user@host/database.")
    scheme, separator, _ = url.partition("://")
    if not separator:
        return url  # "host=... dbname=...", which libpq reads
    # SQLAlchemy's way of naming a driver: the database is the same.
    plain = f"{scheme.partition('+')[0]}://{url.partition('://')[2]}"
    if not plain.startswith(_SCHEMES):
        raise CallerError(
            f"{scheme}:// is another kind of database", "Give a URL like postgresql://user@host/database."
        )
    return plain
