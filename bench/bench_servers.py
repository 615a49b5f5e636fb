"""Sessions on servers, side by side with the OpenAI Agents SDK's and with the raw client, on servers started here.

Operations are interleaved one by one in one process, so that a busy machine slows all of them alike; what is printed is
the median of each and how many times faster ours is. `./dev bench bench_servers 300` makes 300 operations of each.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg
import redis.asyncio
from agents.extensions.memory import RedisSession as AgentsRedis, SQLAlchemySession as AgentsSQLAlchemy

from standfast import PostgresSession, RedisSession
from tests.helpers import servers

Operation = Callable[[], Awaitable[Any]]
ITEMS = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "word " * 60} for n in range(4)]


async def interleaved(count: int, operations: dict[str, Operation]) -> dict[str, float]:
    """The median seconds of each operation."""
    took: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(min(20, count)):
        for operation in operations.values():
            await operation()
    for _ in range(count):
        for name, operation in operations.items():
            started = time.perf_counter()
            await operation()
            took[name].append(time.perf_counter() - started)
    return {name: statistics.median(times) for name, times in took.items()}


def report(title: str, medians: dict[str, float], against: str, ours: str) -> None:
    line = ", ".join(f"{name} {seconds * 1000:.2f} ms" for name, seconds in medians.items())
    print(f"{title:<34} {medians[against] / medians[ours]:5.2f} x   ({line})", flush=True)


async def compared(title: str, count: int, ours: Any, theirs: Any, raw: Operation | None = None) -> None:
    """Append, many writers, many sessions, read: ours against theirs. `ours` and `theirs` make a session of an id."""
    one, other = ours("one"), theirs("one")
    operations: dict[str, Operation] = {"ours": lambda: one.add_items(ITEMS), "SDK": lambda: other.add_items(ITEMS)}
    if raw is not None:
        operations["raw"] = raw
    report(f"{title}: append of 4", await interleaved(count, operations), "SDK", "ours")
    number = iter(range(10**9))
    writer = ours("by writer")
    append: dict[str, Operation] = {
        "ours": lambda: writer.append(ITEMS, writer="run", start=4 * next(number)),
        "SDK": lambda: other.add_items(ITEMS),
    }
    report(f"{title}: append(writer=) of 4", await interleaved(count, append), "SDK", "ours")

    async def at_once(sessions: list[Any]) -> None:
        await asyncio.gather(*(session.add_items(ITEMS) for session in sessions))

    for label, mine, peers in (
        ("8 writers, one session", [ours("eight") for _ in range(8)], [theirs("eight") for _ in range(8)]),
        ("64 sessions", [ours(f"s{n}") for n in range(64)], [theirs(f"s{n}") for n in range(64)]),
    ):
        medians = await interleaved(
            max(5, count // 20), {"ours": lambda m=mine: at_once(m), "SDK": lambda p=peers: at_once(p)}
        )
        report(f"{title}: {label}", medians, "SDK", "ours")
    long, long_peer = ours("long"), theirs("long")
    for start in range(0, 10_000, 1000):
        batch = [ITEMS[n % 4] for n in range(start, start + 1000)]
        await long.add_items(batch)
        await long_peer.add_items(batch)
    reading: dict[str, Operation] = {"ours": long.get_items, "SDK": long_peer.get_items}
    report(f"{title}: get_items of 10,000", await interleaved(7, reading), "SDK", "ours")
    late: dict[str, Operation] = {"ours": lambda: long.add_items(ITEMS), "at the start": lambda: one.add_items(ITEMS)}
    report(f"{title}: append at 10,000", await interleaved(count // 2, late), "at the start", "ours")
    popping: dict[str, Operation] = {"ours": long.pop_item, "SDK": long_peer.pop_item}
    report(f"{title}: pop_item", await interleaved(count // 4, popping), "SDK", "ours")


async def redis_alone(count: int) -> None:
    url, prefix = servers.redis_url(), uuid.uuid4().hex
    client = redis.asyncio.Redis.from_url(url)
    script = client.register_script("redis.call('RPUSH', KEYS[1], unpack(ARGV)) return 1")
    data = [b'{"role":"user","content":"' + b"word " * 60 + b'"}'] * 4

    async def raw() -> None:
        await script(keys=[f"{prefix}:raw"], args=data)

    await compared(
        "Redis",
        count,
        lambda id_: RedisSession.from_url(id_, url=url, key_prefix=f"{prefix}:ours"),
        lambda id_: AgentsRedis(id_, redis_client=client, key_prefix=f"{prefix}:sdk"),
        raw,
    )
    await client.aclose()


async def postgres(count: int, title: str, url: str) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=16)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("CREATE TABLE IF NOT EXISTS raw (id SERIAL PRIMARY KEY, data TEXT)")

    async def raw() -> None:
        await connection.execute(
            "INSERT INTO raw (data) SELECT unnest(%s::text[])", (['{"role":"user","content":"' + "word " * 60] * 4,)
        )

    await compared(
        title,
        count,
        lambda id_: PostgresSession(id_, url=url, schema="ours"),
        lambda id_: AgentsSQLAlchemy(id_, engine=engine, create_tables=True),
        raw,
    )
    await connection.close()
    await engine.dispose()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    try:
        if only in ("", "redis"):
            asyncio.run(redis_alone(count))
        if only in ("", "postgres"):
            asyncio.run(postgres(count, "PostgreSQL, disk", servers.postgres_url()))
        if only in ("", "ram"):
            unsafe = servers.PostgresServer(sync=False)
            try:
                asyncio.run(postgres(count, "PostgreSQL, no fsync", unsafe.url))
            finally:
                unsafe.stop()
    finally:
        servers.stop_all()


if __name__ == "__main__":
    main()
