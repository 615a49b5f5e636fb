"""Encrypted sessions beside openai-agents' EncryptedSession, over each one's SQLite: ratios from one run.

Both have the same items in a file of their own; they take turns, so that a busy machine slows both, and medians are
shown. `plain` is our session without encryption: what sealing costs. Run it with `./dev bench bench_encrypted`.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agents import SQLiteSession as PeerSQLiteSession
from agents.extensions.memory import EncryptedSession as PeerSession

from standfast import EncryptedSession, SQLiteSession

KEY = "bench" * 8


def turn(number: int) -> list[dict[str, Any]]:
    """A turn of four items, as a run with one tool call stores it."""
    call = f"call_{number}"
    return [
        {"role": "user", "content": f"What is the weather in town number {number}, and should I take an umbrella?"},
        {"type": "function_call", "call_id": call, "name": "weather", "arguments": f'{{"town": "{number}"}}'},
        {"type": "function_call_output", "call_id": call, "output": "light rain, 14 degrees, wind from the west"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "Light rain: take one." * 3}]},
    ]


async def medians(rounds: int, operations: dict[str, Callable[[], Awaitable[Any]]]) -> dict[str, float]:
    """How long each operation takes, in milliseconds; they take turns."""
    took: dict[str, list[float]] = {name: [] for name in operations}
    for _ in range(rounds):
        for name, operation in operations.items():
            gc.collect()
            began = time.perf_counter()
            await operation()
            took[name].append((time.perf_counter() - began) * 1e3)
    return {name: statistics.median(values) for name, values in took.items()}


def report(title: str, found: dict[str, float]) -> None:
    """Print one line, with how many times faster ours is than theirs."""
    shown = "  ".join(f"{name} {value:8.2f} ms" for name, value in found.items())
    print(f"{title:<24} {shown}   {found['theirs'] / found['ours']:.1f} x theirs")


async def compare(folder: Path, item_count: int, rounds: int) -> None:
    """Read everything, and append a turn."""
    plain = SQLiteSession("a", folder / "plain.db")
    ours = EncryptedSession("a", SQLiteSession("a", folder / "ours.db"), KEY)
    theirs: Any = PeerSession("a", PeerSQLiteSession("a", folder / "theirs.db"), KEY, ttl=10**6)
    sessions: dict[str, Any] = {"plain": plain, "ours": ours, "theirs": theirs}
    items = [item for number in range(item_count // 4) for item in turn(number)]
    for session in sessions.values():
        await session.add_items(items)
    assert await ours.get_items() == await theirs.get_items() == items
    reads = {name: session.get_items for name, session in sessions.items()}
    report(f"get_items({item_count:,})", await medians(rounds, reads))
    appends = {name: lambda session=session: session.add_items(turn(0)) for name, session in sessions.items()}
    report("append a turn", await medians(rounds * 5, appends))
    for session in sessions.values():
        session.close()


def main() -> None:
    """Compare on a temporary folder, or on the disk of `--dir`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dir", type=Path, default=None)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.dir) as folder:
        asyncio.run(compare(Path(folder), given.items, given.rounds))


if __name__ == "__main__":
    main()
