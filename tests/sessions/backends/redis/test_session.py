"""RedisSession with clients of every kind, and with servers that are not as they should be."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import fakeredis
import pytest
import redis
import redis.asyncio

from standfast import (
    AppendGapError,
    NotADatabaseError,
    NotFoundError,
    RedisSession,
    SessionConflictError,
    StoreError,
    StoreFullError,
    StoreUnavailableError,
    WrongLoopError,
)
from standfast._kits.conformance.network import Proxy
from standfast.conformance import message
from tests.helpers import servers

pytestmark = pytest.mark.redis


def items(name: str, count: int) -> list[Any]:
    return [message(f"{name} {number}") for number in range(count)]


CLIENTS = {
    "bytes, RESP2": {"protocol": 2},
    "bytes, RESP3": {"protocol": 3},
    "text, RESP2": {"protocol": 2, "decode_responses": True},
    "text, RESP3": {"protocol": 3, "decode_responses": True},
    "fakeredis": None,
    "fakeredis, text": {"decode_responses": True},
}


@pytest.fixture(params=CLIENTS)
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    options = CLIENTS[request.param]
    if request.param.startswith("fakeredis"):
        made: Any = fakeredis.FakeAsyncRedis(**(options or {}))
    else:
        made = redis.asyncio.Redis.from_url(servers.redis_url(), **(options or {}))
    yield made
    await made.aclose()


async def test_every_ability_works_over_a_client_of_yours(client: Any) -> None:
    prefix = uuid.uuid4().hex
    session = RedisSession("c", redis_client=client, key_prefix=prefix)
    assert await session.ping()
    await session.add_items(items("before", 2))
    head = await session.append(items("run", 3), writer="run", start=0)
    assert await session.append(items("run", 3), writer="run", start=0) == head  # a repeat
    assert await session.get_items() == items("before", 2) + items("run", 3)
    await session.replace(items("summary", 1), upto=head)
    (kept,) = await session.generations()
    assert await session.read_generation(kept.id) == items("before", 2) + items("run", 3)
    await session.restore(kept.id)
    await session.rewind(writer="run", to=1)
    assert await session.get_items() == items("before", 2) + items("run", 3)[:1]
    fork = await session.fork("f")
    assert await fork.get_items() == await session.get_items()
    assert await session.pop_item() == items("run", 3)[0]
    with pytest.raises(SessionConflictError):
        await session.append(items("late", 1), writer="late", start=0, expect=head)
    async with await session.lease(ttl_s=5, wait_s=0) as lease:
        await session.append(items("held", 1), writer="held", start=0, lease=lease)
    assert [one.session_id for one in (await session.list_sessions(limit=5)).sessions] == ["c", "f"]
    with pytest.raises(NotFoundError):
        await session.list_sessions(after=f"{'1' * 5000}:c", limit=5)
    assert await session.count_sessions() == 2
    await client.rpush(f"{prefix}:c:messages", b"\xff\xfe")
    assert len(await session.get_items()) == 3
    await session.clear_session()
    assert await session.get_items() == []


async def test_what_happens_at_once_over_a_client_of_yours_loses_nothing(client: Any) -> None:
    prefix = uuid.uuid4().hex
    sessions = [RedisSession("c", redis_client=client, key_prefix=prefix) for _ in range(4)]
    await asyncio.gather(*(s.add_items(items(f"{n} {turn}", 3)) for turn in range(5) for n, s in enumerate(sessions)))
    found = await sessions[0].get_items()
    assert len(found) == 60
    batches = [found[place : place + 3] for place in range(0, 60, 3)]
    assert all(len({item["content"].rsplit(" ", 1)[0] for item in batch}) == 1 for batch in batches)


def test_a_client_is_refused_from_another_loop() -> None:
    client = redis.asyncio.Redis.from_url(servers.redis_url())
    session = RedisSession("c", redis_client=client, key_prefix=uuid.uuid4().hex)

    async def first() -> None:
        await session.add_items(items("first", 1))
        await client.aclose()

    asyncio.run(first())
    with pytest.raises(WrongLoopError):
        asyncio.run(session.get_items())


async def test_scripts_that_the_server_forgot_are_sent_again() -> None:
    session = RedisSession.from_url("c", url=servers.redis_url(), key_prefix=uuid.uuid4().hex)
    with redis.Redis.from_url(servers.redis_url()) as direct:
        for turn in range(3):
            direct.script_flush()
            await session.add_items(items(str(turn), 1))
    assert len(await session.get_items()) == 3
    session.close()


async def test_a_key_of_another_kind_is_named_at_once_and_nothing_is_written() -> None:
    prefix = uuid.uuid4().hex
    with redis.Redis.from_url(servers.redis_url()) as direct:
        for key in (f"{prefix}:c", f"{prefix}:c:messages", f"{prefix}:c:standfast", f"{prefix}:standfast-sessions"):
            direct.set(key, "mine")
            session = RedisSession.from_url("c", url=servers.redis_url(), key_prefix=prefix)
            with pytest.raises(NotADatabaseError, match="WRONGTYPE"):
                await asyncio.wait_for(session.add_items(items("x", 1)), 5)
            assert direct.keys(f"{prefix}*") == [key.encode()]
            direct.delete(key)
            session.close()


async def test_a_server_that_is_not_there_is_said_within_the_deadline() -> None:
    session = RedisSession.from_url("c", url="redis://127.0.0.1:1/0", timeout_s=0.5)
    for operation in (session.get_items(), session.add_items(items("x", 1))):
        with pytest.raises(StoreError):
            await asyncio.wait_for(operation, 5)
    assert not await session.ping()
    session.close()


async def test_a_ping_does_not_wait_as_long_as_an_operation_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks about now: a program that looks whether there is a server starts by this."""
    monkeypatch.setattr("standfast._src.sessions.client.stored_session.PING_S_MAX", 0.2)
    session = RedisSession.from_url("c", url="redis://127.0.0.1:1/0", timeout_s=3600)
    assert not await asyncio.wait_for(session.ping(), 60)
    session.close()


