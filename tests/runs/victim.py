"""A program that is killed: a few conversations at once, on one SQLite file, with tools whose effects are written down.

It knows nothing of earlier lives. It runs every input of every conversation, in order, under the same run ids; what is
done is found done, what was torn goes on, what had begun is settled. What tools really did is appended to a file, line
by line, in the moment in which it happens.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

from standfast import (
    Agent,
    NotFoundError,
    RunConfig,
    Runner,
    RunStateError,
    SQLiteSession,
    ToolContext,
    function_tool,
    handoff,
)
from standfast._kits.testing.simulator.scripts import Plan, PlannedTurn, Speaker, decide, remove_salt
from standfast._kits.testing.simulator.world import World

TALKS = 4
REPEATABLE = {"note"}


def plans_of(seed: int, talk: int) -> list[Plan]:
    """What is said in a conversation."""
    chance = random.Random(f"{seed} {talk}")
    return [Plan(f"question {number}#0", tuple(_turn(chance) for _ in range(3))) for number in range(2)]


def _turn(chance: random.Random) -> PlannedTurn:
    calls = [chance.choice(("pay", "pay", "note", "look", "book", "help")) for _ in range(chance.randrange(1, 4))]
    if chance.random() < 0.2:
        calls.append("transfer")
    return PlannedTurn(tuple(calls), thinks=chance.random() < 0.3)


class _Salts(Counter[str]):
    """Models in different processes never make the same ids."""

    def __missing__(self, key: str) -> int:
        return os.getpid() * 1000


def make_agent(folder: Path, seed: int, talk: int) -> Agent[Any]:
    """The agent of one conversation."""
    world, plans = World(seed, None), plans_of(seed, talk)
    world.asked = _Salts()
    tools = make_tools(folder, seed, talk)
    helper = Agent(name="Helper", model=Speaker(world, plans, "Helper", nested=True).model(), tools=tools)
    tools = [*tools, helper.as_tool("help", "Ask the helper.")]
    second = Agent(name="Second", model=Speaker(world, plans, "Second").model(), tools=tools)
    first = Agent(name="First", model=Speaker(world, plans, "First").model(), tools=tools)
    first.handoffs = [handoff(second, tool_name_override="transfer")]
    second.handoffs = [handoff(first, tool_name_override="transfer")]
    return first


def make_tools(folder: Path, seed: int, talk: int) -> list[Any]:
    """Tools that write down when they begin to act and when they are done."""
    book_of_effects = folder / f"effects-{talk}"

    def write(context: ToolContext[Any], word: str) -> None:
        with book_of_effects.open("ab", buffering=0) as file:
            file.write(f"{word} {context.tool_name} {context.idempotency_key}\n".encode())

    @function_tool
    async def pay(context: ToolContext[Any], what: str) -> str:
        """Must not be repeated."""
        write(context, "begin")
        await asyncio.sleep(0.002)
        write(context, "end")
        return f"paid {what}"

    @function_tool(idempotent=True)
    async def note(context: ToolContext[Any], what: str) -> str:
        """Harmless to repeat."""
        write(context, "begin")
        write(context, "end")
        return f"noted {what}"

    @function_tool
    def look(context: ToolContext[Any], what: str) -> str:
        """In a thread."""
        write(context, "begin")
        write(context, "end")
        return f"looked {what}"

    @function_tool(needs_approval=True)
    async def book(context: ToolContext[Any], what: str) -> str:
        """Waits for a person."""
        write(context, "begin")
        await asyncio.sleep(0)
        write(context, "end")
        return f"booked {what}"

    return [pay, note, look, book]


def database(folder: Path) -> Path:
    """Where the conversations are."""
    return folder / "talks.db"


def run_id_of(talk: int, number: int) -> str:
    """The name of a run in every life."""
    return f"talk-{talk}-run-{number}"


async def hold_talk(folder: Path, seed: int, talk: int) -> None:
    """Bring one conversation to its end, from wherever it is."""
    session = SQLiteSession(f"talk-{talk}", database(folder))
    agent, chance = make_agent(folder, seed, talk), random.Random()
    for number, plan in enumerate(plans_of(seed, talk)):
        run_id = run_id_of(talk, number)
        config = RunConfig(run_id=run_id, tracing_disabled=True)
        result: Any = None
        if chance.random() < 0.5:
            try:
                result = await Runner.resume(agent, run_id, session=session)
            except (NotFoundError, RunStateError):
                pass  # it has not begun, or has ended: running it under its id tells
        if result is None and chance.random() < 0.5:
            result = Runner.run_streamed(agent, plan.input, session=session, run_config=config)
            async for _ in result.stream_events():
                pass
        elif result is None:
            result = await Runner.run(agent, plan.input, session=session, run_config=config)
        while result.interruptions:
            state = result.to_state()
            decide(state)
            result = await Runner.run(agent, state, session=session)
        assert remove_salt(result.final_output) == f"answer {number}#4", result.final_output
    session.close()


def live(folder: str, seed: int) -> None:
    """One life of the program; it ends by itself when all is said."""

    async def everything() -> None:
        await asyncio.gather(*(hold_talk(Path(folder), seed, talk) for talk in range(TALKS)))

    asyncio.run(everything())
    Path(folder, "finished").touch()
