"""`standfast demo`: a conversation stays whole while its writing process is killed again and again.

A child process writes a conversation to an SQLite file in a folder of its own, turn after turn, and is killed with
SIGKILL during a write. Each time this process examines the file, offers the torn turn again, and continues. It needs no
key, no server and no network, and every kill is real: a round in which the child finished its write first does not
count.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from standfast._kits.cli.arguments import Commands, Parser, command, count
from standfast._kits.cli.formatting import several
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import DONE
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

WRITER = "trip-planner"  # who writes; with the number of each item it tells a repeat from a second "yes"
CITIES = ["Lisbon", "Porto", "Madrid", "Sevilla", "Granada", "Valencia", "Barcelona", "Marseille", "Genova", "Roma"]


def add(commands: Commands[Parser]) -> None:
    """Add `demo`."""
    about = "see a conversation hold: a writer is killed, again and again"
    parser = command(commands, "demo", demo, about, store=False)
    parser.add_argument("--kills", type=count, default=5, metavar="N", help="kill the writer N times (5)")


def turn(number: int) -> list[dict[str, Any]]:
    """Turn `number` of the conversation: a question, a tool call with a long answer, and the reply."""
    city = CITIES[number % len(CITIES)]
    timetable = [f"{city} {hour:02}:{minute:02}" for hour in range(24) for minute in range(60)] * 4
    return [
        {"role": "user", "content": f"And how do I get to {city}?"},
        {"type": "function_call", "call_id": f"call_{number}", "name": "trains", "arguments": json.dumps({"to": city})},
        {"type": "function_call_output", "call_id": f"call_{number}", "output": json.dumps(timetable)},
        {"role": "assistant", "content": f"There is a train to {city} every minute. Shall I go on?"},
    ]


ITEMS_PER_TURN = len(turn(0))


# --- the process that is killed --------------------------------------------------------------------------------------


async def write_turns(path: str) -> None:
    """Continue the stored conversation for ever, and report each begin and each acknowledgement."""
    session = SQLiteSession("trip", path)
    number = await session.accepted(WRITER) // ITEMS_PER_TURN
    while True:
        items = turn(number)
        _tell("begin", number)
        await session.append(items, writer=WRITER, start=number * ITEMS_PER_TURN)
        _tell("acknowledged", number)
        number += 1


def _tell(what: str, number: int) -> None:
    sys.stdout.write(f"{what} {number}\n")
    sys.stdout.flush()


# --- the process that kills and checks -------------------------------------------------------------------------------


def kill_inside_a_write(path: Path) -> tuple[int, int]:
    """Let a child write, and kill it between a begin and its acknowledgement; return the pid and the number of the
    turn.
    """
    while True:
        child = subprocess.Popen(
            [sys.executable, "-m", "standfast._kits.cli.demo", str(path)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        with child, child.stdout as told:
            try:
                for _ in range(random.randint(3, 9)):  # let it get into its stride
                    begun = int(told.readline().split()[1])
                    told.readline()
                begun = int(told.readline().split()[1])
                time.sleep(random.uniform(0, 0.003))  # somewhere inside: encoding, writing, waiting for the disk
            finally:
                child.kill()
            last_words = told.read().split()
        if last_words == []:  # it never said "acknowledged": the kill landed inside the write
            return child.pid, begun


async def look(path: Path, killed_in: int) -> str:
    """Check the state found by a new process, offer the torn turn again (twice), and check that it is stored once."""
    session = SQLiteSession("trip", path)
    found = await session.get_items()
    whole = [item for number in range(killed_in) for item in turn(number)]
    torn = turn(killed_in)
    assert found in (whole, whole + torn), "a turn was lost, doubled or cut: this is what must never happen"
    for _ in range(2):
        await session.append(torn, writer=WRITER, start=killed_in * ITEMS_PER_TURN)
    assert await session.get_items() == whole + torn
    await session.close()
    return "was already there, whole" if len(found) > len(whole) else "had left no trace"


async def finish(path: Path, out: Output) -> int:
    """Continue the conversation in this process, without regard to the kills; return the number of its items."""

    async def say(role: str, content: str) -> None:
        await session.add_items([{"role": role, "content": content}])

    session = SQLiteSession("trip", path)
    before = len(await session.get_items())
    await say("user", "yes")
    await say("assistant", "Really?")
    await say("user", "yes")
    after = await session.get_items()
    assert len(after) == before + 3
    if not out.as_json:
        out.line()
        out.line(f"The conversation goes on ({before} items, now {len(after)}):")
        for item in after[-4:]:
            out.line(f"    {item['role']:>9}: {item['content']}")
        out.line("  Two equal messages are two messages: what tells a repeat is who wrote it and as which of theirs.")
    await session.close()
    return len(after)


def demo(args: argparse.Namespace, out: Output) -> int:
    """Kill a writer so many times, and look each time at what is left."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="standfast-demo-") as folder:
        path = Path(folder) / "conversation.db"
        if not out.as_json:
            times = several(args.kills, "time")
            out.line(f"A conversation is written to SQLite by a process that is killed with SIGKILL, {times}.")
            out.line()
        for number in range(1, args.kills + 1):
            pid, killed_in = kill_inside_a_write(path)
            state = asyncio.run(look(path, killed_in))
            if out.as_json:
                out.record("standfast.demo-kill/1", {"kill": number, "turn": killed_in + 1, "torn_turn": state})
                continue
            out.line(f"  kill {number}: process {pid} died while writing turn {killed_in + 1}.")
            out.line(f"          {killed_in} acknowledged turns are intact. The torn turn {state};")
            out.line("          written again, and again: it is there once.")
            out.flush()
        items = asyncio.run(finish(path, out))
    if out.as_json:
        out.record("standfast.demo/1", {"kills": args.kills, "items": items})
    else:
        out.line()
        out.line(f"Nothing lost, nothing doubled, in {time.monotonic() - began:.1f} s.")
    return DONE


if __name__ == "__main__":
    asyncio.run(write_turns(sys.argv[1]))
