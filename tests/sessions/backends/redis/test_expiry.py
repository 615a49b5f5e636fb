"""When a session in Redis ends: as one, whatever settings the processes have that write to it (A20).

The server is asked for the time that each key has left, and time passes by bringing every end nearer, so nothing here
waits for an expiry. `STANDFAST_ATTACK_ROUNDS=100` plays that many times as many orders of everything.
"""

from __future__ import annotations

import itertools
import os
import random
import uuid
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal
from urllib.parse import quote

import fakeredis
import pytest
import redis
import redis.asyncio
from agents.extensions.memory import RedisSession as AgentsRedis

from standfast import (
    AppendGapError,
    CallerError,
    EncryptedSession,
    LeaseLostError,
    RedisSession,
    SessionBusyError,
    open_store,
)
from standfast._src.sessions.backends.redis.keys import Keys, bucket_of
from standfast._src.sessions.storage import Name
from standfast.conformance import message
from tests.helpers import servers

pytestmark = pytest.mark.redis

TTL, LEASE_S = 1000, 5000
ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
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
            left[part] = await self._ask("ttl", key)
        return {part: seconds for part, seconds in left.items() if seconds != -2}

    async def pass_time(self, seconds: int) -> None:
        """Bring every end nearer by so much: nothing here waits, and clocks stay as they are."""
        found = Keys(self.prefix, self.layout).of(Name("session", "c"), bucket_of("c") if self.is_cluster else 0)
        for key in found.keys[:6]:
            left = await self._ask("pttl", key)
            if left > 0:
                await self._ask("pexpire", key, max(left - seconds * 1000, -1))
        for field in ("!ends", "!held"):
            if await self._ask("hexists", found.keys[3], field):
                await self._ask("hincrby", found.keys[3], field, -seconds * 1000)

    async def delete_as_the_sdk_does(self) -> None:
        """Its clear_session deletes its own three keys; here also where it cannot read the layout."""
        found = Keys(self.prefix, self.layout).of(Name("session", "c"), bucket_of("c") if self.is_cluster else 0)
        await self._ask("delete", *found.keys[:3])

    async def _ask(self, command: str, *args: Any) -> Any:
        if self.direct is None:
            return await getattr(self.client, command)(*args)
        return getattr(self.direct, command)(*args)

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


# --- counts end with the history --------------------------------------------------------------------------------------


async def test_a_ttl_that_was_lowered_ends_the_counts_with_the_history(place: Place) -> None:
    """They stayed until the old time, and what a writer wrote under numbers that they knew was dropped (B1)."""
    await place.open(5 * TTL).append([message("one"), message("two")], writer="w", start=0)
    session = place.open(TTL)
    await session.append([message("three")], writer="w", start=2)
    assert all(map(is_ttl, (await place.left_s()).values()))
    await place.pass_time(2 * TTL)
    assert await session.accepted("w") == 0
    await session.append([message("anew")], writer="w", start=0)
    assert await session.get_items() == [message("anew")]


async def test_who_begins_anew_after_an_expiry_is_stored_though_a_lease_is_held(place: Place) -> None:
    """The lease keeps its cell and those of counts; these were taken for what the writer had written before."""
    session = place.open(TTL)
    lease = await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False)
    await session.append([message("one"), message("two")], writer="w", start=0, lease=lease)
    for _ in range(2):
        await place.pass_time(2 * TTL)
        assert await session.get_items() == []
        with pytest.raises(SessionBusyError):
            await place.open(TTL).lease(ttl_s=1, wait_s=0)
        for _ in range(2):
            await session.append([message("anew")], writer="w", start=0, lease=lease)
            assert await session.get_items() == [message("anew")]
    await lease.release()


@pytest.mark.parametrize("is_same_object", [True, False])
async def test_a_batch_that_has_grown_over_an_expiry_is_stored_whole(place: Place, is_same_object: bool) -> None:
    """What this process believes of a count is no older than its latest write, and may have expired since."""
    session = place.open(TTL)
    items = [message(text) for text in ("one", "two", "three")]
    async with await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False):
        await session.append(items[:2], writer="w", start=0)
        await place.pass_time(2 * TTL)
        await (session if is_same_object else place.open()).append(items, writer="w", start=0)
        assert await session.get_items() == items


async def test_a_writer_under_way_goes_on_at_its_number_though_the_history_has_expired(place: Place) -> None:
    """A run whose tool took longer than the session lasts (A20: as after a clear)."""
    session = place.open(TTL)
    async with await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False) as lease:
        await session.append([message("one"), message("two")], writer="run", start=0, lease=lease)
        await place.pass_time(2 * TTL)
        await session.append([message("three")], writer="run", start=2, lease=lease)
        await session.append([message("two"), message("three")], writer="run", start=1, lease=lease)
        assert await session.get_items() == [message("three")]


