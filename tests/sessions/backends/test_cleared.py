"""What a cleared session leaves in its store: numbers, and nothing that anybody said (A12)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from standfast import Agent, RunConfig, Runner
from standfast._src.sessions.rules.history import COUNTS_AT_ONCE
from standfast.conformance import message
from standfast.testing import ScriptedModel, assistant_message
from tests.helpers import stores


def raw(where: str) -> bytes:
    """All bytes that a store keeps, as it keeps them."""
    kind, _, rest = where.partition(" ")
    if kind == "sqlite":
        return b"".join(file.read_bytes() for file in Path(rest).parent.iterdir())
    name, _, url = rest.partition(" ")
    if kind == "redis":
        read: dict[bytes, Callable[[Any, bytes], Any]] = {
            b"hash": lambda client, key: client.hgetall(key),
            b"list": lambda client, key: client.lrange(key, 0, -1),
            b"zset": lambda client, key: client.zrange(key, 0, -1),
            b"string": lambda client, key: client.get(key),
        }
        with redis.Redis.from_url(url) as client:
            return repr([(key, read[client.type(key)](client, key)) for key in client.scan_iter(f"{name}*")]).encode()
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE %s", (f"{name}%",)).fetchall()
        assert tables
        rows = [connection.execute(f'SELECT t::text FROM "{table}" t').fetchall() for (table,) in tables]
        # Cells are bytes, which PostgreSQL shows as hexadecimal digits.
        return repr(rows).encode() + b"".join(bytes.fromhex(word) for word in _hexadecimal(repr(rows)))


def _hexadecimal(text: str) -> list[str]:
    found = [part.partition('"')[0].partition(",")[0].rstrip(")'") for part in text.split("\\\\x")[1:]]
    return [word for word in found if len(word) % 2 == 0 and all(digit in "0123456789abcdef" for digit in word)]


@pytest.mark.parametrize("kind", stores.SHARED)
async def test_a_cleared_session_leaves_no_word_of_what_was_said(kind: str, tmp_path: Path) -> None:
    where = stores.place(kind, tmp_path)
    session = stores.opened(where)
    await session.add_items([message("quince one"), message("quince two")])
    await session.add_items([message("quince eight"), message("quince nine")])
    await asyncio.gather(*(session.pop_item() for _ in range(3)))  # each in a lane of its own
    await session.append([message("quince three")], writer="w", start=0, digests=[b"of quince three!"])
    await session.replace([message("quince four")], upto=await session.head())
    agent = Agent("quince agent", model=ScriptedModel([[assistant_message("quince five")]]))
    await Runner.run(agent, "quince six", session=session, run_config=RunConfig(workflow_name="quince seven"))
    assert b"quince" in raw(where)  # it can be seen there
    assert await session.pop_item() is not None
    await session.clear_session()
    await session.close()
    if kind == "sqlite":
        with_vacuum(where)
    left = raw(where)
    assert b"quince" not in left, left[max(0, left.index(b"quince") - 200) : left.index(b"quince") + 60]


@pytest.mark.parametrize("kind", [*stores.SERVERS, pytest.param("client", marks=pytest.mark.redis)])
async def test_who_remembers_what_another_process_has_cleared_does_not_store_its_digests_again(
    kind: str, tmp_path: Path
) -> None:
    """A12, B1: a digest tells whoever guesses what was said. Counts go on, and a late repeat brings nothing back."""
    where = stores.place(kind, tmp_path)
    async with stores.two_ways(where) as (elsewhere, here):
        await here.append([message("one")], writer="w", start=0, digests=[b"of quince number"])
        await elsewhere.clear_session()
        await here.append([message("two")], writer="w", start=1)
        await here.append([message("one")], writer="w", start=0, digests=[b"of quince number"])
        assert [await here.accepted("w"), await here.get_items()] == [2, [message("two")]]
    assert b"quince" not in raw(where.replace("client", "redis", 1))


@pytest.mark.parametrize("kind", stores.SHARED)
async def test_of_any_number_of_writers_a_clear_leaves_the_counts_alone(kind: str, tmp_path: Path) -> None:
    """A12: they are more than one step takes."""
    where, writers = stores.place(kind, tmp_path), range(COUNTS_AT_ONCE * 2 + 1)
    session = stores.opened(where)
    digests = [b"of quince number"]
    await asyncio.gather(*(session.append([message(n)], writer=f"w{n}", start=0, digests=digests) for n in writers))
    await session.clear_session()
    assert {await session.accepted(f"w{number}") for number in writers} == {1}
    await session.close()
    if kind == "sqlite":
        with_vacuum(where)
    assert b"quince" not in raw(where)


def with_vacuum(where: str) -> None:
    """A deleted row's bytes stay in its page until that is used again: that is SQLite's own, and not ours to mend."""
    with closing(sqlite3.connect(where.partition(" ")[2])) as db:
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
