"""Every rule of the doctor is needed: a small change of it is seen by a story of damage, crashes and undo."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.mistakes.planting import planted
from tests.mistakes.registry import Mistake, proving
from tests.operators.doctor.test_stories import STORIES
from tests.operators.doctor.world import Story, check_story, in_memory


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