async def test_a_wrong_password_is_said_at_once() -> None:
    server = servers.RedisServer(options=["--requirepass", "right"])
    try:
        url = server.url.replace("redis://", "redis://:wrong@")
        session = RedisSession.from_url("c", url=url)
        with pytest.raises(StoreUnavailableError, match="password"):
            await asyncio.wait_for(session.get_items(), 5)
        session.close()
    finally:
        server.stop()


async def test_a_full_server_refuses_whole_batches() -> None:
    server = servers.RedisServer(options=["--maxmemory", "3mb", "--maxmemory-policy", "noeviction"])
    try:
        session = RedisSession.from_url("c", url=server.url)
        stored, refusal = 0, None
        while refusal is None:
            try:
                await asyncio.wait_for(session.add_items(items("word " * 2000, 3)), 10)
                stored += 3
            except StoreError as error:
                refusal = error
        assert isinstance(refusal, StoreFullError)
        assert len(await session.get_items()) == stored > 0
        session.close()
    finally:
        server.stop()


@pytest.mark.parametrize("aof", ["no", "everysec", "always"])
async def test_a_server_that_was_killed_and_started_again_has_what_it_acknowledged(aof: str) -> None:
    server = servers.RedisServer(aof=aof)
    try:
        session = RedisSession.from_url("c", url=server.url)
        for number in range(50):
            await session.append([message(str(number))], writer="run", start=number)
        server.kill()
        writing = asyncio.create_task(session.append([message("50")], writer="run", start=50))
        await asyncio.sleep(0.2)
        server.start()
        await writing
        assert await session.get_items() == [message(str(number)) for number in range(51)]
        session.close()
    finally:
        server.stop()


async def test_a_server_with_snapshots_alone_has_after_a_kill_what_the_latest_one_has() -> None:
    """As the page on Redis says: what came later is gone, and a writer that goes on is told so (B1)."""
    server = servers.RedisServer(options=["--save", "3600 1"])
    try:
        session = RedisSession.from_url("c", url=server.url)
        await session.append([message("0")], writer="run", start=0)
        with redis.Redis.from_url(server.url) as direct:
            direct.save()
        await session.append([message("1")], writer="run", start=1)
        server.kill()
        server.start()
        assert await session.get_items() == [message("0")]
        with pytest.raises(AppendGapError):
            await session.append([message("2")], writer="run", start=2)
        session.close()
    finally:
        server.stop()


async def test_cut_answers_neither_lose_nor_double_anything() -> None:
    """Every few writes the connection is cut before or after the server has it (A6, A8, B1)."""
    from urllib.parse import urlsplit

    parts = urlsplit(servers.redis_url())
    assert parts.hostname is not None
    assert parts.port is not None
    proxy = Proxy((parts.hostname, parts.port), lambda sent: b"EVALSHA" in sent)
    prefix = uuid.uuid4().hex
    session = RedisSession.from_url("c", url=f"redis://127.0.0.1:{proxy.port}/0", key_prefix=prefix)

    async def cutting() -> None:
        for round_ in range(40):
            with proxy.faulty("lose" if round_ % 2 else "cut"):
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.02)

    cuts = asyncio.create_task(cutting())
    added = popped = 0
    while not cuts.done():
        await asyncio.gather(*(session.add_items(items(f"{added + n}", 2)) for n in range(4)))
        added += 4
        popped += await session.pop_item() is not None
    await cuts
    found = await session.get_items()
    assert proxy.cut_count > 5
    assert [word for word, count in Counter(item["content"] for item in found).items() if count > 1] == []
    assert len(found) == 2 * added - popped
    session.close()
    proxy.close()


