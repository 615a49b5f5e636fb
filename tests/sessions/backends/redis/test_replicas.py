"""RedisSession where a server is not alone: replicas that are waited for, failover, a cluster client; and eviction."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import redis.asyncio

from standfast import CallerError, OutcomeUnknownError, RedisSession
from standfast.conformance import message
from tests.helpers import servers

pytestmark = pytest.mark.redis


def items(count: int, start: int = 0) -> list[Any]:
    return [message(f"number {number}") for number in range(start, start + count)]


@pytest.fixture
def server() -> Iterator[servers.RedisServer]:
    made = servers.RedisServer(options=["--repl-diskless-sync-delay", "0"])
    yield made
    made.stop()


@pytest.fixture
def replica(server: servers.RedisServer) -> Iterator[servers.RedisServer]:
    made = servers.RedisServer(options=["--replicaof", "127.0.0.1", str(server.port)])
    yield made
    made.stop()


async def _until_followed(server: servers.RedisServer) -> None:
    async with redis.asyncio.Redis.from_url(server.url) as client:
        while not await client.execute_command("WAIT", 1, 100):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("kind", ["from_url", "a client of yours"])
async def test_a_write_waits_for_replicas_and_says_when_too_few_have_it(
    server: servers.RedisServer, replica: servers.RedisServer, kind: str
) -> None:
    await asyncio.wait_for(_until_followed(server), 60)
    client = redis.asyncio.Redis.from_url(server.url)
    if kind == "from_url":
        session = RedisSession.from_url("c", url=server.url, wait_replicas=1)
    else:
        session = RedisSession("c", redis_client=client, wait_replicas=1)
    await session.append(items(2), writer="w", start=0)
    async with redis.asyncio.Redis.from_url(replica.url) as beside:
        assert await beside.llen("agents:session:c:messages") == 2
    replica.kill()
    with pytest.raises(OutcomeUnknownError, match=r"0 of 1 replicas had it.*Repeating an append"):
        await session.append(items(1, 2), writer="w", start=2)
    assert await session.get_items() == items(3), "it is there, and only that is not known to outlive the server"
    replica.start()
    await asyncio.wait_for(_until_followed(server), 60)
    await session.append(items(1, 2), writer="w", start=2)
    assert await session.get_items() == items(3)
    await client.aclose()
    with pytest.raises(CallerError, match="no number of replicas"):
        RedisSession.from_url("c", url=server.url, wait_replicas=-1)


async def test_what_replicas_kept_from_being_written_is_not_said_to_be_written(server: servers.RedisServer) -> None:
    session = RedisSession.from_url("c", url=server.url, wait_replicas=1)
    for number in range(2):
        with pytest.raises(OutcomeUnknownError, match="0 of 1 replicas had") as caught:
            await session.add_items(items(1, number))
        is_there = items(1, number)[0] in await session.get_items()
        assert is_there or "it was written, but" not in str(caught.value)
    session.close()


async def test_a_write_whose_replicas_may_not_be_asked_for_is_of_unknown_outcome(server: servers.RedisServer) -> None:
    async with redis.asyncio.Redis.from_url(server.url) as client:
        await client.execute_command("ACL", "SETUSER", "default", "-wait")
    session = RedisSession.from_url("c", url=server.url, wait_replicas=1)
    with pytest.raises(OutcomeUnknownError, match=r"it was written, and .*Let this user run WAIT"):
        await session.add_items(items(1))
    assert await session.get_items() == items(1)
    session.close()


@pytest.mark.parametrize("kind", ["from_url", "a client of yours"])
async def test_a_server_that_evicts_is_warned_about_once_and_without_content(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    made = servers.RedisServer(options=["--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru"])
    client = redis.asyncio.Redis.from_url(made.url, decode_responses=True)

    def opened(name: str, ttl: int | None) -> RedisSession:
        if kind == "from_url":
            return RedisSession.from_url(name, url=made.url, ttl=ttl)
        return RedisSession(name, redis_client=client, ttl=ttl)

    with caplog.at_level(logging.WARNING, "standfast.sessions"):
        await opened("secret name", None).add_items([message("secret words")])
        assert not caplog.records, "only what expires is evicted"
        await opened("secret name", 60).add_items([message("secret words")])
        await opened("another", 60).add_items([message("secret words")])
    await client.aclose()
    made.stop()
    (record,) = caplog.records
    assert "volatile-lru" in record.getMessage()
    assert "noeviction" in record.getMessage()
    assert "secret" not in record.getMessage()


async def test_every_ability_works_over_a_cluster_client_of_yours() -> None:
    client = redis.asyncio.RedisCluster.from_url(servers.cluster_url())
    prefix = uuid.uuid4().hex
    many = [RedisSession(f"s{number}", redis_client=client, key_prefix=prefix) for number in range(8)]
    await asyncio.gather(*(session.add_items(items(2)) for session in many))  # a client that nobody has begun yet
    session = many[0]
    head = await session.append(items(2, 2), writer="run", start=0)
    assert await session.append(items(2, 2), writer="run", start=0) == head
    await session.replace(items(1, 9), upto=head)
    (kept,) = await session.generations()
    await session.restore(kept.id)
    fork = await session.fork("f")
    assert await fork.get_items() == await session.get_items() == items(4)
    assert await session.pop_item() == items(1, 3)[0]
    async with await session.lease(ttl_s=5, wait_s=0) as lease:
        await session.append(items(1, 5), writer="held", start=0, lease=lease)
    assert await session.count_sessions() == 9
    assert (await session.list_sessions(limit=9)).sessions[0].session_id == "s0"
    await session.clear_session()
    assert await session.get_items() == []
    await client.aclose()


async def test_a_failover_under_writers_loses_nothing_that_replicas_were_waited_for() -> None:
    cluster = await asyncio.to_thread(servers.RedisCluster, 1)
    prefix, told = uuid.uuid4().hex, {f"w{number}": 0 for number in range(12)}

    def opened(name: str, replicas: int, timeout_s: float = 60) -> RedisSession:
        return RedisSession.from_url(
            name, url=cluster.nodes[1].url, cluster=True, key_prefix=prefix, wait_replicas=replicas, timeout_s=timeout_s
        )

    async def writing(name: str) -> None:
        """Write on until a write is not acknowledged; what was is counted."""
        session = opened(name, 1)
        while told[name] < 60:
            try:
                await session.append(items(1, told[name]), writer="w", start=told[name])
            except OutcomeUnknownError:
                return
            told[name] += 1

    try:
        writers = [asyncio.create_task(writing(name)) for name in told]
        while min(told.values()) < 3:
            assert not any(writer.done() for writer in writers)
            await asyncio.sleep(0.01)
        cluster.nodes[0].kill()
        await asyncio.wait_for(asyncio.gather(*writers), 120)
        for name, count in told.items():
            session = opened(name, 0)
            assert (await session.get_items())[:count] == items(count)
            await session.append(items(1, count), writer="w", start=count)  # perhaps a repeat
            assert await session.get_items() == items(count + 1)
        assert max(told.values()) == 60, "the other nodes went on"
    finally:
        await asyncio.to_thread(cluster.stop)
