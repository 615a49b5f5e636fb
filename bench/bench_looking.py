"""Looking into a store of many sessions: ratios between a small file and a large one, from one run on one machine.

Listing 20 of 100,000 sessions must cost what 20 of 1,000 do, and a page of a long history what one of a short one does.
Run it with `./dev bench bench_looking`; `--sessions` and `--items` choose how large the large ones are.
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from standfast import SQLiteSession, open_store

ROUNDS = 31


async def filled(path: Path, sessions: int, items: int) -> None:
    """A file with so many sessions of two items, and one of so many; filled by SQL, because that is not measured."""
    first = SQLiteSession("long", path)
    await first.append([{"role": "user", "content": "Question 0: how do I get to Lisbon?"}], writer="run", start=0)
    await first.close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    row = (
        "INSERT INTO agent_messages (session_id, message_data, standfast_writer, standfast_ordinal) VALUES (?, ?, ?, ?)"
    )
    text = '{"role":"user","content":"Question %d: how do I get to Porto, and what does it cost?"}'
    db.executemany(row, (("long", text % number, "run", number) for number in range(1, items)))
    db.executemany(row, ((f"s{n}", text % n, f"run {n}", m) for n in range(1, sessions) for m in range(2)))
    now = "2026-11-15 10:00:00.000001"
    db.executemany(
        "INSERT INTO agent_sessions (session_id, created_at, updated_at, standfast_epoch, standfast_changed) "
        "VALUES (?, ?, ?, 'e', ?)",
        ((f"s{n}", now, now, n + 1) for n in range(1, sessions)),
    )
    db.execute("UPDATE agent_sessions SET standfast_seen = (SELECT max(id) FROM agent_messages)")
    db.execute("COMMIT")
    db.close()


async def median_ms(ask: Callable[[], Awaitable[Any]]) -> float:
    taken = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        await ask()
        taken.append((time.perf_counter() - began) * 1e3)
    return statistics.median(taken)


async def measured(path: Path) -> dict[str, float]:
    async with open_store(path, read_only=True) as store:
        session = store.session("long")
        middle = (await session.records(after="", limit=400)).records[-1].cursor
        return {
            "20 sessions, with details": await median_ms(lambda: store.sessions(limit=20)),
            "20 sessions": await median_ms(lambda: store.sessions(limit=20, details=False)),
            "20 records, the latest": await median_ms(lambda: session.records(limit=20)),
            "20 records behind a cursor": await median_ms(lambda: session.records(after=middle, limit=20)),
            "20 records before a cursor": await median_ms(lambda: session.records(before=middle, limit=20)),
        }


async def main(sessions: int, items: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.db", Path(folder) / "large.db"
        await filled(small, 1_000, 1_000)
        await filled(large, sessions, items)
        few, many = await measured(small), await measured(large)
        print(f"{'':30}{'of 1,000':>12}{f'of {sessions:,}/{items:,}':>22}{'ratio':>8}")
        for name, taken in few.items():
            print(f"{name:30}{taken:>9.2f} ms{many[name]:>19.2f} ms{many[name] / taken:>8.2f}")
        async with open_store(large, read_only=True) as store:
            began, looked = time.perf_counter(), 0
            after: str | None = None
            while True:
                page = await store.session("long").search("lisbon", after=after)
                looked, after = looked + len(page.hits), page.after
                if after is None:
                    break
            taken = time.perf_counter() - began
            print(f"search of {items:,} records: {taken * 1e3:.0f} ms, {items / taken:,.0f} a second, {looked} found")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=100_000)
    parser.add_argument("--items", type=int, default=100_000)
    given = parser.parse_args()
    asyncio.run(main(given.sessions, given.items))
