"""Every rule of the doctor is needed: a small change of it is seen by a story of damage, crashes and undo."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.driver.driver_mutants import Mutant
from tests.operators.doctor.mutants import MUTANTS, STORIES
from tests.operators.doctor.world import Story, check_story, in_memory


@pytest.mark.parametrize("number", range(len(STORIES)))
def test_a_story_ends_well(number: int, tmp_path: Path) -> None:
    asyncio.run(check_story(STORIES[number], in_memory(), tmp_path))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault)
def test_a_wrong_doctor_is_seen(mutant: Mutant, tmp_path: Path) -> None:
    seen: list[Story] = []
    with mutant.at_work():
        for number, story in enumerate(STORIES):
            folder = tmp_path / str(number)
            folder.mkdir()
            try:
                asyncio.run(check_story(story, in_memory(), folder))
            except Exception:  # whatever it is, somebody would have noticed
                seen.append(story)
                break
    assert seen, mutant.fault
