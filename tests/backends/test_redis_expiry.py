"""When a session in Redis ends: as one, whatever settings the processes have that write to it (A20).

The server is asked for the time that each key has left, so nothing here waits for an expiry.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal
from urllib.parse import quote

import fakeredis
import pytest
import redis
import redis.asyncio

from standfast import CallerError, RedisSession, open_store
from standfast.backends.redis.keys import Keys, bucket_of
from standfast.conformance import message
from standfast.sessions.port import Name
from tests.helpers import servers

pytestmark = pytest.mark.redis

TTL, LEASE_S = 1000, 5000
PARTS = ("meta", "messages", "counter", "cells", "names", "boxes")
Expiry = int | Literal["keep"] | None


class Place:
    """One prefix on a server: sessions are opened with any ttl, and keys are asked how long they have left."""

    def __init__(self, kind: str) -> None:
        self.prefix = uuid.uuid4().hex
        self.layout: Any = "sdk" if kind in ("sdk", "fakeredis") else "tagged"
        self.is_cluster = kind.startswith("cluster")
        self.url = servers.cluster_url() if self.is_cluster else servers.redis_url()
        self.client: Any = None
        self.direct: Any = None
        if self.is_cluster:
            self.direct = redis.RedisCluster.from_url(self.url)
        elif kind != "fakeredis":
            self.direct = redis.Redis.from_url(self.url)
        if kind == "fakeredis":
            self.client = fakeredis.FakeAsyncRedis()
        elif kind == "cluster, a client of yours":
            self.client = redis.asyncio.RedisCluster.from_url(self.url)
        self.sessions: list[RedisSession] = []

    def open(self, ttl: Expiry = None) -> RedisSession:
        given: dict[str, Any] = {"key_prefix": self.prefix, "ttl": ttl, "layout": self.layout}
        if self.client is not None:
            made = RedisSession("c", redis_client=self.client, **given)
        else:
            made = RedisSession.from_url("c", url=self.url, cluster=self.is_cluster, **given)
        self.sessions.append(made)
        return made

    async def left_s(self) -> dict[str, int]:
        """The seconds that each key has left which is there; -1 for one that does not end."""
        found = Keys(self.prefix, self.layout).of(Name("session", "c"), bucket_of("c") if self.is_cluster else 0)
        left: dict[str, int] = {}
        for part, key in zip(PARTS, found.keys[:6], strict=True):
            left[part] = await self.client.ttl(key) if self.direct is None else self.direct.ttl(key)
        return {part: seconds for part, seconds in left.items() if seconds != -2}

    async def close(self) -> None:
        for session in self.sessions:
            session.close()
        if self.client is not None:
            await self.client.aclose()
        if self.direct is not None:
            self.direct.close()


@pytest.fixture(params=["sdk", "tagged", "cluster", "cluster, a client of yours", "fakeredis"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    made = Place(request.param)
    yield made
    await made.close()


async def written(session: RedisSession) -> None:
    """Rows of nobody and of a writer, a generation, and cells of each."""
    await session.add_items([message("one"), message("two")])
    head = await session.append([message("three")], writer="w", start=0)
    await session.replace([message("summary")], upto=head)
    await session.append([message("four")], writer="w", start=1)


async def replaced(session: RedisSession) -> None:
    await session.replace([message("another summary")], upto=await session.head())


async def undone(session: RedisSession) -> None:
    (kept, *_) = await session.generations()
    await session.restore(kept.id)


CHANGES: dict[str, Callable[[RedisSession], Any]] = {
    "add": lambda session: session.add_items([message("five")]),
    "append": lambda session: session.append([message("five")], writer="w", start=2),
    "pop": lambda session: session.pop_item(),
    "replace": replaced,
    "restore": undone,
    "rewind": lambda session: session.rewind(writer="w", to=1),
}


def is_ttl(seconds: int) -> bool:
    return TTL - 300 < seconds <= TTL  # a machine may be busy for five minutes


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_without_a_ttl_takes_the_expiry_off_the_whole_session(place: Place, change: str) -> None:
    await written(place.open(TTL))
    before = await place.left_s()
    assert set(before) >= {"meta", "messages", "cells", "names", "boxes"}
    assert all(map(is_ttl, before.values()))
    await CHANGES[change](place.open())
    after = await place.left_s()
    assert set(after) >= set(before)
    assert set(after.values()) == {-1}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_with_a_ttl_puts_the_whole_session_under_it(place: Place, change: str) -> None:
    await written(place.open())
    assert set((await place.left_s()).values()) == {-1}
    await CHANGES[change](place.open(TTL))
    assert all(map(is_ttl, (await place.left_s()).values()))


async def test_a_change_that_keeps_the_expiry_leaves_it_and_what_is_new_ends_with_the_rest(place: Place) -> None:
    expiring = place.open(TTL)
    await expiring.add_items([message("one"), message("two")])
    await expiring.append([message("three"), message("four")], writer="w", start=0)
    assert "boxes" not in await place.left_s()
    keeping = place.open("keep")
    await replaced(keeping)  # makes the key of generations
    after = await place.left_s()
    assert "boxes" in after
    assert all(map(is_ttl, after.values()))
    for change in ("append", "restore", "add", "pop"):
        await CHANGES[change](keeping)
        assert all(map(is_ttl, (await place.left_s()).values())), change


async def test_a_session_without_an_expiry_gets_none_from_a_change_that_keeps_it(place: Place) -> None:
    await written(place.open("keep"))
    assert set((await place.left_s()).values()) == {-1}
    await place.open("keep").add_items([message("more")])
    assert set((await place.left_s()).values()) == {-1}


@pytest.mark.parametrize("ttl", [None, "keep", TTL])
async def test_a_lease_holds_the_cells_of_a_session_that_ends_before_and_nothing_else(
    place: Place, ttl: Expiry
) -> None:
    """Or the lease would be over with the history it covers, and two would hold it (B7)."""
    await written(place.open(TTL))
    async with await place.open(ttl).lease(ttl_s=LEASE_S, wait_s=0, renewed=False):
        left = await place.left_s()
        assert min(left.pop("cells"), left.pop("names")) > LEASE_S - 300
        assert all(map(is_ttl, left.values()))


@pytest.mark.parametrize("ttl", [None, "keep", TTL])
async def test_a_lease_puts_no_part_of_a_session_under_an_expiry_that_the_rest_does_not_have(
    place: Place, ttl: Expiry
) -> None:
    """Or the counts of writers would end before the history, and a repeat would be stored twice (B1)."""
    await written(place.open())
    async with await place.open(ttl).lease(ttl_s=LEASE_S, wait_s=0, renewed=False):
        assert set((await place.left_s()).values()) == {-1}
    assert set((await place.left_s()).values()) == {-1}


async def test_a_lease_on_a_session_that_nobody_writes_to_ends_where_sessions_do(place: Place) -> None:
    async with await place.open(TTL).lease(ttl_s=5, wait_s=0, renewed=False):
        pass
    assert all(map(is_ttl, (await place.left_s()).values()))


@pytest.mark.parametrize("is_cluster", [False, True])
async def test_whoever_looks_after_a_store_does_not_change_when_its_sessions_end(is_cluster: bool) -> None:
    place = Place("cluster" if is_cluster else "sdk")
    await written(place.open(TTL))
    url = f"{place.url}?key_prefix={quote(place.prefix)}" + ("&cluster=1" if is_cluster else "")
    async with open_store(url) as store:
        session = store.session("c")
        await session.pop_item()
        await session.add_items([message("mended")])
    assert all(map(is_ttl, (await place.left_s()).values()))
    await place.close()


@pytest.mark.parametrize("ttl", [0, -1, True, 1.5, "forever"])
def test_what_is_no_expiry_is_refused(ttl: Any) -> None:
    with pytest.raises(CallerError, match="keep"):
        RedisSession.from_url("c", url="redis://nowhere", ttl=ttl)
