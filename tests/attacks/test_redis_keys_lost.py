"""Keys of a session are flushed, evicted, expired, renamed or copied on a Redis server, while a run is under way.

What can be noticed is an error that says what to do, and nothing is written behind what is gone. What cannot be noticed
is in `docs/how-to/use-redis.md`: reading looks at nothing but the items, and in the SDK's layout a list of items that
is gone is a list that the SDK has emptied.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
import redis
import redis.asyncio

from standfast import (
    Agent,
    AppendGapError,
    CorruptRecordError,
    NotADatabaseError,
    RedisSession,
    RunClaimedError,
    RunConfig,
    Runner,
    SessionConflictError,
    StoreError,
    copy_sessions,
    function_tool,
    open_store,
)
from standfast._src.sessions.backends.redis.keys import Keys, Layout
from standfast._src.sessions.storage import Name
from standfast.conformance import message
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers import servers

pytestmark = pytest.mark.redis

LAYOUTS: list[Layout] = ["sdk", "tagged"]
PARTS = ("meta", "messages", "counter", "cells", "names", "boxes", "index")


@pytest.fixture
def direct() -> Iterator[redis.Redis]:
    with redis.Redis.from_url(servers.redis_url()) as made:
        yield made


@pytest.fixture
def prefix() -> str:
    return uuid4().hex


def key_of(prefix: str, layout: Layout, part: str, session_id: str = "c") -> bytes:
    return Keys(prefix, layout).of(Name("session", session_id)).keys[PARTS.index(part)]


def opened(prefix: str, layout: Layout, session_id: str = "c", **options: Any) -> RedisSession:
    return RedisSession.from_url(session_id, url=servers.redis_url(), key_prefix=prefix, layout=layout, **options)


async def run_with(session: RedisSession, lose: Callable[[], Any]) -> Any:
    """A run of one call, in which keys are lost."""

    @function_tool
    def pay() -> str:
        lose()
        return "paid"

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], final("done")])
    agent = Agent(name="clerk", instructions="Pay.", model=model, tools=[pay])
    return await Runner.run(agent, "pay", session=session, run_config=RunConfig(run_id="r1"))


LOST = [(part, layout) for part in ("meta", "cells") for layout in LAYOUTS] + [("messages", "tagged")]


@pytest.mark.parametrize(("part", "layout"), LOST)
async def test_a_key_that_is_lost_during_a_run_is_noticed_by_its_next_write(
    part: str, layout: Layout, prefix: str, direct: redis.Redis
) -> None:
    """It would be the run's history without what came before, or counts without items."""
    session = opened(prefix, layout)
    await session.append([message("before")], writer="earlier", start=0)
    with pytest.raises(CorruptRecordError, match="TORN") as raised:
        await run_with(session, lambda: direct.delete(key_of(prefix, layout, part)))
    assert "noeviction" in raised.value.remedy
    left = await session.get_items()
    assert left == ([] if part == "messages" else [message("before")])
    with pytest.raises(CorruptRecordError):
        await session.add_items([message("more")])
    with pytest.raises(CorruptRecordError):  # which would be doubled, where the counts are gone
        await session.append([message("before"), message("next")], writer="earlier", start=0)
    with pytest.raises((CorruptRecordError, AppendGapError)):
        await session.append([message("next")], writer="earlier", start=1)
    assert await session.get_items() == left
    await session.clear_session()  # one of the two ways out
    await session.add_items([message("anew")])
    assert await session.get_items() == [message("anew")]
    session.close()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_list_of_names_that_is_lost_during_a_run_is_made_again(
    layout: Layout, prefix: str, direct: redis.Redis
) -> None:
    session = opened(prefix, layout)
    await session.append([message("before")], writer="earlier", start=0)
    result = await run_with(session, lambda: direct.delete(key_of(prefix, layout, "names")))
    assert result.final_output == "done"
    fork = await session.fork("f")  # which asks for all writers
    with pytest.raises(SessionConflictError):
        await fork.append([message("another")], writer="earlier", start=0)
    direct.delete(key_of(prefix, layout, "names"))
    assert (await session.written("earlier")) == [message("before")]
    await session.clear_session()
    assert await session.get_items() == []
    session.close()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_generations_that_are_lost_are_not_restored_as_nothing(
    layout: Layout, prefix: str, direct: redis.Redis
) -> None:
    session = opened(prefix, layout)
    head = await session.append([message("first"), message("second")], writer="w", start=0)
    await session.replace([message("summary")], upto=head)
    (kept,) = await session.generations()
    direct.delete(key_of(prefix, layout, "boxes"))
    with pytest.raises(CorruptRecordError):
        await session.restore(kept.id)
    assert await session.get_items() == [message("summary")]
    session.close()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("command", ["FLUSHALL", "FLUSHDB"])
