"""One MCP server over HTTP for two workers: it dies in calls, forgets its sessions, loses answers, sends garbage.

Each worker is a process with one connection, over which it answers two conversations at once; the conversations are
shared. What the server did outside stands in its notes, with the key of the call. One rule: it did it once, and the
next model is told of it, or that it is not known. `STANDFAST_ATTACK_ROUNDS=100` plays that many times as many stories.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers.counts import saw_effects, tried
from helpers.ledger_oracle import asked_next, wrongs
from helpers.processes import Child, Line
from tools.mcp.helpers import calls, faulty, lines, reached

from standfast import Agent, RunConfig, Runner, StandfastError
from standfast.testing import ScriptedModel, final
from tests.helpers.stores import looked_at, opened, place

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
LEASE: dict[str, Any] = {"lease_ttl_s": 3.0, "lease_wait_s": 60.0}
CONVERSATIONS = ("a", "b")

FAULTS = {
    "http": [
        *("look", "die", "cut", "cut_body", "cut_stream", "fetched_later", "never_fetched", "status_500", "status_502"),
        *("json_500", "status_429", "accepted", "page", "garbage", "garbage_event", "twice", "bad_shape", "bad_schema"),
        *("forgets_before", "forgets_after", "dies_after"),
    ],
    "sse": ["look", "die", "cut_body", "twice", "bad_shape", "bad_schema", "dies_after"],
}
"""Those after which nobody has to wait for a time limit."""
REFUSALS = ("", "typescript", "example", "plain")
"""How servers say that they do not know a session."""
CALLS = 5
"""How many of them a worker makes in each conversation."""


async def work(line: Line, *, where: str, kind: str, port: int, who: str, seed: int, may_die: bool) -> Any:
    """Call some tools in each conversation, which ones follows from the seed; what went wrong that is no answer."""
    chance = random.Random(f"{seed} {who}")
    logging.getLogger("mcp").setLevel(logging.CRITICAL)  # every fault would be there with its traceback
    async with reached(kind, port, require_approval={"twice": "always"}) as server:
        line.say("ready")
        await line.told()
        if may_die:
            asyncio.get_running_loop().call_later(chance.random() * 3, os.kill, os.getpid(), signal.SIGKILL)
        both = (
            answer(line, server, where, chance.sample(FAULTS[kind], CALLS), f"{who}{one}", one, chance)
            for one in CONVERSATIONS
        )
        return [wrong for part in await asyncio.gather(*both) for wrong in part]


async def answer(
    line: Line, server: Any, where: str, tools: list[str], who: str, conversation: str, chance: random.Random
) -> list[str]:
    found = []
    session = opened(where, conversation)
    for number, tool in enumerate(tools):
        name = f"{who}-{number}-{tool}"
        line.say(name)  # whoever waits for the end waits for a word at a time
        agent = Agent(name="clerk", model=ScriptedModel([calls(tool, name), final("done")]), mcp_servers=[server])
        try:
            result = await Runner.run(
                agent, f"{name}?", session=session, run_config=RunConfig(run_id=name, **LEASE), max_turns=4
            )
            if result.interruptions and chance.random() < 0.7:
                state = result.to_state()
                state.approve(result.interruptions[0])
                await Runner.run(agent, state, session=session, run_config=RunConfig(**LEASE))
        except StandfastError as error:
            tried[f"runs that ended with {type(error).__name__}"] += 1
        except Exception as error:
            found.append(f"{name}: {type(error).__name__}: {error}")
    await session.close()
    return found


async def told(where: str, notes: Path, kind: str, port: int) -> list[str]:
    """What is wrong in what the next models are told, and whether the server serves."""
    keys = [line.split()[1] for line in lines(notes)]
    done, found = [key.rpartition(":")[2] for key in keys], []
    saw_effects(notes, len(done))
    for conversation in CONVERSATIONS:
        session = looked_at(where, conversation)
        try:
            seen = [_plainly(item) for item in await asked_next(session, **LEASE)]
        finally:
            await session.close()
        found += wrongs([one for one in done if f"{conversation}-" in one], seen)
    async with reached(kind, port) as server:
        if (await server.call_tool("look", {})).is_error:
            found.append("the server does not serve")
    return found


def _plainly(item: dict[str, Any]) -> dict[str, Any]:
    """A text that came in parts, as one."""
    output = item.get("output")
    if not isinstance(output, list):
        return item
    return item | {"output": "".join(part.get("text", "") for part in output)}


def play(store: str, kind: str, seed: int, folder: Path) -> list[str]:
    """One story; what is wrong at its end."""
    where, notes, may_die = place(store, folder), folder / f"notes-{seed}", seed % 3 == 0
    with faulty(notes, REFUSALS[seed % 4]) as port, ExitStack() as stack:
        told_all = {"where": where, "kind": kind, "port": port, "seed": seed}
        workers = [
            stack.enter_context(Child(work, who=who, may_die=may_die and who == "x", **told_all)) for who in ("x", "y")
        ]
        for one in workers:
            one.hear_until("ready")
        for one in workers:
            one.say("go")
        results = [one.result() for one in workers]
        tried["stories"] += 1
        found = [f"{name}: {said}" for name, said in results if name != "ok" and not (may_die and name == "died")]
        found += [str(said) for name, said in results if name == "ok" and said not in ("[]", [])]
        return found + asyncio.run(told(where, notes, kind, port))


PLACES = [
    ("sqlite", "http", 0),
    pytest.param("redis", "http", 1, marks=pytest.mark.redis),
    pytest.param("postgres", "http", 2, marks=pytest.mark.postgres),
    ("sqlite", "sse", 2),
]
"""The first two are played always, the others where there are more rounds."""


@pytest.mark.parametrize(("store", "kind", "first"), PLACES if ROUNDS > 1 else PLACES[:2])
def test_what_a_server_did_is_told_once_or_as_unknown(store: str, kind: str, first: int, tmp_path: Path) -> None:
    seeds = range(first, first + 3 * ROUNDS) if ROUNDS > 1 else [first]
    found = {seed: wrong for seed in seeds if (wrong := play(store, kind, seed, tmp_path))}
    assert found == {}
