"""The doctor: how many items a second it examines, and whether twice as many take twice as long, from one run.

Histories are what agents write: messages, reasoning, calls and outputs. Time is the processor's, of this process, so a
busy machine does not matter; the file is read once before, so that a disk does not either.
Run it with `./dev bench bench_doctor`; `--items` chooses how many there are.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sqlite3
import tempfile
import time
from pathlib import Path
from typing import Any

from standfast import SQLiteSession, examine_store, mend_store, open_store, undo_mend

ITEMS_A_SECOND_MIN = 50_000
LONG_AGO = "2026-01-01 00:00:00"


def turn(number: int) -> list[dict[str, Any]]:
    """One turn, of six items."""
    call_id = f"call_{number}"
    text = {"type": "output_text", "text": "The train leaves at nine.", "annotations": []}
    return [
        {"role": "user", "content": f"Question {number}: how do I get to Porto, and what does it cost?"},
        {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "x" * 200},
        {"type": "function_call", "id": f"fc_{number}", "call_id": call_id, "name": "trains", "arguments": '{"to":1}'},
        {"type": "function_call_output", "call_id": call_id, "output": "09:00, 30 euros"},
        {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text], "status": "completed"},
        {"role": "user", "content": "yes"},
    ]


async def filled(path: Path, items: int, sessions: int) -> None:
    """A file with so many items in so many sessions; filled by SQL, because that is not measured."""
    first = SQLiteSession("first", path)
    await first.append([{"role": "user", "content": "hello"}], writer="run", start=0)
    await first.close()
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("BEGIN")
    each = items // sessions
    rows = (
        (f"s{n}", json.dumps(item), f"run {n}", place, LONG_AGO)
        for n in range(sessions)
        for place, item in enumerate(item for number in range(each // 6 + 1) for item in turn(number))
        if place < each
    )
    columns = "session_id, message_data, standfast_writer, standfast_ordinal, created_at"
    db.executemany(f"INSERT INTO agent_messages ({columns}) VALUES (?, ?, ?, ?, ?)", rows)
    db.executemany(
        "INSERT INTO agent_sessions (session_id, created_at, updated_at, standfast_epoch, standfast_changed) "
        "VALUES (?, ?, ?, 'e', ?)",
        ((f"s{n}", LONG_AGO, LONG_AGO, n + 2) for n in range(sessions)),
    )
    db.execute("UPDATE agent_sessions SET standfast_seen = (SELECT max(id) FROM agent_messages)")
    db.execute("COMMIT")
    db.close()


async def examined(path: Path) -> tuple[int, float]:
    """How many items were examined, and the seconds of processor that took."""
    async with open_store(path, read_only=True) as store:
        await store.counts(items=True)
        examination = examine_store(store)
        began = time.process_time()
        found = [one async for one in examination if one.level != "note"]
        taken = time.process_time() - began
    assert not [one for one in found if one.kind not in ("call_without_output", "cut_reasoning")], found[:3]
    return examination.items, taken


async def mended(path: Path, folder: Path) -> tuple[float, float]:
    """The seconds of processor that a fix of every session takes, and its undo."""
    db = sqlite3.connect(path, isolation_level=None)
    db.execute("DELETE FROM agent_messages WHERE message_data LIKE '%function_call_output%' AND id % 100 = 1")
    db.close()
    began = time.process_time()
    async with open_store(path) as store:
        await mend_store(store, folder / f"{path.stem}.undo")
    middle = time.process_time()
    await undo_mend(folder / f"{path.stem}.undo")
    return middle - began, time.process_time() - middle


async def main(items: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"{'':34}{'items/s':>12}{'of 50,000':>11}{'fix':>10}{'undo':>10}")
        for title, sessions in (("one session", 1), (f"{items // 20:,} sessions of 20", items // 20)):
            rates, fixes = [], []
            for size in (items // 4, items):
                path = folder / f"{sessions}-{size}.db"
                await filled(path, size, max(1, sessions * size // items))
                count, taken = min([await examined(path) for _ in range(3)], key=lambda one: one[1])
                rates.append(count / taken)
                fix, undo = await mended(path, folder)
                fixes.append(fix + undo)
                ratio = rates[-1] / ITEMS_A_SECOND_MIN
                print(f"{size:>9,} items, {title:<18}{rates[-1]:>12,.0f}{ratio:>10.2f}x{fix:>8.2f} s{undo:>8.2f} s")
            times, mends = 4 * rates[0] / rates[1], fixes[1] / fixes[0]
            print(f"{'':9} four times the items: {times:.2f} x the time to examine, {mends:.2f} x to mend and undo")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--items", type=int, default=100_000)
    asyncio.run(main(parser.parse_args().items))
