"""Generated calls against the modelled server hold, and would notice each rule that is missing."""

from __future__ import annotations

import pytest
from talk.mutants import MUTANTS, Mutant
from talk.world import World

LIVES = 60
SEARCHED = 400


@pytest.mark.parametrize("seed", range(LIVES))
def test_a_call_holds_whatever_happens(seed: int):
    """E5 to E10, E13, E14: any order, drops, kills, interruptions, refused settings; then the world calms down."""
    World(seed).live().check()


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault.replace(" ", "-"))
def test_a_wrong_call_is_noticed(mutant: Mutant):
    """The lives above can fail: for each of these faults there is one that does."""
    parts = mutant.parts()
    for seed in (*range(mutant.seed, mutant.seed + SEARCHED),):
        try:
            World(seed, parts=parts).live().check()
        except Exception:
            return
    pytest.fail(f"{SEARCHED} lives did not notice")
