"""A session on each store there is, by a short text that another process can open it from.

`place` makes such a text, `opened` a session of it: the same conversation, wherever it is opened. `session` is the
fixture of tests that are the same on all of them.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from standfast import EncryptedSession, InMemorySession, PostgresSession, RedisSession, SQLAlchemySession, SQLiteSession
from tests.helpers import servers

SERVERS = [
    pytest.param("redis", marks=pytest.mark.redis),
    pytest.param("postgres", marks=pytest.mark.postgres),
]
"""Those of them that are servers. "client" is Redis over a client of the loop, "sealed" is sealed there.

"sqlalchemy" is another that can be opened: SQLite through it."""
SHARED = ["sqlite", *SERVERS]
"""The stores that several processes can open."""
BACKENDS = ["memory", *SHARED]


def place(kind: str, tmp_path: Path, url: str | None = None) -> str:
    """A new, empty store of this kind, as a text: its kind, and where it is. `url`: a server of the test's own."""
    name = f"t{uuid.uuid4().hex[:12]}"
    match kind:
        case "memory":
            return "memory"
        case "sqlite":
            return f"sqlite {tmp_path / name}.db"
        case "redis" | "client" | "sealed":
            return f"{kind} {name} {url or servers.redis_url()}"
        case "sqlalchemy":
            return f"sqlalchemy {tmp_path / name}.db"
        case "postgres":
            return f"postgres {name} {url or servers.postgres_url()}"
    raise AssertionError(kind)


def opened(where: str, session_id: str = "s") -> Any:
    """A session in the store that `place` made; nothing is asked of a server before its first use."""
    kind, _, rest = where.partition(" ")
    if kind == "memory":
        return InMemorySession(session_id)
    if kind == "sqlite":
        return SQLiteSession(session_id, rest)
    if kind == "sqlalchemy":
        return SQLAlchemySession.from_url(session_id, url=f"sqlite+aiosqlite:///{rest}", create_tables=True)
    name, _, url = rest.partition(" ")
    if kind == "redis":
        return RedisSession.from_url(session_id, url=url, key_prefix=name)
    if kind == "client":
        return RedisSession(session_id, redis_client=redis.asyncio.from_url(url), key_prefix=name)
    if kind == "sealed":
        return EncryptedSession(session_id, opened(where.replace("sealed", "redis", 1), session_id), "a key of all")
    return PostgresSession(session_id, url=url, sessions_table=f"{name}_s", messages_table=f"{name}_m")


def looked_at(where: str, session_id: str = "s") -> Any:
    """The same session, for whoever looks afterwards: not over a client, which somebody would have to close."""
    return opened(where.replace("client", "redis", 1), session_id)


@contextlib.asynccontextmanager
async def two_ways(where: str) -> AsyncIterator[tuple[Any, Any]]:
    """Two sessions of one conversation on a server that share no connection, as those of two processes."""
    kind, name, url = where.split(" ")
    async with contextlib.AsyncExitStack() as ending:
        elsewhere = looked_at(where)
        ending.push_async_callback(elsewhere.close)
        if kind == "postgres":
            tables = {"sessions_table": f"{name}_s", "messages_table": f"{name}_m"}
            here: Any = PostgresSession("s", url=url, connect_options={"application_name": "here"}, **tables)
        elif kind == "redis":
            here = RedisSession.from_url("s", url=url, key_prefix=name, ttl=3600)
        else:
            client = await ending.enter_async_context(redis.asyncio.from_url(url))
            here = RedisSession("s", redis_client=client, key_prefix=name)
        ending.push_async_callback(here.close)
        yield elsewhere, here


@pytest.fixture(params=BACKENDS)
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """Session "s" in a store of its own, on each of them."""
    made = opened(place(request.param, tmp_path))
    yield made
    with contextlib.suppress(TypeError):  # those without a server need not be awaited
        await made.close()