async def test_who_lost_a_lease_is_told_so_and_not_that_an_expired_count_knows_it(place: Place) -> None:
    session = place.open(TTL)
    lease = await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False)
    await session.append([message("one")], writer="w", start=0, lease=lease)
    await place.pass_time(2 * TTL)
    await place.open(TTL).revoke_lease()
    with pytest.raises(LeaseLostError):
        await session.append([message("anew")], writer="w", start=0, lease=lease)
    assert await session.get_items() == []
    await lease.release()


@pytest.mark.parametrize("clears", ["standfast", "the SDK"])
async def test_counts_outlive_a_clear_for_as_long_as_the_session_would_have_lasted(place: Place, clears: str) -> None:
    """Whoever clears leaves the keys that an expiry leaves under a lease: only the time tells them apart."""
    session = place.open(TTL)
    async with await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False):
        await session.append([message("one")], writer="w", start=0)
        if clears == "standfast":
            await session.clear_session()
        else:
            await place.delete_as_the_sdk_does()
        await session.append([message("one")], writer="w", start=0)  # a late repeat
        assert await session.get_items() == []
        await place.pass_time(2 * TTL)
        await session.append([message("anew")], writer="w", start=0)
        assert await session.get_items() == [message("anew")]


@pytest.mark.parametrize("place", ["sdk"], indirect=True)
@pytest.mark.parametrize("sdk_ttl", [None, TTL])
async def test_who_begins_anew_is_stored_though_the_sdk_was_the_first_to_write_again(
    place: Place, sdk_ttl: int | None
) -> None:
    """Its hash takes the place of the one that has expired, and says nothing of what the cells belong to."""
    session = place.open(TTL)
    theirs = AgentsRedis.from_url("c", url=place.url, key_prefix=place.prefix, ttl=sdk_ttl)
    async with await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False):
        await session.append([message("one")], writer="w", start=0)
        await place.pass_time(2 * TTL)
        await theirs.add_items([message("theirs")])
        for _ in range(2):
            await session.append([message("anew")], writer="w", start=0)
            assert await session.get_items() == [message("theirs"), message("anew")]
        await theirs.clear_session()
        await session.append([message("anew")], writer="w", start=0)  # a late repeat
        assert await session.get_items() == []
    await theirs.close()


async def test_a_fork_leaves_out_counts_that_have_expired(place: Place) -> None:
    session = place.open(TTL)
    async with await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False):
        await session.append([message("one")], writer="w", start=0)
        await place.pass_time(2 * TTL)
        await session.add_items([message("anew")])
        fork = await session.fork("d")
        place.sessions.append(fork)
        assert await fork.accepted("w") == 0
        await fork.append([message("forked")], writer="w", start=0)
        assert await fork.get_items() == [message("anew"), message("forked")]


@pytest.mark.parametrize("place", ["sdk", "tagged"], indirect=True)
async def test_sealed_counts_end_with_the_history_too(place: Place) -> None:
    """Also where the keys are exchanged in between, which writes every cell again."""
    session = EncryptedSession("c", place.open(TTL), encryption_key="a secret of this test alone")
    async with await session.lease(ttl_s=LEASE_S, wait_s=0, renewed=False):
        for text in ("one", "anew"):
            await session.append([message(text)], writer="w", start=0)
            assert await session.get_items() == [message(text)]
            await place.pass_time(2 * TTL)
            assert await session.get_items() == []
        await session.reseal()
        await session.append([message("resealed")], writer="w", start=0)
        assert await session.get_items() == [message("resealed")]


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


# --- any order of all of it ------------------------------------------------------------------------------------------


