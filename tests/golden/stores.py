"""Whole stores as a release wrote them, on SQLite, Redis and PostgreSQL, and what every read of them gives.

    python -m tests.golden.stores     # writes those of the current version; a written one is never written again

A database is the file itself. Of Redis the keys are kept with their values, of PostgreSQL the SQL that made the tables,
their rows, and where the sequences stand. `restore_*` puts one into a server under a name of the test's own.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import redis

from standfast import Agent, Position, PostgresSession, RedisSession, RunConfig, Runner, SQLiteSession, function_tool
from standfast._src.runs.engine.run_store import LogTail
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers import servers

FOLDER = Path(__file__).parent / "stores" / "v2"
NAME = "golden"
KINDS = ("sqlite", "redis", "postgres")
Opener = Callable[[str], Any]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def clerk(steps: list[Any], paid: list[int]) -> Agent[Any]:
    """The agent of the paused run."""

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    return Agent(name="clerk", model=ScriptedModel(steps), tools=[pay])


def sqlite_opener(path: Path) -> Opener:
    return lambda session_id: SQLiteSession(session_id, path)


def redis_opener(prefix: str) -> Opener:
    return lambda session_id: RedisSession.from_url(session_id, url=servers.redis_url(), key_prefix=prefix)


def postgres_opener(schema: str) -> Opener:
    return lambda session_id: PostgresSession(session_id, url=servers.postgres_url(), schema=schema)


# --- what is in them --------------------------------------------------------------------------------------------------


async def fill(opened: Opener) -> None:
    """Write what a layout has room for: writers, generations, counts behind a clear, a fork, leases, runs."""
    long = opened("long")
    for sent in range(0, 100, 7):  # more than one batch of digests
        batch = [message(f"long {number}") for number in range(sent, min(sent + 7, 100))]
        await long.append(batch, writer="run/long", start=sent)
    await long.append([message("other 0")], writer="other", start=0)
    await long.add_items([message("of no writer")])
    compacted = opened("compacted")
    await compacted.append([message(f"c{number}") for number in range(6)], writer="run", start=0)
    await compacted.replace([message("summary 1")], upto=await compacted.head())
    await compacted.append([message("c6")], writer="run", start=6)
    await compacted.replace([message("summary 2")], upto=await compacted.head())
    await compacted.append([message("c7")], writer="run", start=7)
    await compacted.restore((await compacted.generations())[0].id)
    await compacted.add_items([message("after")])
    await compacted.fork("forked", at=Position(3))
    cleared = opened("cleared")
    await cleared.append([message("a"), message("b")], writer="run", start=0)
    await cleared.clear_session()
    await cleared.add_items([message("new")])
    async with await opened("leased").lease(ttl_s=60, wait_s=0):
        await opened("leased").add_items([message("under a lease")])
    await Runner.run(
        clerk([final("hello")], []), "hello", session=opened("desk"), run_config=RunConfig(run_id="finished")
    )
    steps = [[function_call("pay", {"amount": 3}, call_id="c1")]]
    await Runner.run(clerk(steps, []), "pay", session=opened("desk"), run_config=RunConfig(run_id="paused"))
    store = opened("-").run_store()
    tails = {"items": LogTail(0, [b"a", b"b"])}
    await store.save_run("alone", expect=0, head=b"h1", tails=tails, status="running", agent="A", session_id=None)


async def read(opened: Opener) -> dict[str, Any]:
    """Everything that reads give, without times and places, which differ from store to store."""
    sessions: dict[str, Any] = {}
    for info in (await opened("-").list_sessions(limit=100)).sessions:
        session = opened(info.session_id)
        records = (await session.records(limit=1000)).records
        writers = sorted({record.writer for record in records if record.writer} | {"run", "run/long"})
        generations = await session.generations()
        sessions[info.session_id] = {
            "items": await session.get_items(),
            "generations": [await session.read_generation(one.id) for one in generations],
            "accepted": {writer: await session.accepted(writer) for writer in writers},
            "written": {writer: await session.written(writer) for writer in writers},
        }
    store = opened("-").run_store()
    runs: dict[str, Any] = {}
    for one in (await store.list_runs())[0]:
        run = await store.load_run(one.run_id)
        assert run is not None
        runs[one.run_id] = {
            "status": one.status, "session_id": one.session_id, "agent": one.agent, "head": run.head.decode(),
            "logs": {log: [record.decode() for record in records] for log, records in run.logs.items()},
        }  # fmt: skip
    return {"sessions": sessions, "runs": runs}


# --- dumped and restored ----------------------------------------------------------------------------------------------


def dump_redis(prefix: str) -> dict[str, Any]:
    """Return every key below a prefix: its type and its value."""
    found: dict[str, Any] = {}
    with redis.Redis.from_url(servers.redis_url(), encoding="latin-1", decode_responses=True) as client:
        for key in sorted(client.scan_iter(f"*{prefix}*", count=1000)):
            kind = client.type(key)
            value: Any = {
                "string": lambda key=key: client.get(key),
                "list": lambda key=key: client.lrange(key, 0, -1),
                "hash": lambda key=key: client.hgetall(key),
                "set": lambda key=key: sorted(client.smembers(key)),
                "zset": lambda key=key: client.zrange(key, 0, -1, withscores=True),
            }[kind]()
            found[key] = [kind, value]
    return found


def restore_redis(dumped: dict[str, Any], prefix: str) -> None:
    """Put the keys back, below another prefix."""
    with redis.Redis.from_url(servers.redis_url(), encoding="latin-1", decode_responses=True) as client:
        for key, (kind, value) in dumped.items():
            name = key.replace(NAME, prefix)
            if kind == "string":
                client.set(name, value)
            elif kind == "list":
                client.rpush(name, *value)
            elif kind == "hash":
                client.hset(name, mapping=value)
            elif kind == "set":
                client.sadd(name, *value)
            else:
                client.zadd(name, dict(value))


def dump_postgres(schema: str) -> dict[str, Any]:
    """Return the SQL of the tables, their rows in PostgreSQL's own text form, and the sequences."""
    with psycopg.connect(servers.postgres_url()) as db:
        names = "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = %s ORDER BY oid"
        tables: dict[str, str] = {}
        for (table,) in db.execute(names, (schema, "r")).fetchall():
            with db.cursor().copy(f'COPY "{schema}"."{table}" TO STDOUT') as copy:  # type: ignore[arg-type]
                tables[table] = b"".join(map(bytes, copy)).decode()
        sequences = {
            name: list(db.execute(f'SELECT last_value, is_called FROM "{schema}"."{name}"').fetchone() or ())  # type: ignore[arg-type]
            for (name,) in db.execute(names, (schema, "S")).fetchall()
        }
    return {"sql": PostgresSession.schema_sql(schema=schema), "tables": tables, "sequences": sequences}


