"""Several processes at random from a seed on two sessions: adding, popping, replacing, undoing, forking, being killed.

The rule is that of tests/helpers/session_oracle.py: what was acknowledged is there once, in order, unless somebody took
it. `STANDFAST_ATTACK_ROUNDS=100` plays that many times as many stories; a failure names its seed.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from helpers import session_oracle
from helpers.counts import tried
from helpers.processes import Child
from helpers.session_actors import act, act_as_sdk, unfolded

from standfast import EncryptedSession
from tests.helpers.stores import SERVERS, opened, place

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
ACTS = 25
ALWAYS = {"add": 6, "append": 4, "leased": 1, "repeat": 1, "read": 2, "look": 3, "again": 1}
SOMETIMES: tuple[dict[str, int], ...] = (
    {"pop": 4},
    {"replace": 3},
    {"replace": 3, "restore": 2},
    {"rewind": 2},
    {"clear": 1},
    {"fork": 1, "copy": 1},
    {"thread": 2, "child": 2},
    {"cut": 30},
    {"impatient": 1},
    {"die": 1},
)


def play(kind: str, tmp_path: Path, seed: int, *, sealed: bool = False) -> list[str]:
    """One story; what is wrong at its end."""
    chance = random.Random(f"story {seed}")
    ops = dict(ALWAYS)
    for more in chance.sample(SOMETIMES, chance.randint(1, 4)):
        ops |= more
    folder = tmp_path / f"{kind}{seed}"
    folder.mkdir()
    where = place(kind, folder)
    may_kill = chance.random() < 0.5
    with_sdk = kind == "sqlite" and not sealed and chance.random() < 0.4
    told: dict[str, Any] = {"folder": str(folder), "where": where, "seed": seed, "ops": ops, "acts": ACTS}
    found: list[str] = []
    with ExitStack() as stack:
        lives = [stack.enter_context(Child(act, who=who, sealed=sealed, **told)) for who in "abc"]
        if with_sdk:
            lives.append(stack.enter_context(Child(act_as_sdk, who="sdk", **told)))
        for child in lives:
            child.hear_until("ready")
        for child in lives:
            child.say("go")
        if may_kill:
            for number in range(2):
                time.sleep(chance.random() * 0.1)
                lives[number].kill()
                heir = stack.enter_context(Child(act, who=f"{'ab'[number]}2", sealed=sealed, **told))
                heir.hear_until("ready")
                heir.say("go")
                lives[number] = heir
        for child in lives:
            name, value = child.result()
            if name not in ("ok", "died") or (name == "died" and "die" not in ops) or (name == "ok" and value):
                found.append(f"{name}: {value}")
    tried["acts"] += ACTS * len(lives)
    return found + asyncio.run(_looked_at(where, folder, sealed))


async def _looked_at(where: str, folder: Path, sealed: bool) -> list[str]:
    found: list[str] = []
    for name in ("s", "z"):
        session = opened(where, name)
        if sealed:
            session = EncryptedSession(name, session, "a key of all")
        books = session_oracle.read(folder, name)
        tried["items acknowledged"] += sum(len(deed.names) for deed in books.deeds if deed.op == "add" and deed.is_done)
        tried["heads compared"] += len(books.heads)
        found += session_oracle.wrongs(books, unfolded(await session.get_items()))
        await session.close()
    return found


def stories(kind: str, tmp_path: Path, count: int, *, sealed: bool = False, since: int = 0) -> dict[int, list[str]]:
    """Play so many; what is wrong, by seed."""
    problems = {}
    for seed in range(since, since + count * ROUNDS):
        tried["stories"] += 1
        if found := play(kind, tmp_path, seed, sealed=sealed):
            problems[seed] = found
    return problems


@pytest.mark.parametrize("sealed", [False, True])
def test_what_was_acknowledged_is_there_once_and_in_order_whatever_several_processes_do(
    sealed: bool, tmp_path: Path
) -> None:
    """A5, A8, A10 to A13, A17, A22, A23, B1 to B6, B10."""
    problems = stories("sqlite", tmp_path, 4, sealed=sealed)
    assert not problems, session_oracle.told(problems)


@pytest.mark.parametrize("kind", SERVERS)
def test_the_same_on_a_server(kind: str, tmp_path: Path) -> None:
    """A5, A8, A10 to A13, A17, A22, B1 to B6."""
    problems = stories(kind, tmp_path, 2, since=1000)
    assert not problems, session_oracle.told(problems)
