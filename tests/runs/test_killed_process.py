"""The same failure really happening: a program on SQLite, killed with SIGKILL at random moments, again and again.

After every kill the file is looked at as it was left: whole turns only, and no effect of a tool without a record that
the call had begun. When the program is finally left alone, every conversation must be the one it would have been.
`STANDFAST_KILLS=500` asks for more kills than the suite makes.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from helpers import children

from standfast import NotFoundError, Runner, RunStateError, SQLiteSession
from standfast._kits.testing.simulator.checks import lost_calls, retold
from standfast._kits.testing.simulator.scripts import remove_salt
from standfast._kits.testing.simulator.world import invalid
from standfast._src.base.json_values import Item

from . import victim

KILLS = int(os.environ.get("STANDFAST_KILLS", "64"))
PROGRAMS = 4
KILLS_OF_ONE_MAX = 25


def lived(folder: Path, seed: int, kill_after_s: float | None) -> bool:
    """One life of the program; whether it was killed before it ended by itself."""
    return children.ended(children.born(victim.live, str(folder), seed), kill_after_s)


async def left_behind(folder: Path, seed: int, talk: int) -> tuple[list[Item], dict[str, str]]:
    """A conversation's history, and what the saved runs say of their calls, by idempotency key."""
    session = SQLiteSession(f"talk-{talk}", victim.database(folder))
    records: dict[str, str] = {}
    try:
        history = await session.get_items()
        for number in range(len(victim.plans_of(seed, talk))):
            try:
                agent = victim.make_agent(folder, seed, talk)
                state = await Runner.load(agent, victim.run_id_of(talk, number), session=session)
                records |= {record.idempotency_key: record.status for record in state.get_calls()}
            except (NotFoundError, RunStateError):
                continue  # not begun, or ended
    finally:
        session.close()
    return history, records


def effects(folder: Path, talk: int) -> list[list[str]]:
    """What the tools wrote down: begin or end, the tool, the call's key."""
    book = folder / f"effects-{talk}"
    return [line.split(" ", 2) for line in book.read_text().splitlines()] if book.exists() else []


def around(key: str) -> list[str]:
    """The keys of a call and of the call, if any, whose nested run it belongs to."""
    run, _, nested = key.partition("/")
    return [key, f"{run}:{nested.partition(':')[0]}"] if nested else [key]


def check_as_left(folder: Path, seed: int) -> None:
    """What must be true of a file the moment its program is gone."""
    for talk in range(victim.TALKS):
        history, records = asyncio.run(left_behind(folder, seed, talk))
        assert invalid(history) is None, f"a torn turn is stored: {invalid(history)}"
        stored = {item["call_id"] for item in history if item.get("type") == "function_call"}
        for word, tool, key in effects(folder, talk):
            known = key in records or any(name in records or name.rpartition(":")[2] in stored for name in around(key))
            assert known, f"{tool} {key} acted, and nothing that was saved says so"
            if records.get(key) in ("intended", "waiting"):
                assert tool in victim.REPEATABLE, f"{tool} {key} acted ({word}), and is said to have not begun"
        check_counts(folder, talk)


def check_counts(folder: Path, talk: int) -> None:
    begun = Counter((tool, remove_salt(key)) for word, tool, key in effects(folder, talk) if word == "begin")
    twice = {name: count for name, count in begun.items() if count > 1 and name[0] not in victim.REPEATABLE}
    assert not twice, f"these ran more than once: {twice}"


def check_the_end(folder: Path, seed: int, calm: Path) -> None:
    """Every conversation is the one it would have been, but for outputs of calls that nobody knows the end of."""
    for talk in range(victim.TALKS):
        history, records = asyncio.run(left_behind(folder, seed, talk))
        expected, _ = asyncio.run(left_behind(calm, seed, talk))
        lost = lost_calls(history)
        assert retold(history, lost) == retold(expected, lost)
        assert not records, "a run that ended is still there to be resumed"
        check_counts(folder, talk)
        ended = {remove_salt(key).rpartition(":")[2] for word, _, key in effects(folder, talk) if word == "end"}
        said = {remove_salt(str(item.get("call_id"))): item for item in history if "output" in item}
        for call_id, item in said.items():
            if str(item["output"]).startswith(("paid", "noted", "looked", "booked")):
                assert call_id in ended, f"{call_id} is said to be done and was not"


def test_nothing_is_killed_in_a_calm_life(tmp_path: Path) -> None:
    """The program does what it should when it is left alone, so that what follows means something."""
    assert not lived(tmp_path, 0, None)
    check_the_end(tmp_path, 0, tmp_path)
    assert sum(len(effects(tmp_path, talk)) for talk in range(victim.TALKS)) > 20


@pytest.mark.clause("C3", "C5", "C8", "C12", backend="runs")
@pytest.mark.parametrize("program", range(PROGRAMS))
def test_killed_at_random_moments_a_program_still_tells_the_same(program: int, tmp_path: Path) -> None:
    start = random.SystemRandom().getrandbits(32)
    print("moments were drawn from", start)  # the moments; what happens in them is the machine's
    chance = random.Random(start)
    kills, seed = 0, program * 1000
    while kills < KILLS / PROGRAMS:
        seed += 1
        calm, folder = tmp_path / f"calm-{seed}", tmp_path / f"killed-{seed}"
        calm.mkdir()
        folder.mkdir()
        began = time.monotonic()
        lived(calm, seed, None)
        took_s = time.monotonic() - began
        for _ in range(KILLS_OF_ONE_MAX):
            if not lived(folder, seed, chance.uniform(0, took_s * 0.8)):
                break
            kills += 1
            check_as_left(folder, seed)
        lived(folder, seed, None)
        check_the_end(folder, seed, calm)


def test_an_effect_without_a_record_would_be_noticed(tmp_path: Path) -> None:
    """The checks can fail: an effect that no saved run knows, and one that happened twice."""
    lived(tmp_path, 0, None)
    book = tmp_path / "effects-0"
    whole: Any = book.read_text()
    book.write_text(whole + "begin pay talk-0-run-0:9#9.9~1\n")
    with pytest.raises(AssertionError, match="nothing that was saved says so"):
        check_as_left(tmp_path, 0)
    first = next(line for line in whole.splitlines() if not line.startswith("end") and " note " not in line)
    book.write_text(f"{whole}{first}\n")
    with pytest.raises(AssertionError, match="more than once"):
        check_as_left(tmp_path, 0)
