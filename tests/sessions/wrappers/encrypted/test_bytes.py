"""Proof by bytes: of what an encrypted session keeps, nothing stands in clear in any file, key or row of its store."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis

from standfast import (
    Agent,
    EncryptedSession,
    PostgresSession,
    RedisSession,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
)
from standfast._src.base.json_values import digest, encode
from standfast._src.runs.engine.run_store import LogTail
from standfast.conformance import message
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers import servers

SECRET = "Zaphod-4711"
ITEMS = [message(f"{SECRET} says number {n}") for n in range(3)]
# A digest of known length would let whoever has the store try out what was said.
TRACES = [SECRET.encode(), SECRET.lower().encode(), *(digest(encode(item)) for item in ITEMS)]

Made = tuple[Any, Callable[[], bytes]]


def in_a_file(folder: Path) -> Made:
    def everything() -> bytes:
        return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())

    return SQLiteSession("talk", folder / "talks.db"), everything


def in_redis(_: Path) -> Made:
    prefix, client = f"bytes:{uuid.uuid4().hex}", redis.Redis.from_url(servers.redis_url())

    def everything() -> bytes:
        found: list[bytes] = []
        for key in client.scan_iter(f"*{prefix}*"):
            kind, values = client.type(key), list[Any]()
            if kind == b"hash":
                values = [part for pair in client.hgetall(key).items() for part in pair]  # type: ignore[union-attr]
            elif kind == b"list":
                values = client.lrange(key, 0, -1)  # type: ignore[assignment]
            elif kind == b"string":
                values = [client.get(key)]
            elif kind == b"zset":
                values = client.zrange(key, 0, -1)  # type: ignore[assignment]
            assert values, f"{key!r} is of another kind: {kind!r}"
            found += [key, *values]
        assert len(found) > 20
        return b"\n".join(found)

    return RedisSession.from_url("talk", url=servers.redis_url(), key_prefix=prefix), everything


def in_postgres(_: Path) -> Made:
    schema = f"b{uuid.uuid4().hex}"

    def connected() -> psycopg.Connection[Any]:
        return psycopg.connect(servers.postgres_url(), autocommit=True, options=f"-c search_path={schema}")

    def everything() -> bytes:
        with connected() as db:
            tables = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
            assert len(tables) > 3
            rows = [value for (table,) in tables for row in db.execute(f'SELECT * FROM "{table}"') for value in row]
        servers.drop_schema(servers.postgres_url(), schema)
        return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for value in rows)

    with connected() as db:
        db.execute(f'CREATE SCHEMA "{schema}"')
    return PostgresSession("talk", url=servers.postgres_url(), schema=schema), everything


@pytest.fixture(
    params=[
        in_a_file,
        pytest.param(in_redis, marks=pytest.mark.redis),
        pytest.param(in_postgres, marks=pytest.mark.postgres),
    ]
)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Made]:
    session, everything = request.param(tmp_path)
    yield session, everything
    session.close()


@function_tool(needs_approval=True)
async def tell(secret: str) -> str:
    """Tell it."""
    return secret


async def everything_it_can_keep(session: Any) -> None:
    """Every kind of record: rows, generations, digests, notes of a pop, forks, saved runs with their logs."""
    await session.add_items(ITEMS)
    await session.append(ITEMS * 20, writer="run-1", start=0)  # more digests than one cell holds
    await session.append([*ITEMS * 20, *ITEMS], writer="run-1", start=0)
    await session.pop_item()
    await session.replace([message(f"a summary of {SECRET}")], upto=await session.head())
    await session.add_items(ITEMS)
    await session.restore((await session.generations())[0].id)
    await session.fork("talk-2")
    await session.run_store().save_run(
        "by hand", expect=0, head=SECRET.encode(), tails={"items": LogTail(0, [SECRET.encode()])}, status="paused",
        agent="Clerk", session_id="talk",
    )  # fmt: skip
    script = [[function_call("tell", {"secret": SECRET}, call_id="c1")], final(f"It is {SECRET}.")]
    agent = Agent(name="Clerk", tools=[tell], model=ScriptedModel(script))
    paused = await Runner.run(agent, f"What is {SECRET}?", session=session, run_config=RunConfig(unfinished="ignore"))
    assert paused.interruptions
    assert len((await session.page(limit=5)).items) == 5


async def test_nothing_that_was_said_stands_in_clear_anywhere(made: Made) -> None:
    session, everything = made
    await everything_it_can_keep(EncryptedSession("talk", session, "a key"))
    stored = everything()
    assert b'"__enc__":2' in stored
    assert [trace for trace in TRACES if trace in stored or trace.hex().encode() in stored] == []


async def test_without_encryption_the_same_search_finds_all_of_it(made: Made) -> None:
    """So that the test above cannot pass by looking in the wrong place."""
    session, everything = made
    await everything_it_can_keep(session)
    stored = everything()
    assert [trace in stored or trace.hex().encode() in stored for trace in TRACES] == [True, False, True, True, True]