class Expected:
    """What a session must be, by a clock of its own: the history, when it ends, and what is known of each writer.

    A writer's count has the incarnation it belongs to: the present one, one that was cleared (what is below it is a
    repeat), or one that has expired under a lease (who begins with 0 begins anew).
    """

    def __init__(self) -> None:
        self.now = 0
        self.items: list[str] = []
        self.exists = False
        self.ends: int | None = None
        """When the history ends; what it was is kept when it is cleared."""
        self.has_cells = False
        self.cells_end: int | None = None
        self.held_until = 0
        self.counts: dict[str, tuple[list[str], str]] = {}

    def pass_time(self, seconds: int) -> None:
        self.now += seconds
        if self.ends is not None and self.now >= self.ends:
            self.items, self.exists, self.ends = [], False, None
            self.counts = {writer: (texts, "expired") for writer, (texts, _) in self.counts.items()}
        if self.cells_end is not None and self.now >= self.cells_end:
            self.counts, self.has_cells, self.cells_end, self.held_until = {}, False, None, 0

    def batch(self, writer: str, start: int, fresh: list[str]) -> list[str] | None:
        """What an append must bring; None if it is a gap. A number that stands in the present history says the same."""
        texts, state = self.counts.get(writer, ([], "present"))
        known = [] if state == "expired" and start == 0 else texts
        if start > len(known):
            return None
        again = known[start : start + len(fresh)]
        return again + fresh[len(again) :]

    def append(self, writer: str, start: int, batch: list[str], ttl: Expiry) -> None:
        texts, state = self.counts.get(writer, ([], "present"))
        known = [] if state == "expired" and start == 0 else texts
        new = batch[len(known) - start :]
        if new:
            self.counts[writer] = ([*known, *new], "present")
            self.change([*self.items, *new], ttl)

    def change(self, items: list[str], ttl: Expiry) -> None:
        self.items, self.has_cells = items, True
        if ttl != "keep":
            self.ends = None if ttl is None else self.now + ttl
        elif not self.exists:
            self.ends = None
        self.exists = True
        self._end_cells()

    def put_cells(self, ttl: Expiry, seconds: int = 0) -> None:
        """Something is written that is no change of the history, perhaps a lease of that many seconds."""
        self.has_cells = True
        self.held_until = max(self.held_until, self.now + seconds if seconds else 0)
        if not self.exists and self.cells_end is None and isinstance(ttl, int):
            self.cells_end = self.now + ttl  # nothing is there but this, and must end
        self._end_cells()

    def _end_cells(self) -> None:
        if self.exists:
            self.cells_end = None if self.ends is None else max(self.ends, self.held_until)
        elif self.cells_end is not None:
            self.cells_end = max(self.cells_end, self.held_until)

    def clear(self) -> None:
        self.items, self.exists = [], False
        self.counts = {
            writer: (texts, "cleared" if state == "present" else state)
            for writer, (texts, state) in self.counts.items()
        }


async def play(place: Place, seed: int) -> None:
    """Writers, leases, clears and expiries of any kind, in any order; after each step the history is as expected."""
    dice, expected, numbers = random.Random(seed), Expected(), itertools.count()
    lease: Any = None
    lease_ttl: Expiry = None
    for _ in range(30):
        ttl: Expiry = dice.choice([100, 1000, 1000, None, "keep"])
        session = place.open(ttl)
        match dice.choice(["append"] * 5 + ["add", "pop", "lease", "release", "clear", "SDK clears"] + ["time"] * 4):
            case "append":
                writer = dice.choice("ab")
                start = dice.choice([0, dice.randrange(6), await session.accepted(writer)])
                fresh = [f"{next(numbers)}" for _ in range(dice.randint(1, 3))]
                batch = expected.batch(writer, start, fresh)
                items = [message(text) for text in (fresh if batch is None else batch)]
                if batch is None:
                    with pytest.raises(AppendGapError):
                        await session.append(items, writer=writer, start=start)
                else:
                    await session.append(items, writer=writer, start=start)
                    expected.append(writer, start, batch, ttl)
            case "add":
                text = f"{next(numbers)}"
                await session.add_items([message(text)])
                expected.change([*expected.items, text], ttl)
            case "pop":
                await session.pop_item()
                if expected.items:
                    expected.change(expected.items[:-1], ttl)
            case "lease" if lease is None:
                seconds = dice.choice([50, 500, 5000])
                lease, lease_ttl = await session.lease(ttl_s=seconds, wait_s=0, renewed=False), ttl
                expected.put_cells(ttl, seconds)
            case "release" if lease is not None:
                if expected.has_cells:
                    expected.put_cells(lease_ttl)
                await lease.release()
                lease = None
            case "clear":
                await session.clear_session()
                expected.clear()
                expected.put_cells(ttl)
            case "SDK clears" if place.layout == "sdk":  # it cannot read the other
                await place.delete_as_the_sdk_does()
                expected.clear()
            case "time":
                seconds = dice.choice([30, 300, 3000])
                await place.pass_time(seconds)
                expected.pass_time(seconds)
        assert await session.get_items() == [message(text) for text in expected.items], f"seed {seed}"
    if lease is not None:
        await lease.release()


@pytest.mark.parametrize("place", ["sdk", "tagged", "fakeredis"], indirect=True)
async def test_no_order_of_settings_leases_clears_and_expiries_loses_or_doubles_an_item(place: Place) -> None:
    for seed in range((6 if place.client is not None else 25) * ROUNDS):  # fakeredis takes its time
        place.prefix = uuid.uuid4().hex
        await play(place, seed)
