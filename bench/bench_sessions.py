"""SQLite sessions beside raw sqlite3 and beside openai-agents: ratios from one run on one machine.

Every contestant has its own file in one folder and makes the same durable commits (WAL, synchronous=FULL). Contestants
take turns within each round, another one first in each, so that a busy machine slows all of them, and the table shows
medians over rounds. Logs are warmed up first: a log that still grows makes every commit slower, for whoever happens to
grow it.

`raw` is the least that could be done: the standard library's sqlite3 in the calling thread, which blocks the event
loop for the length of every sync. Run it with `./dev bench bench_sessions`; `--dir` chooses the disk. `--beside NAME`
measures an earlier release in the same rounds, that can be imported under that name (put its folder on PYTHONPATH).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import json
import os
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from agents.memory.sqlite_session import SQLiteSession as PeerSession

from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

Item = dict[str, Any]
T = TypeVar("T")


def turn(number: int) -> list[Item]:
    """A turn of four items, as a run with one tool call stores it."""
    call = f"call_{number}"
    return [
        {"role": "user", "content": f"What is the weather in town number {number}, and should I take an umbrella?"},
        {"type": "function_call", "call_id": call, "name": "weather", "arguments": f'{{"town": "{number}"}}'},
        {"type": "function_call_output", "call_id": call, "output": "light rain, 14 degrees, wind from the west"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Light rain: take one." * 3}]},
    ]


class Raw:
    """The same tables with nothing around them."""

    def __init__(self, path: Path, session_id: str) -> None:
        self.session_id = session_id
        self.db = sqlite3.connect(path, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute("CREATE TABLE IF NOT EXISTS s (session_id TEXT PRIMARY KEY, updated_at TIMESTAMP)")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS m (id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, "
            "message_data TEXT NOT NULL, created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)"
        )
        self.db.execute("CREATE INDEX IF NOT EXISTS i ON m (session_id, id)")

    async def add_items(self, items: list[Item]) -> None:
        db = self.db
        db.execute("BEGIN IMMEDIATE")
        db.executemany(
            "INSERT INTO m (session_id, message_data) VALUES (?, ?)", [(self.session_id, json.dumps(i)) for i in items]
        )
        db.execute(
            "INSERT INTO s VALUES (?, CURRENT_TIMESTAMP) ON CONFLICT DO UPDATE SET updated_at = CURRENT_TIMESTAMP",
            (self.session_id,),
        )
        db.execute("COMMIT")

    async def get_items(self, limit: int | None = None) -> list[Item]:
        decode = msgspec.json.Decoder().decode
        rows = self.db.execute(
            "SELECT message_data FROM m WHERE session_id = ? ORDER BY id DESC LIMIT ?",
            (self.session_id, -1 if limit is None else limit),
        ).fetchall()
        return [decode(row[0]) for row in reversed(rows)]

    def close(self) -> None:
        self.db.close()


class Written:
    """Our session, appending as a run does: exactly once, by writer and ordinal."""

    def __init__(self, session: SQLiteSession, writer: str) -> None:
        self.session, self.writer, self.count = session, writer, 0

    async def add_items(self, items: list[Item]) -> None:
        await self.session.append(items, writer=self.writer, start=self.count)
        self.count += len(items)


Make = Callable[[Path, str], Any]
CONTESTANTS: dict[str, Make] = {
    "raw": Raw,
    "openai-agents": lambda path, name: PeerSession(name, path),
    "standfast": lambda path, name: SQLiteSession(name, path),
}
OURS: dict[str, Any] = {"standfast": SQLiteSession}
"""Those of the contestants that have every ability: this release, and an earlier one if it was asked for."""


def beside(name: str) -> None:
    """Let an earlier release take part."""
    made = OURS[name] = importlib.import_module(name).SQLiteSession
    CONTESTANTS[name] = lambda path, session_id: made(session_id, path)


def in_turn(contestants: dict[str, T], number: int) -> list[tuple[str, T]]:
    """The contestants, beginning with another one in each round: who comes second finds warm what both use."""
    found = list(contestants.items())
    place = number % len(found)
    return found[place:] + found[:place]


async def timed(work: Callable[[], Awaitable[Any]]) -> float:
    """Milliseconds of one call."""
    begun = time.perf_counter()
    await work()
    return (time.perf_counter() - begun) * 1000


async def fill(session: Any, item_count: int) -> None:
    """Bring a history to a length, in large batches."""
    batch = [item for number in range(250) for item in turn(number)]
    for done in range(0, item_count, len(batch)):
        await session.add_items(batch[: item_count - done])


async def append_cost(folder: Path, rounds: int, history: int) -> dict[str, float]:
    """Median milliseconds of appending one turn to a history of that length."""
    sessions: dict[str, Any] = {
        name: make(folder / f"append-{history}-{name}.db", "s") for name, make in CONTESTANTS.items()
    }
    for session in sessions.values():
        await fill(session, history)
    contestants = {**sessions, **{f"{name} append()": Written(sessions[name], "bench") for name in OURS}}
    spent: dict[str, list[float]] = {name: [] for name in contestants}
    for number in range(300):  # long enough for every log to reach its working size
        for session in contestants.values():
            await session.add_items(turn(number))
    for number in range(rounds):
        for name, session in in_turn(contestants, number):
            items = turn(number)
            spent[name].append(await timed(lambda s=session, i=items: s.add_items(i)))  # type: ignore[misc]
    for session in sessions.values():
        session.close()
    return {name: statistics.median(times) for name, times in spent.items()}


async def many_sessions(folder: Path, rounds: int, count: int, turns: int) -> dict[str, float]:
    """Median turns per second with that many sessions appending at once."""
    made: dict[str, list[Any]] = {}
    for name, make in CONTESTANTS.items():
        made[name] = [make(folder / f"many-{name}.db", f"s{number}") for number in range(count)]
    for name in OURS:
        made[f"{name} append()"] = [Written(session, "bench") for session in made[name]]
    rates: dict[str, list[float]] = {name: [] for name in made}

    async def drive(session: Any) -> None:
        for number in range(turns):
            await session.add_items(turn(number))

    for round_number in range(rounds + 1):
        for name, sessions in in_turn(made, round_number):
            spent = await timed(lambda all_of_them=sessions: asyncio.gather(*map(drive, all_of_them)))  # type: ignore[misc]
            if round_number:  # the first round warms the logs
                rates[name].append(count * turns / spent * 1000)
    for name in CONTESTANTS:
        for session in made[name]:
            session.close()
    return {name: statistics.median(found) for name, found in rates.items()}


async def read_cost(folder: Path, rounds: int, history: int, limit: int | None) -> dict[str, float]:
    """Median milliseconds of reading a history."""
    sessions = {name: make(folder / f"read-{history}-{name}.db", "s") for name, make in CONTESTANTS.items()}
    spent: dict[str, list[float]] = {name: [] for name in sessions}
    for session in sessions.values():
        if not await session.get_items(limit=1):
            await fill(session, history)
    for number in range(rounds):
        for name, session in in_turn(sessions, number):
            if limit is None:
                gc.collect()  # a collection in the middle of ten thousand new dicts is nobody's doing
            spent[name].append(await timed(lambda s=session: s.get_items(limit=limit)))  # type: ignore[misc]
    for session in sessions.values():
        session.close()
    return {name: statistics.median(times) for name, times in spent.items()}


async def pop_cost(folder: Path, rounds: int) -> dict[str, float]:
    """Median milliseconds of popping one item."""
    sessions: dict[str, Any] = {
        name: make(folder / f"pop-{name}.db", "s") for name, make in CONTESTANTS.items() if name != "raw"
    }
    spent: dict[str, list[float]] = {name: [] for name in sessions}
    for number in range(rounds):
        for name, session in in_turn(sessions, number):
            await session.add_items(turn(number))
            spent[name].append(await timed(session.pop_item))
    for session in sessions.values():
        session.close()
    return {name: statistics.median(times) for name, times in spent.items()}


async def bulk_cost(folder: Path, item_count: int) -> dict[str, dict[str, float]]:
    """Median milliseconds, over five rounds, of what moves or reads a whole history."""
    batch = [item for number in range(item_count // 4) for item in turn(number)]
    spent: dict[str, dict[str, list[float]]] = {}

    async def measured(case: str, name: str, work: Awaitable[Any]) -> Any:
        gc.collect()
        await asyncio.sleep(0.1)  # what the one before left to be checkpointed is not this one's doing
        begun = time.perf_counter()
        done = await work
        spent.setdefault(case, {}).setdefault(name, []).append((time.perf_counter() - begun) * 1000)
        return done

    for number in range(5):
        for name, make in in_turn(OURS, number):
            session = make(f"s{number}", folder / f"bulk-{name}.db")
            await measured("append", name, session.append(batch, writer="bench", start=0))
            fork = await measured("fork", name, session.fork(f"fork {number}"))
            await measured("written", name, session.written("bench"))
            await measured("replace", name, session.replace(batch[:20], upto=await session.head()))
            await measured("restore", name, session.restore((await session.generations())[0].id))
            await measured("clear", name, session.clear_session())
            fork.close()
            session.close()
    return {case: {name: statistics.median(times) for name, times in row.items()} for case, row in spent.items()}


async def listing_cost(folder: Path, session_count: int) -> float:
    """Median milliseconds of listing twenty of so many sessions."""
    path = folder / f"listing-{session_count}.db"
    session = SQLiteSession("last", path)
    await session.add_items(turn(0))
    with sqlite3.connect(path) as db:
        names = [(f"s{number}",) for number in range(session_count)]
        db.executemany("INSERT INTO agent_sessions (session_id) VALUES (?)", names)
        db.executemany("INSERT INTO agent_messages (session_id, message_data) VALUES (?, '{}')", names)
    db.close()
    await session.add_items(turn(1))
    spent = [await timed(lambda: session.list_sessions(limit=20)) for _ in range(50)]
    session.close()
    return statistics.median(spent)


def many_files(folder: Path, count: int) -> dict[str, int]:
    """What this process holds with so many open files, each used once."""
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    sessions = [SQLiteSession("s", folder / f"file-{number}.db") for number in range(count)]

    async def use() -> None:
        for session in sessions:
            await session.add_items(turn(0))

    asyncio.run(use())
    time.sleep(1)  # for those that have something else to do to come to rest
    found = len(os.listdir("/proc/self/fd")) - before[0], threading.active_count() - before[1]
    for session in sessions:
        session.close()
    return {"descriptors more": found[0], "threads more": found[1]}


async def objects(folder: Path, count: int) -> dict[str, int]:
    """What this process holds with that many session objects, all of them used once."""
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    sessions = [SQLiteSession(f"s{number}", folder / "objects.db") for number in range(count)]
    for start in range(0, count, 500):
        await asyncio.gather(*(session.add_items([{"n": 1}]) for session in sessions[start : start + 500]))
    found = {
        "descriptors more": len(os.listdir("/proc/self/fd")) - before[0],
        "threads more": threading.active_count() - before[1],
    }
    for session in sessions:
        session.close()
    return found


def show(title: str, unit: str, found: dict[str, float]) -> None:
    """One table, as Markdown: every contestant, and its ratio to the two it is measured by."""
    print(f"\n| {title} | {unit} | x raw | x openai-agents |\n|---|---:|---:|---:|")
    for name, value in found.items():
        raw = f"{value / found['raw']:.2f}" if "raw" in found else ""
        print(f"| {name} | {value:.2f} | {raw} | {value / found['openai-agents']:.2f} |")


def sync_cost(folder: Path) -> float:
    """Median milliseconds of making 4 KiB durable on this disk."""
    spent = []
    with open(folder / "sync", "wb", buffering=0) as file:
        for _ in range(100):
            file.seek(0)
            file.write(b"x" * 4096)
            begun = time.perf_counter()
            os.fsync(file.fileno())
            spent.append((time.perf_counter() - begun) * 1000)
    return statistics.median(spent)


async def main(folder: Path, rounds: int) -> None:
    print(f"SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores, fsync {sync_cost(folder):.2f} ms, {rounds} rounds")
    for history in (10, 10_000, 100_000):
        show(f"append a turn of 4 items to {history:,} items", "ms", await append_cost(folder, rounds, history))
    show("64 sessions appending at once", "turns/s", await many_sessions(folder, max(5, rounds // 30), 64, 20))
    show("pop an item", "ms", await pop_cost(folder, rounds))
    show("`get_items()` of 10,000", "ms", await read_cost(folder, max(5, rounds // 10), 10_000, None))
    for history in (10_000, 100_000):
        show(f"`get_items(limit=50)` of {history:,}", "ms", await read_cost(folder, rounds, history, 50))
    print(f"\n| 10,000 items, ms | {' | '.join(OURS)} |\n|---|{'---:|' * len(OURS)}")
    for case, row in (await bulk_cost(folder, 10_000)).items():
        print(f"| {case} | {' | '.join(f'{row[name]:.1f}' for name in OURS)} |")
    print()
    for count in (1_000, 100_000):
        print(f"20 of {count:,} sessions, ms: {await listing_cost(folder, count):.2f}")
    print("10,000 session objects on one file:", await objects(folder, 10_000))
    print("200 open files:", await asyncio.to_thread(many_files, folder, 200))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--dir", type=Path, default=None, help="a folder on the disk to measure")
    parser.add_argument("--beside", default=None, help="the import name of an earlier release to measure too")
    given = parser.parse_args()
    if given.beside:
        beside(given.beside)
    with tempfile.TemporaryDirectory(dir=given.dir) as place:
        asyncio.run(main(Path(place), given.rounds))
