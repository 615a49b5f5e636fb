"""`SQLAlchemySession`: conversations in the tables of the OpenAI Agents SDK's class of that name, with every ability.

What a session does is in `StoredSession`, what it promises in the rules of `sessions/`; this says which database and
which tables. Constructing one does no I/O.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Self

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.ext.asyncio import AsyncEngine

from standfast._src.base.errors import CallerError, InvalidSessionIdError
from standfast._src.base.type_names import describe_type
from standfast._src.sessions.backends.sqlalchemy.connections import AwaitedLink, SameFile, ThreadStore, build_engine
from standfast._src.sessions.backends.sqlalchemy.dialects import ID_CHARS_MAX
from standfast._src.sessions.client.borrowed_loop_executor import BorrowedLoopExecutor
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.lingering import LINGER_S, checked_linger
from standfast._src.sessions.client.sdk_tables import check_two_tables
from standfast._src.sessions.client.server_session import ServerSession, host_key
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor
from standfast._src.sessions.protocol import SessionSettings, check_text_id

__all__ = ["SQLAlchemySession"]


class Address(NamedTuple):
    """A database to connect to, in place of an engine that was handed in."""

    url: str
    options: tuple[tuple[str, Any], ...]
    is_private: bool
    """Whether it is a database in memory: each session object's own."""
    file: str | None
    """The path, if it is a file of SQLite's."""


class SQLAlchemySession(ServerSession):
    """A conversation in PostgreSQL, MariaDB, MySQL or SQLite, through SQLAlchemy 2.

    `from_url` needs no engine, and works in every loop and thread.

    Args:
        session_id: The name of the conversation.
        engine: An `AsyncEngine` of yours: it is used in its own event loop only, and never disposed here.
        create_tables: True to make missing tables and additions; with False they must be there.
        sessions_table: The table of sessions, as the OpenAI Agents SDK names it.
        messages_table: The table of items, as the OpenAI Agents SDK names it.
        session_settings: Settings such as the default limit of reads.
        ensure_ascii: True to write other letters as escapes, as the OpenAI Agents SDK does.
        timeout_s: The deadline of each operation.
        linger_s: The seconds that threads and connections of `from_url` stay open after the last session on the
            database, for the next one; 0: they end with the last, as always on an SQLite file.
    """

    def __init__(
        self,
        session_id: str,
        *,
        engine: AsyncEngine | Any,
        create_tables: bool = False,
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        ensure_ascii: bool = True,
        timeout_s: float = 30.0,
        linger_s: float = LINGER_S,
    ) -> None:
        self._target = _checked_target(engine)
        super().__init__(session_id, session_settings=session_settings, timeout_s=timeout_s)
        self.linger_s = checked_linger(linger_s)
        if isinstance(self._target, Address) and self._target.file:
            # The log of a file is folded into it when the last connection is closed. Until then it may not be copied or
            # replaced, and no driver has a way to fold it earlier.
            self.linger_s = 0.0
        self.create_tables, self.ensure_ascii = create_tables, ensure_ascii
        check_two_tables(sessions_table, messages_table)
        self.sessions_table, self.messages_table = sessions_table, messages_table
        self._engine: AsyncEngine | None = None

    @classmethod
    def from_url(
        cls,
        session_id: str,
        *,
        url: str | URL,
        engine_kwargs: Mapping[str, Any] | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> Self:
        """Construct a session in a database, over connections shared by all sessions of the process.

        The path of an SQLite file is taken from the folder that the process is in now. `engine_kwargs` are options of
        the engine, as `create_async_engine` takes them. `kwargs` are those of the constructor.
        """
        address = _address(url, engine_kwargs or {})
        return cls(session_id, engine=address, session_settings=session_settings, **kwargs)

    @property
    def engine(self) -> AsyncEngine:
        """The caller's engine, or an engine for the same URL, made at the first use: dispose of it yourself."""
        if not isinstance(self._target, Address):
            return self._target
        if self._engine is None:
            self._engine = build_engine(self._target.url, dict(self._target.options))
        return self._engine

    # --- what ServerSession asks --------------------------------------------------------------------------------------

    def _carrier(self) -> Executor:
        if self._found is None and self._is_private:  # a database in memory is each object's own
            self._found = self._make_executor()
        return super()._carrier()

    def _make_executor(self) -> ThreadedExecutor | BorrowedLoopExecutor:
        target, given = self._target, {"create": self.create_tables, "ascii": self.ensure_ascii}
        sessions, messages = self.sessions_table, self.messages_table
        if not isinstance(target, Address):
            link = AwaitedLink(target, sessions, messages, **given)
            awaited = BorrowedLoopExecutor(link)
            awaited.is_gone = link.is_gone
            return awaited
        url, options = target.url, dict(target.options)
        same = SameFile(target.file)

        def open_store() -> ThreadStore:
            return ThreadStore(url, options, sessions, messages, same=same, **given)

        loses_answers = not url.startswith("sqlite")
        carrier = ThreadedExecutor(open_store, loses_answers=loses_answers, readers=0 if self._is_private else 1)
        carrier.is_gone = same.is_gone
        return carrier

    @property
    def _is_private(self) -> bool:
        return isinstance(self._target, Address) and self._target.is_private

    @property
    def _is_mysql(self) -> bool:
        target = self._target
        name = target.url if isinstance(target, Address) else target.dialect.name
        return name.startswith(("mysql", "mariadb"))

    def _store_key(self) -> Hashable:
        where: Hashable = id(self._carrier()) if self._is_private else _place(self._target)
        return ("sqlalchemy", where, self.sessions_table, self.messages_table)

    def _carrier_key(self) -> Hashable:
        target = self._target
        where: Hashable = (target.url, repr(target.options)) if isinstance(target, Address) else id(target)
        return ("sqlalchemy", where, self.sessions_table, self.messages_table, self.create_tables, self.ensure_ascii)

    def _constructor_arguments(self) -> dict[str, Any]:
        return {
            "engine": self._target,
            "create_tables": self.create_tables,
            "sessions_table": self.sessions_table,
            "messages_table": self.messages_table,
            "ensure_ascii": self.ensure_ascii,
        }

    def _another(self, new_id: str) -> Self:
        made = super()._another(new_id)
        if self._is_private:
            made._found = self._carrier()
        return made

    def _check_id(self, session_id: str) -> str:
        found = check_text_id(session_id)
        if len(found) > ID_CHARS_MAX and self._is_mysql:
            raise InvalidSessionIdError(
                f"{session_id[:20]!r}... has {len(found)} characters, which MariaDB and MySQL cannot index",
                f"Use an id of {ID_CHARS_MAX} characters at most.",
            )
        return found


def _address(url: str | URL, engine_kwargs: Mapping[str, Any]) -> Address:
    """Resolve a database's address, so that a later `chdir` does not change the file.

    SQLite opens a relative path from the folder that the process is in at that moment. Connections are opened when they
    are needed: after a `chdir` the session would read from another file than it has written to.
    """
    options = tuple(sorted(engine_kwargs.items()))
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):
        return Address(str(url), options, is_private=False, file=None)  # `build_engine` says what is wrong with it
    is_private, file = False, None
    if found.get_backend_name() == "sqlite":
        scheme = "file:" if (found.database or "").startswith("file:") else ""  # SQLite's own kind of URL
        path = (found.database or "").removeprefix(scheme)
        is_private = path in ("", ":memory:") or found.query.get("mode") == "memory"
        if not is_private:
            file = os.path.abspath(path)
            found = found.set(database=scheme + file)
    text = found.render_as_string(hide_password=False)  # `str` leaves the password out
    return Address(text, options, is_private, file)


