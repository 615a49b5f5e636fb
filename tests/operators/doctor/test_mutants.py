"""Every rule of the doctor is needed: a small change of it is seen by a story of damage, crashes and undo."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.mistakes.planting import planted
from tests.mistakes.registry import Mistake, proving
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


@pytest.mark.tier("deep")
@pytest.mark.parametrize("mistake", proving("doctor"), ids=lambda mistake: mistake.id)
def test_a_wrong_doctor_is_seen(mistake: Mistake, tmp_path: Path) -> None:
    seen: list[Story] = []
    with planted(mistake):
        for number, story in enumerate(STORIES):
            folder = tmp_path / str(number)
            folder.mkdir()
            try:
                asyncio.run(check_story(story, in_memory(), folder))
            except Exception:  # any failure is a notice
                seen.append(story)
                break
    assert seen, mistake.fault
