"""The real SDK adds, pops and clears beside our appends, replaces, undos and pops; every look is compared (B2, B10).

`--conformance-rounds=N` sets how long: each round is a few dozen operations on either side.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import uuid
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from agents.extensions.memory import RedisSession as AgentsRedis, SQLAlchemySession as AgentsSQLAlchemy
from sqlalchemy.pool import NullPool

from standfast import (
    NotFoundError,
    PostgresSession,
    RedisSession,
    SessionConflictError,
    SQLAlchemySession,
    StoreTimeoutError,
)
from standfast._src.sessions.backends.postgres.postgres_storage import PostgresStore
from standfast._src.sessions.backends.postgres.schema import Tables
from standfast._src.sessions.backends.redis.connection import Link
from standfast._src.sessions.backends.redis.redis_storage import RedisStore
from standfast._src.sessions.backends.sqlalchemy.connections import ThreadStore
from standfast._src.sessions.storage import Name, ReadRequest, Rows
from standfast.conformance import message
from tests.helpers import servers


def on_redis() -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    url, prefix = servers.redis_url(), uuid.uuid4().hex
    store = RedisStore(Link(url), prefix=prefix, layout="sdk", ttl_ms=None)
    return (
        lambda: RedisSession.from_url("c", url=url, key_prefix=prefix),
        lambda: AgentsRedis.from_url("c", url=url, key_prefix=prefix),
        store,
    )


def on_postgres() -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    url, schema = servers.postgres_url(), f"b{uuid.uuid4().hex}"
    store = PostgresStore(url, Tables.of("agent_sessions", "agent_messages", schema), options={}, create_tables=True)
    arguments = {"connect_args": {"server_settings": {"search_path": schema}}, "poolclass": NullPool}
    peer_url = url.replace("postgresql://", "postgresql+asyncpg://")
    return (
        lambda: PostgresSession("c", url=url, schema=schema),
        lambda: AgentsSQLAlchemy.from_url("c", url=peer_url, create_tables=True, engine_kwargs=arguments),
        store,
    )


def through_sqlalchemy(url: str, **options: Any) -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    store = ThreadStore(url, options, "agent_sessions", "agent_messages", create=True, ascii=True)
    given: Any = {"create_tables": True}
    return (
        lambda: SQLAlchemySession.from_url("c", url=url, engine_kwargs=options, **given),
        lambda: AgentsSQLAlchemy.from_url("c", url=url, engine_kwargs={**options, "poolclass": NullPool}, **given),
        store,
    )


def on_postgres_through_sqlalchemy() -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    url, schema = servers.postgres_url(), f"b{uuid.uuid4().hex}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
    arguments = {"server_settings": {"search_path": schema}}
    return through_sqlalchemy(url.replace("postgresql://", "postgresql+asyncpg://"), connect_args=arguments)


def on_sqlite_through_sqlalchemy() -> tuple[Callable[[], Any], Callable[[], Any], Any]:
    return through_sqlalchemy(f"sqlite+aiosqlite:///{tempfile.mkdtemp()}/talks.db")


SERVERS = {
    "redis": on_redis,
    "postgres": on_postgres,
    "sqlalchemy, postgres": on_postgres_through_sqlalchemy,
    "sqlalchemy, sqlite": on_sqlite_through_sqlalchemy,
}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("redis", marks=pytest.mark.redis),
        pytest.param("postgres", marks=pytest.mark.postgres),
        pytest.param("sqlalchemy, postgres", marks=pytest.mark.postgres),
        "sqlalchemy, sqlite",
    ],
)
async def test_equal_heads_mean_equal_histories_whoever_wrote(kind: str, request: pytest.FixtureRequest) -> None:
    ours, theirs, store = SERVERS[kind]()
    rounds = request.config.getoption("conformance_rounds")
    seen: dict[str, list[bytes]] = {}
    looks = 0
    done = asyncio.Event()

    async def looking() -> None:
        nonlocal looks
        while not done.is_set():
            try:
                sight = await asyncio.to_thread(store.look, ReadRequest(Name("session", "c"), rows=(Rows(),)))
            except StoreTimeoutError:  # a bare store does not wait for a lock; what carries its plans asks again
                continue
            rows = [row.data for row in sight.rows[0]]
            assert seen.setdefault(sight.mark, rows) == rows, f"two histories under the head {sight.mark}"
            looks += 1

    async def writing(seed: int) -> None:
        session, chosen = ours(), random.Random(seed)
        start = 0
        for turn in range(4 * rounds):
            try:
                match chosen.randrange(7):
                    case 0 | 1 | 2:
                        await session.append([message(f"{seed} {turn}")], writer=f"w{seed}", start=start)
                        start += 1
                    case 3:
                        head = await session.head()
                        await session.append([message(f"{seed} {turn}")], writer=f"w{seed}", start=start, expect=head)
                        start += 1
                    case 4:
                        await session.replace([message("summary")], upto=await session.head())
                    case 5:
                        kept = await session.generations()
                        if kept:
                            await session.restore(kept[0].id)
                    case _:
                        await session.pop_item()
            except (SessionConflictError, NotFoundError):
                pass
        session.close()

    async def peering(seed: int) -> None:
        session, chosen = theirs(), random.Random(seed)
        for turn in range(4 * rounds):
            match chosen.randrange(10):
                case 0:
                    await session.clear_session()
                case 1 | 2 | 3:
                    await session.pop_item()
                case _:
                    await session.add_items([message(f"theirs {seed} {turn % 3}")])
        if hasattr(session, "close"):
            await session.close()

    first = ours()
    await first.add_items([message("first")])
    looker = asyncio.create_task(looking())
    await asyncio.gather(writing(1), writing(2), peering(3))
    done.set()
    await looker
    await asyncio.to_thread(store.close)
    await first.append([message("last")], writer="last", start=0)  # what the SDK wrote last gets its order now
    peer = theirs()
    assert await peer.get_items() == await first.get_items()
    if hasattr(peer, "close"):
        await peer.close()
    first.close()
    assert looks > 10
    print(f"{kind}: {looks} looks, {len(seen)} different heads")