_PORTS = {"postgresql": 5432, "mysql": 3306}
_CONNECTING = ("connect_args", "creator", "async_creator", "pool", "execution_options")
"""Options of an engine that may lead to another database or schema than the URL says."""


def _place(target: Address | AsyncEngine) -> Hashable:
    """Return a key for the database, equal for every driver; the engine's identity if its URL is not enough.

    The URL of a given engine does not determine its schema: its `connect_args`, or a listener on its connections, may
    set a search_path. A file has one place.
    """
    address = target if isinstance(target, Address) else _address(target.url, {})
    if address.file:
        return os.path.realpath(address.file)
    if not isinstance(target, Address):
        return id(target)
    elsewhere = [one for one in address.options if one[0] in _CONNECTING]
    place = _place_of_url(address.url)
    return id(target) if place is None else (place, repr(elsewhere))


@lru_cache(maxsize=256)
def _place_of_url(text: str) -> Hashable:
    try:
        url = make_url(text)
    except (ArgumentError, ValueError):
        return text  # connecting says what is wrong with it
    if not url.host and not url.database:
        return None  # as with a function that connects (`async_creator`)
    kind = url.get_backend_name().replace("mariadb", "mysql")
    port = url.port or _PORTS.get(kind)
    return kind, host_key(url.host), port, url.database, url.username, tuple(sorted(url.query.items()))


def _checked_target(engine: object) -> AsyncEngine | Address:
    if isinstance(engine, AsyncEngine) or (isinstance(engine, Address) and engine.url):
        return engine
    raise CallerError(
        f"{describe_type(engine)} is no engine of SQLAlchemy's asyncio",
        "Give create_async_engine(url), or use SQLAlchemySession.from_url(session_id, url=...).",
    )
