"""A conversation that holds: `./dev demo`.

A child process writes a conversation to a SQLite file, turn after turn, and is killed with SIGKILL while it writes
one. Each time this process looks at what is left, offers the torn turn again, and goes on. Nothing here needs a key, a
server or a network, and every kill is real: a round in which the child finished its write first does not count.
"""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import agent_demo

from standfast import SQLiteSession

WRITER = "trip-planner"  # who writes; with the number of each item it tells a repeat from a second "yes"
KILLS = 5
CITIES = ["Lisbon", "Porto", "Madrid", "Sevilla", "Granada", "Valencia", "Barcelona", "Marseille", "Genova", "Roma"]


def turn(number: int) -> list[dict[str, object]]:
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
    """Continue the conversation where the store says it is, for ever, telling each begin and each acknowledgement."""
    session = SQLiteSession("trip", path)
    number = await session.accepted(WRITER) // ITEMS_PER_TURN
    while True:
        items = turn(number)
        print("begin", number, flush=True)
        await session.append(items, writer=WRITER, start=number * ITEMS_PER_TURN)
        print("acknowledged", number, flush=True)
        number += 1


# --- the process that kills and checks -------------------------------------------------------------------------------


def kill_inside_a_write(path: Path) -> tuple[int, int]:
    """Let a child write and kill it between a begin and its acknowledgement: the pid, and the turn it was writing."""
    while True:
        child = subprocess.Popen([sys.executable, __file__, "write", str(path)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        with child, child.stdout as told:
            for _ in range(random.randint(3, 9)):  # let it get into its stride
                begun = int(told.readline().split()[1])
                told.readline()
            begun = int(told.readline().split()[1])
            time.sleep(random.uniform(0, 0.003))  # somewhere inside: encoding, writing, waiting for the disk
            child.kill()
            last_words = told.read().split()
        if last_words == []:  # it never said "acknowledged": the kill landed inside the write
            return child.pid, begun


async def look(path: Path, killed_in: int) -> str:
    """Check what a new process finds, offer the torn turn again (twice), and check that it is there once."""
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


async def finish(path: Path) -> None:
    """Go on with the conversation in this process, as if nothing had happened."""

    async def say(role: str, content: str) -> None:
        await session.add_items([{"role": role, "content": content}])

    session = SQLiteSession("trip", path)
    before = len(await session.get_items())
    await say("user", "yes")
    await say("assistant", "Really?")
    await say("user", "yes")
    after = await session.get_items()
    assert len(after) == before + 3
    print(f"\nThe conversation goes on ({before} items, now {len(after)}):")
    for item in after[-4:]:
        print(f"    {item['role']:>9}: {item['content']}")
    print("  Two equal messages are two messages: what tells a repeat apart is who wrote it and as which of theirs.")
    await session.close()


def main() -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "conversation.db"
        print(f"A conversation is written to SQLite by a process that is killed with SIGKILL, {KILLS} times.\n")
        for round_number in range(1, KILLS + 1):
            pid, killed_in = kill_inside_a_write(path)
            state = asyncio.run(look(path, killed_in))
            print(f"  kill {round_number}: process {pid} died while writing turn {killed_in + 1}.")
            print(f"          {killed_in} acknowledged turns are intact. The torn turn {state};")
            print("          written again, and again: it is there once.")
        asyncio.run(finish(path))
    print("\nAn agent with two tools is killed in the middle of its turn, and another process finishes its run.\n")
    agent_demo.main()
    print(f"\nNothing lost, nothing doubled, in {time.monotonic() - began:.1f} s.")


if __name__ == "__main__":
    if sys.argv[1:2] == ["write"]:
        asyncio.run(write_turns(sys.argv[2]))
    else:
        main()
