"""Openers of our own backends by URL.

Backends are imported where they are opened: a command on a file must not load the library of a server.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from standfast._kits.operators.store import Layout, Store
from standfast._kits.operators.store_url import StoreURL, only
from standfast._src.base.errors import InvalidSettingError
from standfast._src.sessions.client.sdk_tables import SQLALCHEMY_VERSION
from standfast._src.sessions.client.stored_session import StoredSession


class Opening(NamedTuple):
    """Request to open a store."""

    url: StoreURL
    read_only: bool
    create: bool
    """Whether it may be made where there is none."""
    timeout_s: float
    """The deadline of each operation."""


Opener = Callable[[Opening], Store]


def sqlite(opening: Opening) -> Store:
    """Open an SQLite file, which must exist unless `create` is set."""
    from standfast._src.sessions.backends.sqlite import read_only as reading, schema
    from standfast._src.sessions.backends.sqlite.read_only_session import ReadOnlySQLiteSession
    from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

    url, read_only, create, timeout_s = opening
    path = _file(url, create=create)
    given = only(url, "sessions_table", "messages_table")
    sessions = given.get("sessions_table", "agent_sessions")
    messages = given.get("messages_table", "agent_messages")
    tables = schema.Tables.of(sessions, messages)
    file = reading.ReadOnlyFile(path, tables)

    async def layout() -> Layout:
        if create:
            await _check_reachable(session)
        version = await asyncio.to_thread(file.layout, timeout_s)
        if not version:
            return Layout(0, "the OpenAI Agents SDK's own tables")
        return Layout(version, "release 0.2")

    def session(session_id: str) -> StoredSession:
        if read_only:
            return ReadOnlySQLiteSession(session_id, file, timeout_s=timeout_s)
        return SQLiteSession(session_id, path, sessions, messages, timeout_s=timeout_s)

    return Store(url.shown, "sqlite", session, layout, read_only=read_only, close=file.close, file=file)


def redis(opening: Opening) -> Store:
    """Open a Redis or Valkey server or cluster."""
    from standfast._src.sessions.backends.redis.redis_session import RedisSession

    url, read_only, _, timeout_s = opening
    options: dict[str, Any] = only(url, "key_prefix", "layout", "cluster")
    if "cluster" in options:
        options["cluster"] = options["cluster"].lower() in ("1", "true", "yes")

    def make(session_id: str) -> RedisSession:
        # The expiry of a session is the business of the program that talks in it, not of an operator's tool.
        return RedisSession.from_url(session_id, url=url.text, timeout_s=timeout_s, ttl="keep", **options)

    name = make("-").layout
    reached = partial(_check_reachable, make)
    return Store(
        url.shown, "redis", _opened_as(make, read_only), partial(_layout, reached, None, f"keys of layout {name!r}"),
        read_only=read_only,
    )  # fmt: skip


def postgresql(opening: Opening) -> Store:
    """Open a PostgreSQL database by its URL."""
    from standfast._src.sessions.backends.postgres import schema
    from standfast._src.sessions.backends.postgres.postgres_session import PostgresSession

    url, read_only, _, timeout_s = opening
    options: dict[str, Any] = only(url, "sessions_table", "messages_table", "schema")

    def make(session_id: str) -> PostgresSession:
        return PostgresSession(session_id, url=url.text, create_tables=not read_only, timeout_s=timeout_s, **options)

    layout = partial(_layout, partial(_check_reachable, make), schema.VERSION, "release 0.2")
    return Store(url.shown, "postgresql", _opened_as(make, read_only), layout, read_only=read_only)


def sqlalchemy(opening: Opening) -> Store:
    """Open the tables of `SQLAlchemySession` in a database; for a read-only SQLite file, a copy."""
    from sqlalchemy import URL

    from standfast._src.sessions.backends.sqlalchemy.sqlalchemy_session import SQLAlchemySession

    url, read_only, create, timeout_s = opening
    given: dict[str, Any] = only(url, "sessions_table", "messages_table")
    text, close = url.text, None
    if url.scheme == "sqlite":
        path = _file(url, create=create)
        if read_only:
            path, close = _copy_to_temporary(path, timeout_s)
        text = URL.create(
            f"sqlite+{url.driver}", database=path
        ).render_as_string()  # 2.1 quotes a path and 2.0 does not

    def make(session_id: str) -> SQLAlchemySession:
        creates = create if url.scheme == "sqlite" else not read_only
        return SQLAlchemySession.from_url(session_id, url=text, create_tables=creates, timeout_s=timeout_s, **given)

    layout = partial(_layout, partial(_check_reachable, make), SQLALCHEMY_VERSION, "release 0.2, SQLAlchemySession")
    opened = _opened_as(make, read_only)
    return Store(url.shown, "sqlalchemy", opened, layout, read_only=read_only, close=close)


def _file(url: StoreURL, *, create: bool) -> str:
    """Return the file named by a URL, which must exist unless `create` is set."""
    from standfast._src.sessions.backends.sqlite.sidecar_files import find_sidecars

    if not url.path or url.path == ":memory:":
        raise InvalidSettingError(
            f"{url.text!r} names no file: what is in memory belongs to the object that has it",
            "Give a path, as in sqlite:///talks.db.",
        )
    path = os.path.abspath(url.path)
    if not create:
        find_sidecars(path)
    return path


def _copy_to_temporary(path: str, timeout_s: float) -> tuple[str, Callable[[], None]]:
    """Copy a file and return the copy's path and a cleanup. SQLAlchemy's own way to open a file may write to it."""
    from standfast._src.sessions.backends.sqlite.read_only import copy_file

    folder = tempfile.TemporaryDirectory(prefix="standfast-")
    target = os.path.join(folder.name, "copy.db")
    copy_file(path, target, timeout_s)
    return target, folder.cleanup


def _opened_as(make: Callable[[str], StoredSession], read_only: bool) -> Callable[[str], StoredSession]:
    def session(session_id: str) -> StoredSession:
        found = make(session_id)
        found.read_only = read_only
        return found

    return session


async def _layout(reached: Callable[[], Awaitable[None]], version: int | None, name: str) -> Layout:
    await reached()
    return Layout(version, name)


async def _check_reachable(make: Callable[[str], StoredSession]) -> None:
    """Raise an error if the store is down or lacks its tables."""
    session = make("-")
    try:
        await session.info()
    finally:
        await session.close()


SQLALCHEMY = frozenset({"sqlite", "postgresql", "postgres", "mysql", "mariadb"})
"""Databases that a URL with the name of a driver is opened through SQLAlchemy for, which says what it cannot do."""

BUILT_IN: dict[str, Opener] = {
    "sqlite": sqlite,
    "redis": redis,
    "rediss": redis,
    "postgresql": postgresql,
    "postgres": postgresql,
}
