"""Sessions on servers, side by side with the OpenAI Agents SDK's and with the raw client, on servers started here.

Operations are interleaved one by one in one process, so that a busy machine slows all of them alike; what is printed is
the median of each, how many times faster ours is, and what was aimed at. `./dev bench bench_servers 300` makes 300
operations of each; a second argument (redis, postgres, ram) chooses one part.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import psycopg
import redis.asyncio
from agents.extensions.memory import (
    EncryptedSession as AgentsEncrypted,
    RedisSession as AgentsRedis,
    SQLAlchemySession as AgentsSQLAlchemy,
)

from standfast import EncryptedSession, PostgresSession, RedisSession
from standfast._src.sessions.backends.redis.connection import Link
from tests.helpers import servers

Operation = Callable[[], Awaitable[Any]]
ITEMS = [{"role": "user" if n % 2 == 0 else "assistant", "content": f"{n} " + "word " * 60} for n in range(4)]
KEY = "bench" * 8
OBJECTS = 10_000
PUSH = "redis.call('RPUSH', KEYS[1], unpack(ARGV)) return 1"


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


def head(title: str) -> None:
    """Begin a table."""
    print(f"\n{title}\n\n| case | ms | times | aimed at | reached |\n|---|---|---:|---|---|", flush=True)


def row(case: str, shown: str, times: str, goal: str, reached: bool | None) -> None:
    """Print a line of a table; `reached` is None where nothing was aimed at."""
    said = {True: "yes", False: "**no**", None: ""}[reached]
    print(f"| {case} | {shown} | {times} | {goal} | {said} |", flush=True)


def report(
    case: str, medians: dict[str, float], against: str, *, least: float | None = None, most: float | None = None
) -> None:
    """How many times faster ours is than `against`, which should be `least`; or how much slower, at `most`."""
    shown = ", ".join(f"{name} {seconds * 1000:.2f}" for name, seconds in medians.items())
    ratio = medians[against] / medians["ours"]
    if most is not None:
        row(f"{case}, as a multiple of {against}", shown, f"{1 / ratio:.2f}", f"at most {most}", 1 / ratio <= most)
    else:
        goal = "" if least is None else f"at least {least}"
        row(f"{case}, faster than {against}", shown, f"{ratio:.2f}", goal, None if least is None else ratio >= least)


async def compared(count: int, ours: Any, theirs: Any, raw: Operation, goals: Mapping[str, float]) -> None:
    """Append, many writers, many sessions, read: ours against theirs. `ours` and `theirs` make a session of an id."""
    one, other = ours("one"), theirs("one")
    operations: dict[str, Operation] = {"ours": lambda: one.add_items(ITEMS), "SDK": lambda: other.add_items(ITEMS)}
    medians = await interleaved(count, {**operations, "raw": raw})
    report("append of 4", medians, "SDK", least=goals["append"])
    report("append of 4", medians, "raw")
    number = iter(range(10**9))
    writer = ours("by writer")
    append: dict[str, Operation] = {
        "ours": lambda: writer.append(ITEMS, writer="run", start=4 * next(number)),
        "SDK": lambda: other.add_items(ITEMS),
    }
    report("append(writer=) of 4", await interleaved(count, append), "SDK")

    async def at_once(sessions: list[Any]) -> None:
        await asyncio.gather(*(session.add_items(ITEMS) for session in sessions))

    for label, mine, peers in (
        ("8 writers, one session", [ours("eight") for _ in range(8)], [theirs("eight") for _ in range(8)]),
        ("64 sessions", [ours(f"s{n}") for n in range(64)], [theirs(f"s{n}") for n in range(64)]),
    ):
        medians = await interleaved(
            max(5, count // 6), {"ours": lambda m=mine: at_once(m), "SDK": lambda p=peers: at_once(p)}
        )
        report(label, medians, "SDK", least=goals.get(label))
    long, long_peer = ours("long"), theirs("long")
    for start in range(0, 10_000, 1000):
        batch = [ITEMS[n % 4] for n in range(start, start + 1000)]
        await long.add_items(batch)
        await long_peer.add_items(batch)
    reading: dict[str, Operation] = {"ours": long.get_items, "SDK": long_peer.get_items}
    report("get_items of 10,000", await interleaved(7, reading), "SDK", least=1.7)
    late: dict[str, Operation] = {"ours": lambda: long.add_items(ITEMS), "a short one": lambda: one.add_items(ITEMS)}
    report("append to 10,000", await interleaved(count // 2, late), "a short one", most=1.25)
    for _ in range(3):
        await one.add_items(ITEMS * (count // 4 + 10))
    shrinking: dict[str, Operation] = {"ours": long.pop_item, "a short one": one.pop_item}
    report("pop_item of 10,000", await interleaved(count // 4, shrinking), "a short one", most=1.5)
    report("pop_item", await interleaved(count // 4, {"ours": long.pop_item, "SDK": long_peer.pop_item}), "SDK")


async def encrypted(ours: Any, theirs: Any) -> None:
    """Read 10,000 encrypted items: ours against theirs."""
    sealed = EncryptedSession("sealed", ours("sealed"), KEY)
    peer: Any = AgentsEncrypted("sealed", theirs("sealed"), KEY, ttl=10**6)
    for start in range(0, 10_000, 1000):
        batch = [ITEMS[n % 4] for n in range(start, start + 1000)]
        await sealed.add_items(batch)
        await peer.add_items(batch)
    reading: dict[str, Operation] = {"ours": sealed.get_items, "SDK": peer.get_items}
    report("encrypted: get_items of 10,000", await interleaved(5, reading), "SDK", least=2.5)


async def many_objects(ours: Any, connections: Callable[[], Awaitable[int]]) -> None:
    """How many threads and connections 10,000 session objects need that are used and kept."""
    sessions, found = [ours(f"object {n}") for n in range(OBJECTS)], []
    for some in (sessions[:10], sessions):
        for start in range(0, len(some), 500):
            await asyncio.gather(*(session.get_items(limit=1) for session in some[start : start + 500]))
        found.append((threading.active_count(), await connections()))
    few, many = found
    shown = f"{many[0]} threads, {many[1]} connections"
    row(f"{OBJECTS:,} session objects", "", shown, f"as 10 objects: {few[0]} and {few[1]}", many == few)


class Hop:
    """A thread that sends a command over its own connection and hands the answer back to the loop, and nothing else.

    What any session costs at least that can be used from every loop and thread.
    """

    def __init__(self, url: str) -> None:
        self._link, self._asked = Link(url, socket_timeout=5.0), SimpleQueue[Any]()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while (asked := self._asked.get()) is not None:
            loop, future, command = asked
            (answer,) = self._link.ask([command], False)
            loop.call_soon_threadsafe(future.set_result, answer)
        self._link.close()

    async def ask(self, command: tuple[Any, ...]) -> Any:
        """The answer."""
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        self._asked.put((loop, future, command))
        return await future

    def close(self) -> None:
        """End the thread."""
        self._asked.put(None)


async def through_a_thread(count: int, url: str, prefix: str, client: Any, raw: Operation, data: list[bytes]) -> None:
    """What the way through a thread costs by itself, with a script that does nothing but push."""
    hop = Hop(url)
    sha = await client.script_load(PUSH)
    ours = RedisSession.from_url("hop", url=url, key_prefix=f"{prefix}:ours")
    operations: dict[str, Operation] = {
        "ours": lambda: ours.add_items(ITEMS),
        "raw": raw,
        "a thread": lambda: hop.ask(("EVALSHA", sha, 1, f"{prefix}:hop", *data)),
    }
    medians = await interleaved(count, operations)
    report("append of 4", medians, "a thread")
    report("the raw script through a thread", {"ours": medians["a thread"], "raw": medians["raw"]}, "raw")
    await ours.close()
    hop.close()


async def redis_alone(count: int) -> None:
    url, prefix = servers.redis_url(), uuid.uuid4().hex
    client = redis.asyncio.Redis.from_url(url)
    script = client.register_script(PUSH)
    data = [b'{"role":"user","content":"' + b"word " * 60 + b'"}'] * 4

    async def raw() -> None:
        await script(keys=[f"{prefix}:raw"], args=data)

    async def connections() -> int:
        return len(await client.client_list())

    def ours(id_: str) -> RedisSession:
        return RedisSession.from_url(id_, url=url, key_prefix=f"{prefix}:ours")

    def theirs(id_: str) -> AgentsRedis:
        return AgentsRedis(id_, redis_client=client, key_prefix=f"{prefix}:sdk")

    head("Redis; raw is a script of one RPUSH through redis-py")
    goals = {"append": 2.0, "8 writers, one session": 9.0, "64 sessions": 3.5}
    await compared(count, ours, theirs, raw, goals)
    await through_a_thread(count, url, prefix, client, raw, data)
    await encrypted(ours, theirs)
    await many_objects(ours, connections)
    await client.aclose()


async def postgres(count: int, title: str, url: str, append: float) -> None:
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine(url.replace("postgresql://", "postgresql+asyncpg://"), pool_size=16)
    connection = await psycopg.AsyncConnection.connect(url, autocommit=True)
    await connection.execute("CREATE TABLE IF NOT EXISTS raw (id SERIAL PRIMARY KEY, data TEXT)")
    items = ['{"role":"user","content":"' + "word " * 60] * 4

    async def raw() -> None:
        await connection.execute("INSERT INTO raw (data) SELECT unnest(%s::text[])", (items,))

    async def connections() -> int:
        found = await connection.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'standfast'")
        told = await found.fetchone()
        return 0 if told is None else int(told[0])

    def ours(id_: str) -> PostgresSession:
        return PostgresSession(id_, url=url, schema="ours")

    def theirs(id_: str) -> AgentsSQLAlchemy:
        return AgentsSQLAlchemy(id_, engine=engine, create_tables=True)

    head(f"{title}; raw is one INSERT through psycopg's asyncio")
    await compared(count, ours, theirs, raw, {"append": append, "64 sessions": 3.0})
    await many_objects(ours, connections)
    await connection.close()
    await engine.dispose()


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    only = sys.argv[2] if len(sys.argv) > 2 else ""
    try:
        if only in ("", "redis"):
            asyncio.run(redis_alone(count))
        if only in ("", "postgres"):
            asyncio.run(postgres(count, "PostgreSQL, a commit waits for the disk", servers.postgres_url(), 2.5))
        if only in ("", "ram"):
            unsafe = servers.PostgresServer(sync=False)
            try:
                asyncio.run(postgres(count, "PostgreSQL, no commit waits for a disk", unsafe.url, 2.5))
            finally:
                unsafe.stop()
    finally:
        servers.stop_all()


if __name__ == "__main__":
    main()
