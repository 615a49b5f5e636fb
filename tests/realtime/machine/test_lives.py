"""Generated calls against the modelled server hold, and would notice each rule that is missing."""

from __future__ import annotations

import pytest
from realtime.machine.mistaken_parts import wrong_parts
from realtime.machine.world import World

from tests.mistakes.registry import Mistake, proving

SEEDS = sorted({*range(60), *(mistake.seed for mistake in proving("lives"))})
"""Some lives, and for each mistake one that notices it, however rare that is."""
SEARCHED = 400


@pytest.mark.parametrize("seed", SEEDS)
def test_a_call_holds_whatever_happens(seed: int):
    """E5 to E10, E13, E14: any order, drops, kills, interruptions, refused settings; then the world calms down."""
    World(seed).live().check()


@pytest.mark.parametrize("mistake", proving("lives"), ids=lambda mistake: mistake.id)
def test_a_wrong_call_is_noticed(mistake: Mistake):
    """The lives above can fail: for each of these faults there is one that does."""
    parts = wrong_parts(mistake)
    for seed in range(mistake.seed, mistake.seed + SEARCHED):
        try:
            World(seed, parts=parts).live().check()
        except Exception:
            return
    pytest.fail(f"{SEARCHED} lives did not notice")