async def test_a_run_on_a_server_that_is_flushed_is_told_so(command: str, layout: Layout, prefix: str) -> None:
    server = servers.RedisServer()
    try:
        with redis.Redis.from_url(server.url) as direct:
            session = RedisSession.from_url("c", url=server.url, key_prefix=prefix, layout=layout)
            await session.append([message("before")], writer="earlier", start=0)
            with pytest.raises(RunClaimedError, match="removed"):
                await run_with(session, lambda: direct.execute_command(command))
            assert await session.get_items() == []
            with pytest.raises(AppendGapError):  # who counts notices; who only adds begins a new session
                await session.append([message("next")], writer="earlier", start=1)
            await session.add_items([message("anew")])
            assert await session.get_items() == [message("anew")]
            session.close()
    finally:
        server.stop()


async def test_a_server_that_evicts_keys_never_has_a_session_go_on_behind_lost_items(prefix: str) -> None:
    """With `allkeys-random`, which takes any key: each session goes on whole, or says that it cannot."""
    server = servers.RedisServer(options=["--maxmemory", "6mb", "--maxmemory-policy", "allkeys-random"])
    written: dict[str, int] = {}
    noticed = 0
    try:
        sessions = {
            id_: RedisSession.from_url(id_, url=server.url, key_prefix=prefix, layout="tagged")
            for id_ in (f"s{number}" for number in range(60))
        }
        for turn in range(6):
            for id_, session in sessions.items():
                if written.get(id_) == -1:
                    continue
                try:
                    await session.append([message(f"{turn} " + "x" * 20_000)], writer="run", start=turn)
                    found = await session.get_items()
                except (StoreError, AppendGapError):
                    written[id_], noticed = -1, noticed + 1
                    continue
                if len(found) != turn + 1:  # lost between the append and this read: the next append must say so
                    with pytest.raises((StoreError, AppendGapError)):
                        await session.append([message("late")], writer="run", start=turn + 1)
                    written[id_], noticed = -1, noticed + 1
        with redis.Redis.from_url(server.url) as direct:
            info: Any = direct.info("stats")
        assert info["evicted_keys"] > 0
        assert noticed > 0
        for session in sessions.values():
            session.close()
    finally:
        server.stop()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_session_that_expires_during_a_run_is_a_new_one_with_what_the_run_stores(
    layout: Layout, prefix: str, direct: redis.Redis
) -> None:
    """An expiry is no loss: the session was to end. Its run goes on, as after a clear (A12, A20)."""
    session = opened(prefix, layout, ttl=3600)
    await session.add_items([message("before")])

    def expire() -> None:
        for part in PARTS[:6]:
            direct.pexpire(key_of(prefix, layout, part), 1)
        time.sleep(0.05)  # the server's clock is this machine's

    result = await run_with(session, expire)
    assert result.final_output == "done"
    assert [item.get("type") or item["role"] for item in await session.get_items()] == [
        "user",
        "function_call",
        "function_call_output",
        "message",
    ]
    session.close()


