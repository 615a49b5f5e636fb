"""Two unfinished runs in one session, in every pair of states, as two processes that were really killed left them.

All pairs are in one SQLite file: one session for each, with the runs `<session>.1` and `<session>.2`. What the tools
did is in a book. The model has no memory of its own: it calls the tool that the last message asks for, and else says
what it reads of every call.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

from standfast import Agent, RunConfig, RunHandedOverError, Runner, SQLiteSession, ToolContext, function_tool
from standfast.testing import AnsweringModel, assistant_message, function_call
from tests.helpers.children import born, ended
from tests.helpers.ledger_oracle import done, write

STATES = ("decided", "rejected", "gone", "handed over")
"""`decided`, `rejected`: a person has approved or refused its call, and no worker has taken it since."""

PAIRS = {f"{one} and {two}".replace(" ", "-"): (one, two) for one, two in product(STATES, STATES)}
"""The states of the two runs of each session."""

RUNS = {f"{session}.{number}": states[number - 1] for session, states in PAIRS.items() for number in (1, 2)}
"""The state of each run."""


def session_of(run_id: str) -> str:
    return run_id.rpartition(".")[0]


def _answer(call: Any) -> list[Any]:
    asked = str([item["content"] for item in call.input if item.get("role") == "user"][-1])
    outputs = {item["call_id"]: item["output"] for item in call.input if item.get("type") == "function_call_output"}
    if asked not in outputs:
        tool = "pay" if RUNS.get(asked) in ("decided", "rejected") else "look"
        return [function_call(tool, {}, call_id=asked)]
    return [assistant_message("; ".join(f"{call_id}: {output}" for call_id, output in outputs.items()))]


def clerk(book: str | Path, stands: Any = None) -> Agent[Any]:
    """The agent; `stands` is awaited in each call of `look`, with its id."""

    async def act(context: ToolContext[Any]) -> str:
        write(book, context.tool_call_id)
        if stands is not None and context.tool_name == "look":
            await stands(context.tool_call_id)
        return done(context.tool_call_id)

    tools = [
        function_tool(act, name_override="look", description_override="Look."),
        function_tool(act, name_override="pay", description_override="Pay.", needs_approval=True),
    ]
    return Agent(name="Clerk", tools=tools, model=AnsweringModel(_answer))


# --- how they came about ---------------------------------------------------------------------------------------------


async def _leave(number: int, path: str, book: str) -> None:
    """Start run `number` of every session, bring each to its state, and die."""
    standing: set[str] = set()
    may_return = asyncio.Event()

    async def stands(call_id: str) -> None:
        standing.add(call_id)
        await (asyncio.sleep(3600) if RUNS[call_id] == "gone" else may_return.wait())

    agent = clerk(book, stands)

    async def run(run_id: str) -> None:
        # What the first process has left is not this one's matter.
        config = RunConfig(run_id=run_id, unfinished="ignore")
        session = SQLiteSession(session_of(run_id), path)
        try:
            await Runner.run(agent, run_id, session=session, run_config=config)
        except RunHandedOverError:
            await session.close()

    async def start(*states: str) -> list[asyncio.Task[None]]:
        ids = [run_id for run_id, state in RUNS.items() if run_id.endswith(f".{number}") and state in states]
        tasks = [asyncio.create_task(run(run_id)) for run_id in ids]
        while "handed over" in states and not standing.issuperset(ids):
            await asyncio.sleep(0.01)
        return tasks

    left = await start("handed over")
    leaving = asyncio.create_task(Runner.hand_over(within_s=60))
    await asyncio.sleep(0)
    may_return.set()
    await asyncio.gather(leaving, *left, *await start("decided", "rejected"))
    gone = await start("gone")
    while not standing.issuperset(
        run_id for run_id in RUNS if run_id.endswith(f".{number}") and RUNS[run_id] == "gone"
    ):
        await asyncio.sleep(0.01)
    assert not any(task.done() for task in gone)
    os.kill(os.getpid(), signal.SIGKILL)


def leave(number: int, path: str, book: str) -> None:
    asyncio.run(_leave(number, path, book))


def left_in(folder: Path) -> tuple[Path, Path]:
    """The store that both processes left, and their book."""
    path, book = folder / "talks.db", folder / "book"
    for number in (1, 2):
        assert ended(born(leave, number, str(path), str(book)))
    return path, book


def copied(path: Path, to: Path) -> Path:
    """The store once more, as it is."""
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(to)) as target:
        source.backup(target)
    return to
