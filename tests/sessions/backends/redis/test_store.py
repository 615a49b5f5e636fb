"""The Redis store does what the port says, whatever the OpenAI Agents SDK does to the same keys meanwhile."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
import redis
from hypothesis import given, settings, strategies as st

from standfast._src.sessions.backends.redis.connection import Link
from standfast._src.sessions.backends.redis.keys import Keys, Layout
from standfast._src.sessions.backends.redis.redis_storage import RedisStore
from standfast._src.sessions.storage import Name
from tests.helpers import servers
from tests.helpers.port_machine import Machine

pytestmark = pytest.mark.redis


class SDKOnRedis:
    """The commands that the SDK's RedisSession sends for add, pop and clear."""

    def __init__(self, client: redis.Redis, prefix: str) -> None:
        self.client, self.keys = client, Keys(prefix, "sdk")

    def push(self, session_id: str, data: bytes) -> None:
        meta, rows, *_ = self.keys.of(Name("session", session_id)).keys
        self.client.hset(meta, mapping={"session_id": session_id, "updated_at": 5})
        self.client.hsetnx(meta, "created_at", 5)
        self.client.rpush(rows, data)

    def pop(self, session_id: str) -> None:
        self.client.rpop(self.keys.of(Name("session", session_id)).keys[1])

    def clear(self, session_id: str) -> None:
        self.client.delete(*self.keys.of(Name("session", session_id)).keys[:3])


@pytest.fixture(scope="module", params=[2, 3], ids=["RESP2", "RESP3"])
def link(request: pytest.FixtureRequest) -> Iterator[Link]:
    link = Link(servers.redis_url(), protocol=request.param)
    yield link
    link.close()


@pytest.mark.parametrize(
    ("beside", "layout"),
    [(False, "sdk"), (True, "sdk"), (False, "tagged")],
    ids=["alone", "beside the SDK", "alone, tagged"],
)
@settings(max_examples=20)
@given(data=st.data())
def test_any_steps_give_what_the_port_says(link: Link, beside: bool, layout: Layout, data: st.DataObject) -> None:
    prefix = uuid.uuid4().hex
    store = RedisStore(link, prefix=prefix, layout=layout, ttl_ms=None)
    with redis.Redis.from_url(servers.redis_url()) as client:
        Machine(store, SDKOnRedis(client, prefix) if beside else None).run(data.draw, 12)