async def test_items_that_were_renamed_or_copied_alone_are_read_and_not_written_to(
    prefix: str, direct: redis.Redis
) -> None:
    session, target = opened(prefix, "sdk"), opened(prefix, "sdk", "d")
    await session.append([message("one")], writer="w", start=0)
    direct.copy(key_of(prefix, "sdk", "messages"), key_of(prefix, "sdk", "messages", "d"))
    assert await target.get_items() == [message("one")]
    with pytest.raises(CorruptRecordError):
        await target.add_items([message("two")])
    direct.rename(key_of(prefix, "sdk", "cells"), key_of(prefix, "sdk", "cells", "d"))
    for one in (session, target):
        with pytest.raises(CorruptRecordError):
            await one.append([message("one"), message("two")], writer="w", start=0)
    session.close()
    target.close()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_session_that_was_copied_key_by_key_goes_on_by_itself(
    layout: Layout, prefix: str, direct: redis.Redis
) -> None:
    session = opened(prefix, layout)
    await session.append([message("one")], writer="w", start=0)
    for part in PARTS[:6]:
        direct.copy(key_of(prefix, layout, part), key_of(prefix, layout, part, "d"))
    copy = opened(prefix, layout, "d")
    await copy.append([message("one"), message("two")], writer="w", start=0)
    assert await copy.get_items() == [message("one"), message("two")]
    assert await session.get_items() == [message("one")]
    assert {one.session_id for one in (await session.list_sessions(limit=9)).sessions} == {"c", "d"}
    session.close()
    copy.close()


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_a_second_layout_below_a_prefix_is_refused(layout: Layout, prefix: str) -> None:
    """One id would be two conversations, and each worker would see its own."""
    session = opened(prefix, layout)
    await session.add_items([message("one")])
    other = opened(prefix, "tagged" if layout == "sdk" else "sdk")
    with pytest.raises(NotADatabaseError, match="layout") as raised:
        await other.add_items([message("two")])
    assert "key_prefix" in raised.value.remedy
    await session.add_items([message("two")])
    again = opened(prefix, layout, redis_kwargs={"client_name": "again"})
    assert await again.get_items() == [message("one"), message("two")]
    assert await again.count_sessions() == 1
    for one in (session, other, again):
        one.close()


async def test_where_both_layouts_are_in_use_each_lists_its_own(prefix: str, direct: redis.Redis) -> None:
    """They were begun at the same moment, or before this was looked for: both stay within reach."""
    first, second = opened(prefix, "sdk"), opened(uuid4().hex, "tagged", "t")
    await second.add_items([message("tagged")])
    await first.add_items([message("plain")])
    for part in PARTS:
        direct.copy(key_of(second.key_prefix, "tagged", part, "t"), key_of(prefix, "tagged", part, "t"))
    for session in (first, opened(prefix, "tagged", "t")):
        await session.add_items([message("more")])
        listed = await session.list_sessions(limit=9)
        assert [one.session_id for one in listed.sessions] == [session.session_id]
        assert await session.count_sessions() == 1
        session.close()
    second.close()


async def test_an_index_that_was_lost_is_made_again_from_the_keys(prefix: str, direct: redis.Redis) -> None:
    session = opened(prefix, "sdk")
    for id_ in ("a", "b", "c"):
        await opened(prefix, "sdk", id_).add_items([message(id_)])
    direct.delete(key_of(prefix, "sdk", "index"))
    assert [one.session_id for one in (await session.list_sessions(limit=9)).sessions] == ["c", "b", "a"]
    session.close()


async def test_a_wrong_password_is_said_at_once_on_a_cluster(prefix: str) -> None:
    cluster = servers.RedisCluster()
    try:
        for node in cluster.nodes:
            with redis.Redis.from_url(node.url) as direct:
                direct.config_set("requirepass", "right")
        url = cluster.url.replace("redis://", "redis://:wrong@")
        session = RedisSession.from_url("c", url=url, key_prefix=prefix, cluster=True, timeout_s=60)
        for operation in (session.get_items(), session.add_items([message("x")])):
            with pytest.raises(StoreError, match="password") as raised:
                await asyncio.wait_for(operation, 50)
            assert "wrong" not in str(raised.value)
        right = RedisSession.from_url("c", url=url.replace("wrong", "right"), key_prefix=prefix, cluster=True)
        await right.add_items([message("x")])
        assert await right.get_items() == [message("x")]
        session.close()
        right.close()
    finally:
        cluster.stop()


