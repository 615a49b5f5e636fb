"""Moving sessions: items a second of one core, and whether a session ten times as long takes ten times as long.

Export must be linear and do at least 50,000 items a second. Run it with `./dev bench bench_moving`; `--items` chooses
how long the long session is.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from standfast import SQLiteSession, copy_sessions, export_session, import_session, open_store
from standfast._src.base.json_values import encode

ROUNDS = 5
AT_LEAST = 50_000


async def filled(path: Path, items: int) -> None:
    """One session of so many items, appended a thousand at a time."""
    session = SQLiteSession("talk", path)
    for start in range(0, items, 1000):
        batch = [{"role": "user", "content": f"Question {n}: how do I get to Porto?", "id": f"msg_{n}"} for n in range(start, start + 1000)]  # fmt: skip  # noqa: E501
        await session.append(batch, writer="run", start=start)
    await session.close()


async def cpu_s(ask: Callable[[int], Awaitable[Any]]) -> float:
    """What one round costs in CPU time, of all threads: other programs on this machine do not count."""
    taken = []
    for number in range(ROUNDS):
        began = time.process_time()
        await ask(number)
        taken.append(time.process_time() - began)
    return statistics.median(taken)


async def measured(folder: Path, items: int) -> dict[str, float]:
    store = folder / f"{items}.db"
    await filled(store, items)
    file = folder / f"{items}.jsonl"

    async def bare() -> None:
        async with open_store(store, read_only=True) as found:
            session = found.session("talk")
            with open(folder / "bare.jsonl", "wb") as out:
                out.writelines(encode(item) + b"\n" for item in await session.get_items())
            await session.close()

    return {
        "only the items, one a line": await cpu_s(lambda _: bare()),
        "export": await cpu_s(lambda _: export_session(store, "talk", file, overwrite=True)),
        "import": await cpu_s(lambda n: import_session(folder / f"i{items}-{n}.db", file)),
        "copy": await cpu_s(lambda n: copy_sessions(store, folder / f"c{items}-{n}.db")),
        "copy again, nothing new": await cpu_s(lambda _: copy_sessions(store, folder / f"c{items}-0.db")),
    }


async def main(items: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        few, many = await measured(Path(folder), items // 10), await measured(Path(folder), items)
        print(f"{'':30}{f'of {items // 10:,}':>16}{f'of {items:,}':>16}{'ratio':>8}   items a second, one core")
        for name, taken in few.items():
            ratio, speed = many[name] / taken / 10, items / many[name]
            print(f"{name:30}{taken * 1e3:>13.0f} ms{many[name] * 1e3:>13.0f} ms{ratio:>8.2f}{speed:>12,.0f}")
        enough = items / many["export"] >= AT_LEAST
        print(f"export: {'at least' if enough else 'LESS THAN'} {AT_LEAST:,} items a second")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    asyncio.run(main(parser.parse_args().items))
