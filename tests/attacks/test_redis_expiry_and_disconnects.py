"""What a reader of the eighth session's changes to stores found: each of these failed when it was written down."""

from __future__ import annotations

import asyncio
import uuid
from typing import Any
from urllib.parse import urlsplit

import pytest
import redis

from standfast import InMemorySession, InMemoryStore, OutcomeUnknownError, RedisSession
from standfast.conformance import message
from tests.helpers import servers


async def test_a_count_that_a_clear_has_left_ends_with_the_expiry_though_a_lease_is_held() -> None:
    """Whoever began anew was taken for a late repeat, and nothing was stored (B1, A20)."""
    session = InMemorySession("c", store=InMemoryStore(ttl_s=0.05))
    async with await session.lease(ttl_s=600, wait_s=0, renewed=False):
        await session.append([message("one")], writer="w", start=0)
        await session.clear_session()
        await asyncio.sleep(0.2)
        head = await session.append([message("anew")], writer="w", start=0)
        assert head.value, "it was acknowledged and is not there"


class Doorway:
    """Passes bytes on to a Redis server. It can keep answers for a while, and go away when a listing is asked for."""

    def __init__(self, url: str) -> None:
        self._url, self.passes, self.ends_at_listing, self.is_gone = urlsplit(url), asyncio.Event(), False, False
        self._doors: list[asyncio.StreamWriter] = []
        self.passes.set()

    async def open(self) -> str:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", 0)
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        behind, there = await asyncio.open_connection(self._url.hostname, self._url.port)
        self._doors += (writer, there)
        answers = asyncio.create_task(self._answer(behind, writer))
        while data := await reader.read(2**16):
            if self.ends_at_listing and b"EVAL" not in data:
                self.end()
                break
            there.write(data)
        answers.cancel()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            await self.passes.wait()
            writer.write(data)

    def end(self) -> None:
        self.is_gone = True
        self._server.close()
        for door in self._doors:
            door.transport.abort()


@pytest.mark.redis
async def test_a_pop_that_was_answered_is_not_denied_because_the_server_went_away_behind_it() -> None:
    """A clear lists the runs of its session: what went out with it was told that nobody was there (A6, A8)."""
    doorway, prefix = Doorway(servers.redis_url()), uuid.uuid4().hex
    url = await doorway.open()
    sessions = [RedisSession.from_url(name, url=url, key_prefix=prefix, timeout_s=5) for name in "abc"]
    for session in sessions:
        await session.add_items([message("one"), message("two")])
    doorway.passes.clear()
    busy = asyncio.create_task(sessions[0].add_items([message("three")]))  # the others come while it waits
    await asyncio.sleep(0.1)
    first, clear, last = sessions
    asked = [asyncio.create_task(what) for what in (first.pop_item(), clear.clear_session(), last.pop_item())]
    await asyncio.sleep(0.1)
    doorway.ends_at_listing = True
    doorway.passes.set()
    await busy
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    assert doorway.is_gone
    direct = RedisSession.from_url("a", url=servers.redis_url(), key_prefix=prefix)
    if len(await direct.get_items()) == 2:
        assert outcomes[0] == message("three") or isinstance(outcomes[0], OutcomeUnknownError), outcomes
    for session in (*sessions, direct):
        await session.close()


@pytest.mark.redis
async def test_who_may_only_read_lists_and_counts_though_a_session_has_expired() -> None:
    """What has expired is taken out of the index by who meets it there: that was refused, and with it the answer."""
    url, prefix, user = servers.redis_url(), uuid.uuid4().hex, uuid.uuid4().hex
    place = urlsplit(url)
    with redis.Redis.from_url(url) as direct:
        direct.execute_command("ACL", "SETUSER", user, "on", ">secret", "~*", "+@all", "-@write")  # type: ignore[no-untyped-call]
        for name in ("stays", "expires"):
            session = RedisSession.from_url(name, url=url, key_prefix=prefix, ttl=1000)
            await session.add_items([message(name)])
            await session.close()
        gone: Any = direct.keys(f"{prefix}:expires*")
        assert direct.delete(*gone)
        looker = f"redis://{user}:secret@{place.hostname}:{place.port}"
        reader = RedisSession.from_url("stays", url=looker, key_prefix=prefix)
        for _ in range(2):
            assert [one.session_id for one in (await reader.list_sessions(limit=10)).sessions] == ["stays"]
            assert await reader.count_sessions() == 1
        await reader.close()
        direct.execute_command("ACL", "DELUSER", user)  # type: ignore[no-untyped-call]