async def test_sessions_of_the_sdk_are_copied_to_a_cluster_while_it_writes(prefix: str) -> None:
    """In passes: the first while it writes, the last when it has stopped. Each item comes once, in order."""
    from agents.extensions.memory import RedisSession as AgentsRedis

    client = redis.asyncio.Redis.from_url(servers.redis_url())
    theirs = [AgentsRedis(f"s{number}", redis_client=client, key_prefix=prefix) for number in range(3)]
    for session in theirs:
        await session.add_items([message(f"{session.session_id} 0")])
    stop = asyncio.Event()

    async def write(session: Any) -> int:
        number = 1
        while not stop.is_set():
            await session.add_items([message(f"{session.session_id} {number}")])
            number += 1
            await asyncio.sleep(0.002)
        return number

    source = open_store(f"{servers.redis_url()}?key_prefix={prefix}")
    target = open_store(f"{servers.cluster_url()}?key_prefix={prefix}&cluster=1")
    writing = [asyncio.create_task(write(session)) for session in theirs]
    passes = [await copy_sessions(source, target) for _ in range(3)]
    stop.set()
    counts = await asyncio.gather(*writing)
    passes.append(await copy_sessions(source, target))
    assert [one.refused for one in passes] == [[], [], [], []]
    for count, session in zip(counts, theirs, strict=True):
        found = await target.session(session.session_id).get_items()
        assert found == [message(f"{session.session_id} {number}") for number in range(count)]
    await client.aclose()
    await source.close()
    await target.close()


async def test_who_may_only_read_can_list_what_is_listed_already(prefix: str, direct: redis.Redis) -> None:
    """The index was written to by every listing, whether or not it lacked anything: a replica refused each of them."""
    for id_ in ("a", "b"):
        session = opened(prefix, "sdk", id_)
        await session.add_items([message(id_)])
        session.close()
    direct.execute_command("ACL", "SETUSER", prefix, "on", ">x", "~*", "+@all", "-@write", "+evalsha", "+eval")
    try:
        url = servers.redis_url().replace("redis://", f"redis://{prefix}:x@")
        reader = RedisSession.from_url("a", url=url, key_prefix=prefix)
        assert [one.session_id for one in (await reader.list_sessions(limit=9)).sessions] == ["b", "a"]
        assert await reader.count_sessions() == 2
        reader.close()
    finally:
        direct.execute_command("ACL", "DELUSER", prefix)


async def test_one_server_that_is_a_whole_cluster_is_written_to_by_a_plain_link(prefix: str) -> None:
    """It takes no command whose keys are in several slots, not even to ask which layout is in use."""
    server = servers.RedisServer(cluster=True)
    try:
        with redis.Redis.from_url(server.url) as node:
            node.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        session = RedisSession.from_url("c", url=server.url, key_prefix=prefix, layout="tagged", timeout_s=60)
        await session.add_items([message("one")])
        assert await session.get_items() == [message("one")]
        session.close()
    finally:
        server.stop()


async def test_what_the_sdk_wrote_meanwhile_is_listed_at_its_time(prefix: str, direct: redis.Redis) -> None:
    """A session that leads the index is not put there again by its next append: what came between is behind it."""
    session = opened(prefix, "sdk", "ours")
    for place in range(2):
        await session.append([message("one")], writer="w", start=place)
    meta = key_of(prefix, "sdk", "meta", "ours")
    first = int(direct.hget(meta, "standfast_updated") or 0)
    theirs = first // 1_000_000 + 10  # seconds, as the SDK writes them
    direct.hset(f"{prefix}:sdk", mapping={"session_id": "sdk", "created_at": theirs, "updated_at": theirs})
    direct.hset(meta, mapping={"updated_at": theirs + 20, "standfast_updated": first + 30_000_000})
    await session.append([message("one")], writer="w", start=2)
    assert [one.session_id for one in (await session.list_sessions(limit=9)).sessions] == ["ours", "sdk"]
    session.close()
