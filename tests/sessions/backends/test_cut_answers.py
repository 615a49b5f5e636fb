"""Every store on a network, behind a connection that is cut before or behind what was sent (A6, A8, A13, B1).

Several tasks add, append, pop and give up popping at once, through sessions of two connections, until the connection
was cut often enough. Then everything is there once: what was added and not popped, in the order of its writer.
"""

from __future__ import annotations

import asyncio
import random
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis.asyncio
from sqlalchemy.ext.asyncio import create_async_engine

from standfast import PostgresSession, RedisSession, SQLAlchemySession
from standfast._kits.conformance.network import Proxy
from standfast.conformance import message
from tests.conformance.server_backends import Proxies, cluster_ports
from tests.helpers import servers

CUTS = 8

Open = Callable[[str], Any]
"""Opens the session by a URL."""


def through(url: str, proxy: Proxy | Proxies) -> str:
    parts = urlsplit(url)
    user = f"{parts.username}@" if parts.username else ""
    return urlunsplit(parts._replace(netloc=f"{user}127.0.0.1:{proxy.port}"))


def proxied(url: str, is_write: Callable[[bytes], bool] = lambda sent: True) -> Proxy:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return Proxy((parts.hostname, parts.port), is_write)


@asynccontextmanager
async def on_redis(kind: str) -> AsyncIterator[tuple[Open, str, Proxy]]:
    prefix, url = uuid.uuid4().hex, servers.redis_url()
    proxy = proxied(url, lambda sent: b"EVALSHA" in sent)
    async with AsyncExitStack() as stack:
        stack.callback(proxy.close)

        def opened(url: str) -> RedisSession:
            if kind == "url":
                return RedisSession.from_url("c", url=url, key_prefix=prefix)
            client = redis.asyncio.Redis.from_url(url)
            stack.push_async_callback(client.aclose)
            return RedisSession("c", redis_client=client, key_prefix=prefix)

        yield opened, url, proxy


@asynccontextmanager
async def on_a_cluster() -> AsyncIterator[tuple[Open, str, Proxies]]:
    prefix, url = uuid.uuid4().hex, servers.cluster_url()
    proxies = Proxies(cluster_ports(url), lambda sent: b"EVALSHA" in sent)

    def opened(where: str) -> RedisSession:
        # Whatever node a client begins with, it is told of all of them by their own addresses.
        kwargs = {} if where == url else {"address_remap": proxies.detour}
        return RedisSession.from_url("c", url=url, cluster=True, key_prefix=prefix, redis_kwargs=kwargs)

    try:
        yield opened, url, proxies
    finally:
        proxies.close()


@asynccontextmanager
async def on_postgres(kind: str) -> AsyncIterator[tuple[Open, str, Proxy]]:
    schema, url = f"s{uuid.uuid4().hex}", servers.postgres_url()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f'CREATE SCHEMA "{schema}"')
        proxy = proxied(url)
        async with AsyncExitStack() as stack:
            stack.callback(proxy.close)

            def opened(url: str) -> Any:
                if kind == "psycopg alone":
                    return PostgresSession("c", url=url, schema=schema)
                driver = kind.split()[0]
                url = url.replace("postgresql://", f"postgresql+{driver}://")
                options: dict[str, Any] = {"options": f"-csearch_path={schema}"}
                if driver == "asyncpg":
                    options = {"server_settings": {"search_path": schema}}
                if kind.endswith("url"):
                    given = {"connect_args": options}
                    return SQLAlchemySession.from_url("c", url=url, engine_kwargs=given, create_tables=True)
                engine = create_async_engine(url, connect_args=options)
                stack.push_async_callback(engine.dispose)
                return SQLAlchemySession("c", engine=engine, create_tables=True)

            yield opened, url, proxy
        connection.execute(f'DROP SCHEMA "{schema}" CASCADE')


async def cutting(proxy: Proxy | Proxies) -> None:
    """Cut the connection so often: in turns before what was sent, and behind it."""
    for number in range(CUTS):
        with proxy.faulty("lose" if number % 2 else "cut"):
            while proxy.cut_count <= number:
                await asyncio.sleep(0.001)
        await asyncio.sleep(0.02)


async def working(
    session: Any, name: str, dice: random.Random, cuts: asyncio.Task[None]
) -> tuple[list[str], list[str]]:
    """What was added, in order, and what was taken."""
    added, popped, count = [], [], 0
    while not cuts.done():
        match dice.randrange(4):
            case 0:
                added.append(f"{name} {len(added)}")
                await session.add_items([message(added[-1])])
            case 1:
                words = [f"{name} {len(added) + place}" for place in range(2)]
                added += words
                await session.append([message(word) for word in words], writer=name, start=count)
                count += 2
            case 2:
                taken = await session.pop_item()
                popped += [] if taken is None else [taken["content"]]
            case _:
                popping = asyncio.create_task(session.pop_item())
                await asyncio.sleep(dice.random() * 0.01)
                popping.cancel()
                try:
                    taken = await popping
                except asyncio.CancelledError:
                    continue
                popped += [] if taken is None else [taken["content"]]
    return added, popped


async def check(opened: Open, url: str, proxy: Proxy | Proxies) -> None:
    direct = opened(url)
    await direct.add_items([message("first")])
    ways = [opened(through(url, proxy)), direct]
    cuts = asyncio.create_task(cutting(proxy))
    work = [working(ways[n == 4], f"w{n}", random.Random(n), cuts) for n in range(5)]
    done = await asyncio.gather(*work)
    await cuts
    await ways[0].get_items()  # behind whatever it still had to put back
    found = [item["content"] for item in await direct.get_items()]
    added = [["first"], *(one for one, _ in done)]
    popped = [word for _, some in done for word in some]
    assert Counter(found) + Counter(popped) == Counter(word for words in added for word in words)
    for words in added:
        mine = set(words)
        assert [word for word in found if word in mine] == [word for word in words if word in set(found)]
    for session in ways:
        session.close()


@pytest.mark.redis
@pytest.mark.parametrize("kind", ["url", "a client of yours"])
async def test_nothing_is_lost_or_doubled_on_redis(kind: str) -> None:
    async with on_redis(kind) as (opened, url, proxy):
        await asyncio.wait_for(check(opened, url, proxy), 120)


@pytest.mark.redis
async def test_nothing_is_lost_or_doubled_on_a_cluster() -> None:
    async with on_a_cluster() as (opened, url, proxies):
        await asyncio.wait_for(check(opened, url, proxies), 120)


KINDS = ["psycopg alone", "psycopg by url", "asyncpg by url", "psycopg and an engine", "asyncpg and an engine"]


@pytest.mark.postgres
@pytest.mark.parametrize("kind", KINDS)
async def test_nothing_is_lost_or_doubled_on_postgresql(kind: str) -> None:
    async with on_postgres(kind) as (opened, url, proxy):
        await asyncio.wait_for(check(opened, url, proxy), 120)
