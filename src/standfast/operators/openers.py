"""How each backend of ours is opened by its URL.

Backends are imported where they are opened: a command on a file must not load the library of a server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, NamedTuple

from standfast.carrying.session import StoredSession
from standfast.ground.errors import InvalidSettingError
from standfast.operators.store import Layout, Store
from standfast.operators.store_url import StoreURL, only


class Opening(NamedTuple):
    """How a store is to be opened."""

    url: StoreURL
    read_only: bool
    create: bool
    """Whether it may be made where there is none."""
    timeout_s: float
    """The deadline of each operation."""


Opener = Callable[[Opening], Store]


def sqlite(opening: Opening) -> Store:
    """An SQLite file, which must be there unless it may be made."""
    from standfast.backends.sqlite import read_only as reading, schema
    from standfast.backends.sqlite.beside import look_beside
    from standfast.backends.sqlite.read_only_session import ReadOnlySQLiteSession
    from standfast.backends.sqlite.session import SQLiteSession

    url, read_only, create, timeout_s = opening
    if not url.path or url.path == ":memory:":
        raise InvalidSettingError(
            f"{url.text!r} names no file: what is in memory belongs to the object that has it",
            "Give a path, as in sqlite:///talks.db.",
        )
    given = only(url, "sessions_table", "messages_table")
    sessions = given.get("sessions_table", "agent_sessions")
    messages = given.get("messages_table", "agent_messages")
    tables = schema.Tables.of(sessions, messages)
    path = os.path.abspath(url.path)
    if not create:
        look_beside(path)
    file = reading.ReadOnlyFile(path, tables)

    async def layout() -> Layout:
        if create:
            await _reached(session)
        version = await asyncio.to_thread(file.layout, timeout_s)
        if not version:
            return Layout(0, "the OpenAI Agents SDK's own tables")
        return Layout(version, "release 0.1" if version == 1 else "release 0.2")

    def session(session_id: str) -> StoredSession:
        if read_only:
            return ReadOnlySQLiteSession(session_id, file, timeout_s=timeout_s)
        return SQLiteSession(session_id, path, sessions, messages, timeout_s=timeout_s)

    return Store(url.shown, "sqlite", session, layout, read_only=read_only, close=file.close)


def redis(opening: Opening) -> Store:
    """A Redis or Valkey server, or a cluster of them."""
    from standfast.backends.redis.session import RedisSession

    url, read_only, _, timeout_s = opening
    options: dict[str, Any] = only(url, "key_prefix", "layout", "cluster")
    if "cluster" in options:
        options["cluster"] = options["cluster"].lower() in ("1", "true", "yes")

    def made(session_id: str) -> RedisSession:
        return RedisSession.from_url(session_id, url=url.text, timeout_s=timeout_s, **options)

    name = made("-").layout
    reached = partial(_reached, made)
    return Store(
        url.shown, "redis", _opened_as(made, read_only), partial(_layout, reached, None, f"keys of layout {name!r}"),
        read_only=read_only,
    )  # fmt: skip


def postgresql(opening: Opening) -> Store:
    """A PostgreSQL database."""
    from standfast.backends.postgres import schema
    from standfast.backends.postgres.session import PostgresSession

    url, read_only, _, timeout_s = opening
    options: dict[str, Any] = only(url, "sessions_table", "messages_table", "schema")

    def made(session_id: str) -> PostgresSession:
        return PostgresSession(session_id, url=url.text, create_tables=not read_only, timeout_s=timeout_s, **options)

    layout = partial(_layout, partial(_reached, made), schema.VERSION, "release 0.2")
    return Store(url.shown, "postgresql", _opened_as(made, read_only), layout, read_only=read_only)


def _opened_as(made: Callable[[str], StoredSession], read_only: bool) -> Callable[[str], StoredSession]:
    def session(session_id: str) -> StoredSession:
        found = made(session_id)
        found.read_only = read_only
        return found

    return session


async def _layout(reached: Callable[[], Awaitable[None]], version: int | None, name: str) -> Layout:
    await reached()
    return Layout(version, name)


async def _reached(made: Callable[[str], StoredSession]) -> None:
    """Raise what says that the store is down, or what it lacks."""
    session = made("-")
    try:
        await session.info()
    finally:
        await session.close()


BUILT_IN: dict[str, Opener] = {
    "sqlite": sqlite,
    "redis": redis,
    "rediss": redis,
    "postgresql": postgresql,
    "postgres": postgresql,
}
