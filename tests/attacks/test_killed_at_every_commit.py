"""Runs inside runs, killed before and after each commit of their store, and then whatever comes: a message, a resume.

The rule is that of tests/helpers/trees.py, for every session. `STANDFAST_ATTACK_ROUNDS=54` kills at every place.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from helpers.counts import tried
from helpers.killing import ON, WHAT, Story, step
from helpers.ledger_oracle import asked_next, lines
from helpers.processes import Child
from helpers.trees import wrongs

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))
PLACES = 54
"""A little more than the longest of these has commits."""
FEW = {"cancel": 5, "operator cancels": 8, "start": 13, "another message": 13}
"""What is short has fewer; of anything else the first 20 are among those that are played by default."""

AFTERWARDS: tuple[tuple[str, ...], ...] = (
    (),
    ("resume",),
    ("another message",),
    ("cancel",),
    ("approve",),
    ("another message", "resume", "approve"),
)
ANSWERS = ("ok", "RunStateError", "RunClaimedError", "NotFoundError", "ApprovalError")
"""What a process that comes afterwards may hear: the run may have ended, or may never have been saved."""

STORIES = [(kind, what) for kind in ON for what in WHAT if kind != "three deep" or what == "start"]


def play(folder: Path, kind: str, what: str, place: int) -> list[str]:
    """One story; what is wrong at its end."""
    path = folder / "s.db"
    told: dict[str, Any] = {"where": f"sqlite {path}", "book": f"{path}.book", "kind": kind}
    if what != "start":
        _end_of(Child(step, what="start", who="first", **told))
    ended = _end_of(Child(step, what=what, who="killed", at=1 + place // 2, before=place % 2 == 0, **told))
    tried["kills at a commit"] += ended[0] == "died"
    found = [] if ended[0] in ("died", *ANSWERS) else [f"{what}: {ended}"]
    for number, after in enumerate(AFTERWARDS[place % len(AFTERWARDS)]):
        heard = _end_of(Child(step, what=after, who=f"after{number}", **told))
        found += [] if heard[0] in ANSWERS else [f"{after}: {heard}"]
    return found + asyncio.run(_wrongs(path, kind, reverse=place % 4 > 1))


def _end_of(child: Child) -> tuple[str, str]:
    with child:
        return child.result()


async def _wrongs(path: Path, kind: str, *, reverse: bool) -> list[str]:
    on, book = ON[kind], lines(f"{path}.book")
    story, found = Story(f"sqlite {path}", f"{path}.book", kind, "end"), []
    for name in sorted({"s", *filter(None, on.values())}, reverse=reverse):
        session = story.session(name)
        seen = await asked_next(session, lease_wait_s=30.0)
        told = wrongs(book, (), seen, name, on, is_compacted=kind == "compacted")
        found += [f"{name}: {wrong}" for wrong in told]
        await session.close()
    return found


@pytest.mark.parametrize("group", range(5))
def test_a_kill_at_any_commit_hides_and_doubles_nothing(group: int, tmp_path: Path) -> None:
    """C3, C8, C12, C15. A failure names its story: `play(folder, kind, what, place)` tells it again."""
    problems: dict[tuple[str, str, int], list[str]] = {}
    for number, (kind, what) in enumerate(STORIES):
        if number % 5 != group or (ROUNDS == 1 and number // 5 % 5 != group):
            continue
        for turn in range(1 if ROUNDS == 1 else 2 * min(ROUNDS, PLACES)):
            place = (number * 17 + turn) % (2 * (PLACES if ROUNDS > 1 else FEW.get(what, 20)))
            folder = tmp_path / f"{number}.{place}"
            folder.mkdir()
            if found := play(folder, kind, what, place):
                problems[kind, what, place] = found
    assert problems == {}
