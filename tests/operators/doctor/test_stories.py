"""Fixed stories of damage, crashes and undo, each of which some mistake of a doctor spoils (A14, C8)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.operators.doctor.world import Story, check_story, in_memory

TURNS = ((2, True), (1, True), (0, False))
STORIES = [
    Story(TURNS, ((("remove", 4, 0),),)),  # an output
    Story(TURNS, ((("remove", 2, 0),), (("remove", 5, 0),)), crash_at=4),  # a call; an answer
    Story(TURNS, ((("cut end", 0, 2),), (("cut bytes", 4, 9),)), crash_at=1, kept_bytes=40),
    Story(TURNS, ((("copy many", 1, 7),), (("copy", 6, 9),))),
    Story(((0, True), (0, False)), ((("remove", 2, 0),),)),  # the answer that reasoning led to
    Story(TURNS, ((("other copy", 0, 0), ("remove", 9, 0)),)),
    Story(TURNS, ((("other copy", 0, 0),), (("remove", 3, 0),)), compacts=True),
    Story(TURNS, ((("junk", 0, 5), ("stray output", 0, 8), ("stray call", 0, 0)),), crash_at=5, undo_crash_at=1),
    Story(TURNS, ((("remove", 4, 0),), (("remove", 4, 0),)), crash_at=3, undo_crash_at=2),
    Story(((1, True),), ((("remove", 0, 0), ("remove", 2, 0), ("junk", 2, 0)),), compacts=True),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_a_story_ends_well(number: int, tmp_path: Path) -> None:
    asyncio.run(check_story(STORIES[number], in_memory(), tmp_path))