def restore_postgres(dumped: dict[str, Any], schema: str) -> None:
    """Make the tables by the SQL of that time, in a schema of the test's own, and put the rows back."""
    with psycopg.connect(servers.postgres_url(), autocommit=True) as db:
        db.execute(f'CREATE SCHEMA "{schema}"')  # type: ignore[arg-type]
        db.execute(dumped["sql"].replace(f'"{NAME}"', f'"{schema}"'))
        db.execute("SET session_replication_role = replica")  # rows come in any order of tables
        for table, rows in dumped["tables"].items():
            db.execute(f'TRUNCATE "{schema}"."{table}" CASCADE')  # type: ignore[arg-type]
            with db.cursor().copy(f'COPY "{schema}"."{table}" FROM STDIN') as copy:  # type: ignore[arg-type]
                copy.write(rows)
        for name, (last, is_called) in dumped["sequences"].items():
            db.execute("SELECT setval(%s, %s, %s)", (f'"{schema}"."{name}"', last, is_called))


def main() -> None:
    """Write the stores of this version that are missing."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    file, expected = FOLDER / "store.sqlite02", FOLDER / "expected.json"
    if not file.exists():
        asyncio.run(fill(sqlite_opener(file)))
        with closing(sqlite3.connect(file)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            db.execute("PRAGMA journal_mode=DELETE")
        for beside in FOLDER.glob("store.sqlite02-*"):
            beside.unlink()
    if not (FOLDER / "redis.json").exists():
        asyncio.run(fill(redis_opener(NAME)))
        (FOLDER / "redis.json").write_text(json.dumps(dump_redis(NAME), indent=1) + "\n", encoding="utf-8")
    if not (FOLDER / "postgres.json").exists():
        asyncio.run(fill(postgres_opener(NAME)))
        (FOLDER / "postgres.json").write_text(json.dumps(dump_postgres(NAME), indent=1) + "\n", encoding="utf-8")
    if not expected.exists():
        found = {
            "sqlite": asyncio.run(read(sqlite_opener(file))),
            "redis": asyncio.run(read(redis_opener(NAME))),
            "postgres": asyncio.run(read(postgres_opener(NAME))),
        }
        expected.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        for beside in FOLDER.glob("store.sqlite02-*"):
            beside.unlink()


if __name__ == "__main__":
    main()
