"""RedisSession in an event loop that makes what it watches non-blocking."""

from __future__ import annotations

import asyncio
import uuid

import pytest
import redis
import uvloop

from standfast import RedisSession
from standfast._src.base.operational_events import EVENTS
from standfast.conformance import message
from tests.helpers import servers

PAUSE_MS = 100


@pytest.mark.redis
def test_an_answer_that_takes_its_time_is_waited_for_in_uvloop(caplog: pytest.LogCaptureFixture) -> None:
    """Each answer that was not there at once was taken for one whose time is up: a service asked for all again."""
    url, prefix = servers.redis_url(), f"uv-{uuid.uuid4().hex}"

    async def write() -> None:
        sessions = [RedisSession.from_url(f"s{number}", url=url, key_prefix=prefix) for number in range(8)]
        for number in range(5):  # one after the other: these are sent, and their answers watched for, by the loop
            await sessions[0].append([message(str(number))], writer="w", start=number)
        with redis.Redis.from_url(url) as client:
            client.client_pause(PAUSE_MS, all=False)
        await asyncio.gather(*(session.add_items([message("together")]) for session in sessions))
        for session in sessions:
            await session.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(write())
    assert not [one.getMessage() for one in caplog.records if one.msg == EVENTS["store_retried"][1]]
