"""Writes on Redis over one connection that fails, is slow, or is left in the middle (A6, A13, A21, A22)."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from standfast import OutcomeUnknownError, RedisSession
from standfast._kits.conformance.network import Proxy
from standfast._src.sessions.backends.redis.redis_session import READERS
from standfast.conformance import message
from tests.helpers import servers
from tests.helpers.interrupts import Interrupt

pytestmark = [pytest.mark.redis, pytest.mark.skipif(sys.platform != "linux", reason="it looks into /proc")]

PATIENCE_S = 60.0
"""How long a test waits for what comes at once: a machine that is busy is not the defect."""


@pytest.fixture
def session() -> Iterator[RedisSession]:
    yield (made := opened(servers.redis_url()))
    made.close().close()


def opened(url: str, **kwargs: Any) -> RedisSession:
    return RedisSession.from_url("c", url=url, key_prefix=uuid.uuid4().hex, **kwargs)


async def add(session: RedisSession, *words: str) -> None:
    await session.add_items([message(word) for word in words])


async def words(session: RedisSession) -> list[str]:
    return [str(item["content"]) for item in await session.get_items()]


async def warmed(session: RedisSession) -> None:
    """Have the connection opened, and the server greeted."""
    await add(session, "warm")
    await asyncio.sleep(0)


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def test_what_one_loop_writes_is_there_in_the_order_it_was_asked_for(session: RedisSession) -> None:
    """Whether a write goes alone or with others: the order is that of the calls."""
    await warmed(session)
    expected = ["warm"]
    for number in range(30):
        lease = await session.lease(ttl_s=60, wait_s=PATIENCE_S)
        doing: list[Any] = [asyncio.create_task(add(session, f"{number} add"))]
        if number % 3:
            doing += [asyncio.create_task(add(session, f"{number} more {place}")) for place in range(number % 4)]
        recorded = [message(f"{number} record")]
        doing.append(asyncio.create_task(session.append(recorded, writer="r", start=number, lease=lease)))
        await asyncio.sleep(0)
        lease.release_now()
        doing.append(asyncio.create_task(add(session, f"{number} popped")))
        doing.append(asyncio.create_task(session.pop_item()))
        done = await asyncio.gather(*doing)
        assert done[-1]["content"] == f"{number} popped"
        expected += [f"{number} add"]
        expected += [f"{number} more {place}" for place in range(number % 4 if number % 3 else 0)]
        expected += [f"{number} record"]
    assert await words(session) == expected


async def test_answers_that_come_byte_by_byte_are_read_whole(session: RedisSession) -> None:
    at = urlsplit(servers.redis_url())
    proxy = Proxy((str(at.hostname), int(at.port or 6379)))
    slow = opened(f"redis://127.0.0.1:{proxy.port}/0")
    await warmed(slow)
    with proxy.faulty("drip"):
        for number in range(5):
            await asyncio.gather(*(add(slow, f"{number} {place}") for place in range(3)))
    assert sorted(await words(slow)) == sorted(["warm", *(f"{n} {place}" for n in range(5) for place in range(3))])
    proxy.close()


async def test_scripts_that_the_server_forgot_are_sent_again(session: RedisSession) -> None:
    await warmed(session)
    with redis.Redis.from_url(servers.redis_url()) as other:
        for number in range(5):
            other.script_flush()
            await add(session, str(number))
    assert await words(session) == ["warm", "0", "1", "2", "3", "4"]


async def test_a_connection_that_the_server_closed_is_opened_again() -> None:
    """While nobody writes, and while an answer is awaited."""
    server = servers.RedisServer()
    session = opened(server.url)
    try:
        await warmed(session)
        with redis.Redis.from_url(server.url) as other:
            for number in range(10):
                writing = asyncio.create_task(add(session, str(number)))
                if number % 2:
                    await asyncio.sleep(0)
                other.client_kill_filter(_type="normal", skipme=True)
                await writing
        assert await words(session) == ["warm", *(str(number) for number in range(10))]
    finally:
        server.stop()


async def test_a_server_that_stands_still_keeps_nobody_longer_than_its_time() -> None:
    """Cancelled, a caller has control back at once; and what was cut is there once, or not at all."""
    at = urlsplit(servers.redis_url())
    proxy = Proxy((str(at.hostname), int(at.port or 6379)))
    session = opened(f"redis://127.0.0.1:{proxy.port}/0", timeout_s=1.0, redis_kwargs={"socket_timeout": 0.3})
    await warmed(session)
    with proxy.faulty("stall"):
        with pytest.raises(OutcomeUnknownError):
            await add(session, "late")
        left = asyncio.create_task(add(session, "left"))
        await asyncio.sleep(0.01)
        left.cancel()
        with pytest.raises(asyncio.CancelledError):
            await left
    patient = opened(servers.redis_url(), timeout_s=PATIENCE_S)
    patient.key_prefix = session.key_prefix
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        with contextlib.suppress(Exception):
            await add(session, "after")
            break
    found = await words(patient)
    assert found[0] == "warm"
    assert found[-1] == "after"
    assert len(found) == len(set(found)) or found.count("after") > 1  # an attempt of ours may have been done
    assert found.count("late") <= 1
    assert found.count("left") <= 1
    proxy.close()


async def test_storms_of_cancelled_writes_keep_no_other_from_being_sent(session: RedisSession) -> None:
    await warmed(session)
    kept = ["warm"]
    for storm in range(20):
        tasks = [asyncio.create_task(add(session, f"{storm} {place}")) for place in range(100)]
        for _ in range(storm % 4):
            await asyncio.sleep(0)
        for place, task in enumerate(tasks):
            if place % 10:
                task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        kept += [f"{storm} {place}" for place in range(0, 100, 10)]
        assert [ended[place] for place in range(0, 100, 10)] == [None] * 10
    found = await words(session)
    assert len(found) == len(set(found))
    assert set(kept) <= set(found)


# --- several loops ----------------------------------------------------------------------------------------------------


def test_loops_that_end_with_an_append_under_way_keep_nobody_waiting(session: RedisSession) -> None:
    """With and without a word to the task that waits (A22)."""
    asyncio.run(warmed(session))
    before = descriptors()
    kept = []
    for number in range(30):
        loop = asyncio.new_event_loop()
        task: Any = loop.create_task(add(session, f"under way {number}"))
        task._log_destroy_pending = False
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
        if number % 2:
            kept.append(task)
        del loop, task
        asyncio.run(add(session, f"after {number}"))
    found = asyncio.run(words(session))
    assert [word for word in found if word.startswith("after")] == [f"after {number}" for number in range(30)]
    assert len(found) == len(set(found))
    kept.clear()
    gc.collect()
    asyncio.run(add(session, "last"))
    assert descriptors() <= before + READERS


# --- interrupted ------------------------------------------------------------------------------------------------------


OURS = ("requests.py", "threaded_executor.py", "stored_session.py")

TRACED_WHOLE = pytest.mark.skipif(
    sys.version_info >= (3, 12),
    reason="there the tracer shows too few places of one write; those of three at once are interrupted on every Python",
)


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")  # interrupted between the call and the await
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("count", [pytest.param(1, marks=TRACED_WHOLE), 3])
def test_an_interrupt_at_any_moment_leaves_nothing_locked_lost_or_doubled(session: RedisSession, count: int) -> None:
    """Ctrl-C, or any signal whose handler raises: who was not interrupted has an outcome, and all goes on."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(warmed(session))
    acknowledged, number, is_raised = {"warm"}, 0, True

    async def settled(*names: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*(add(session, name) for name in names))
        acknowledged.update(names)

    while is_raised:
        if count > 1:
            loop.run_until_complete(settled(*(f"company {number} {place}" for place in range(count))))
        names = [f"{number} {place}" for place in range(count)]
        tasks = [loop.create_task(add(session, name)) for name in names]
        waiting = loop.create_task(asyncio.wait(tasks))
        interrupt = Interrupt(number, OURS)
        with contextlib.suppress(KeyboardInterrupt), interrupt:
            loop.run_until_complete(waiting)
        is_raised = interrupt.is_raised
        _, pending = loop.run_until_complete(asyncio.wait(tasks, timeout=PATIENCE_S))
        assert not pending, f"nobody was told after interrupt {number}"
        acknowledged |= {name for name, task in zip(names, tasks, strict=True) if task.exception() is None}
        loop.run_until_complete(settled(f"after {number}"))
        number += 1
    assert number > 20
    found = loop.run_until_complete(words(session))
    assert len(found) == len(set(found))
    assert acknowledged <= set(found)
    loop.close()


# --- the end of the process -------------------------------------------------------------------------------------------

LEFT_OPEN = """
import asyncio, sys
from standfast import RedisSession
from standfast._src.sessions.client import threaded_executor

threaded_executor.LAST_WAIT_S = 3600.0
session = RedisSession.from_url("c", url=sys.argv[1], key_prefix=sys.argv[2])
asyncio.run(session.add_items([{"role": "user", "content": "kept"}]))
"""


def test_a_process_ends_at_once_though_a_session_was_left_open() -> None:
    """Its threads were not told to end, and each end of a process waited for them as long as it may."""
    prefix = uuid.uuid4().hex
    subprocess.run([sys.executable, "-c", LEFT_OPEN, servers.redis_url(), prefix], check=True, timeout=PATIENCE_S)
    session = RedisSession.from_url("c", url=servers.redis_url(), key_prefix=prefix)
    assert asyncio.run(words(session)) == ["kept"]