async def test_a_write_is_one_round_trip_also_when_several_processes_take_turns() -> None:
    """What a look would say is guessed; a wrong guess costs one more call, and nothing else."""
    prefix = uuid.uuid4().hex
    url = servers.redis_url()
    session = RedisSession.from_url("c", url=url, key_prefix=prefix)
    await session.append(items("first", 2), writer="run", start=0)
    with redis.Redis.from_url(url) as direct:
        before = calls(direct)
        for number in range(2, 22):
            await session.append([message(str(number))], writer="run", start=number)
            await session.add_items(items("plain", 1))
        assert calls(direct) - before == 40
    other = RedisSession.from_url("c", url=url, key_prefix=prefix, redis_kwargs={"client_name": "other"})
    await other.append(
        [message("theirs")], writer="run", start=22
    )  # another executor: it does not know what this one did
    await session.append([message("theirs"), message("ours")], writer="run", start=22)
    assert [item["content"] for item in (await session.get_items())[-2:]] == ["theirs", "ours"]
    session.close()
    other.close()


@pytest.mark.parametrize("by", ["url", "client"])
async def test_writes_that_are_asked_for_at_once_do_not_repeat_each_other(by: str) -> None:
    """Those of one process to one session go out together, each relying on those before it: a call for each."""
    url, prefix = servers.redis_url(), uuid.uuid4().hex
    client = redis.asyncio.Redis.from_url(url)
    by_url, by_client = partial(RedisSession.from_url, url=url), partial(RedisSession, redis_client=client)
    made: Any = by_client if by == "client" else by_url
    writers = [made("c", key_prefix=prefix) for _ in range(8)]
    await writers[0].add_items(items("first", 1))
    with redis.Redis.from_url(url) as direct:
        before = calls(direct)
        for turn in range(5):
            await asyncio.gather(*(one.add_items([message(f"{turn}.{n}")]) for n, one in enumerate(writers)))
        assert calls(direct) - before == 40
    said = [item["content"] for item in await writers[0].get_items()]
    assert said[1:] == [f"{turn}.{n}" for turn in range(5) for n in range(8)]
    for one in writers:
        await one.close()
    await client.aclose()


def calls(direct: redis.Redis) -> int:
    """How many scripts the server has run."""
    found: Any = direct.info("commandstats")
    return sum(found.get(name, {"calls": 0})["calls"] for name in ("cmdstat_evalsha", "cmdstat_eval"))


# --- the SDK's counter -----------------------------------------------------------------------------------------------


@pytest.fixture
async def shared() -> AsyncIterator[tuple[Any, str]]:
    """A client and a prefix of the SDK's layout."""
    made = redis.asyncio.Redis.from_url(servers.redis_url())
    yield made, uuid.uuid4().hex
    await made.aclose()


async def test_the_counter_of_the_documented_layout_counts_rows_that_were_added(shared: tuple[Any, str]) -> None:
    """`{key_prefix}:{session_id}:counter`, as the SDK documents it: only a clear lowers it."""
    client, prefix = shared
    session = RedisSession("c", redis_client=client, key_prefix=prefix)

    async def counted() -> int | None:
        found = await client.get(f"{prefix}:c:counter")
        return None if found is None else int(found)

    await session.add_items(items("a", 3))
    assert await counted() == 3
    await session.append(items("b", 2), writer="w", start=0)
    await session.append(items("b", 2), writer="w", start=0)  # a repeat adds nothing
    assert await counted() == 5
    await session.pop_item()
    assert await counted() == 5
    await session.replace(items("c", 1), upto=await session.head())
    assert await counted() == 6
    await session.clear_session()
    assert await counted() is None
    await session.add_items(items("d", 1))
    assert await counted() == 1


@pytest.mark.parametrize("value", [b"many", ["a list"]])
async def test_a_counter_that_is_something_else_stops_no_append(shared: tuple[Any, str], value: Any) -> None:
    client, prefix = shared
    key = f"{prefix}:c:counter"
    await (client.rpush(key, *value) if isinstance(value, list) else client.set(key, value))
    session = RedisSession("c", redis_client=client, key_prefix=prefix)
    for number in range(3):
        await session.add_items(items(str(number), 2))
    assert len(await session.get_items()) == 6


async def test_a_counter_that_comes_late_ends_with_its_session(shared: tuple[Any, str]) -> None:
    """A release that did not count has made the session; a session object that keeps its expiry appends to it."""
    client, prefix = shared
    for ttl, later in [(1000, "keep"), (1000, 1000), (None, "keep")]:
        name = f"c-{ttl}-{later}"
        await RedisSession(name, redis_client=client, key_prefix=prefix, ttl=ttl).add_items(items("a", 2))
        await client.delete(f"{prefix}:{name}:counter")
        again = RedisSession(name, redis_client=client, key_prefix=prefix, ttl=later)
        await again.append(items("b", 1), writer="w", start=0)
        await again.append(items("b", 2), writer="w", start=0)
        left = [await client.ttl(f"{prefix}:{name}{end}") for end in ("", ":messages", ":counter")]
        assert len({value > 0 for value in left}) == 1, left
        assert (left[0] > 0) is (ttl is not None)
