"""Trees of agents at random from a seed: agent tools three deep, with and without sessions of their own, handoffs,
approvals, guardrails, tools that fail; their processes killed at any commit or effect, resumed, decided, cancelled.

One rule, for every session of the tree: whatever a tool did is in what the next model sees there, exactly once, or is
said there to be of unknown outcome; inside an agent tool, in what that reports. `STANDFAST_ATTACK_ROUNDS=100` plays
that many times as many stories.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import asked_next, lines
from helpers.processes import Child, played
from helpers.trees import Worker, sessions_of, tree, work, wrongs

from standfast import Runner, SQLiteSession, StandfastError

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
STORIES = 2


def play(path: Path, seed: int) -> list[str]:
    """One story; what is wrong at its end."""
    chance = random.Random(f"story {seed}")
    results: list[Any] = []
    for step in range(chance.randint(2, 5)):
        with ExitStack() as stack:
            children = [
                stack.enter_context(
                    Child(
                        work,
                        path=str(path),
                        who=f"{'ab'[number]}{step}",
                        seed=seed,
                        acts=chance.randint(1, 3),
                        at=round(2 + 22 * chance.random() ** 1.5) if chance.random() < 0.7 else None,
                        before=chance.random() < 0.5,
                    )
                )
                for number in range(1 if chance.random() < 0.75 else 2)
            ]
            heard = [child.hear() for child in children]
            for child, said in zip(children, heard, strict=True):
                if said == "ready":
                    with suppress(OSError):
                        child.say("go")
            results += [
                child.result() if said == "ready" else ("died", "") for child, said in zip(children, heard, strict=True)
            ]
    return asyncio.run(told_by(path, seed, results))


async def told_by(path: Path, seed: int, results: list[Any]) -> list[str]:
    found = [f"{name}: {value}" for name, value in results if name not in ("ok", "died") or (name == "ok" and value)]
    book, again = lines(f"{path}.book"), lines(f"{path}.book.again")
    on = sessions_of(tree(seed))
    for name in ["s", *sorted({name for name in on.values() if name and name != "s"})]:
        session = SQLiteSession(name, path)
        try:
            found += [
                f"{name}: {wrong}"
                for wrong in wrongs(book, again, await asked_next(session, lease_wait_s=30.0), name, on)
            ]
        except Exception as error:
            found.append(f"{name}: the next run: {type(error).__name__}: {error}")
        finally:
            session.close()
    session = SQLiteSession("s", path)
    agent = Worker(str(path), "end", seed, deadly=False).agent()
    for run in (await Runner.list_runs(session=session))[0]:
        if run.status in ("paused", "ready", "running", "failed"):
            try:
                await Runner.cancel_run(agent, run.run_id, session=session)
            except StandfastError as error:
                found.append(f"cancel_run of {run.status}: {error!r}")
    try:
        found += [f"stored: {wrong}" for wrong in wrongs(book, again, await session.get_items(), "s", on)]
    finally:
        session.close()
    return found


@pytest.mark.parametrize("group", range(4))
def test_whatever_a_tree_of_agents_did_is_told_once(group: int, tmp_path: Path) -> None:
    """C8, C12, C14, C15 together. A failure names its seed; `play(path, seed)` tells that story again."""
    assert played(play, tmp_path, group, STORIES * ROUNDS) == {}
