"""Groups of operations that reach SQLite's writer at once, compared with the same ones done one by one in memory.

What is asked for at once is written together: appends, pops, replaces, undo, rewinds, forks, clears, saves of runs,
leases, and refusals of each among them. It must be as if each had been alone, in the order of asking (A10); also where
the disk is full in the middle. `STANDFAST_ATTACK_ROUNDS=100` plays that many times as many stories; a failure names its
seed.
"""

from __future__ import annotations

import os
from pathlib import Path

from helpers.group_stories import play, play_on_a_full_disk
from helpers.processes import Child

ROUNDS = int(os.environ.get("STANDFAST_ATTACK_ROUNDS", "1"))


async def test_what_is_written_together_is_as_if_each_had_been_alone(tmp_path: Path) -> None:
    """A5, A10."""
    for seed in range(20 * ROUNDS):
        await play(seed, tmp_path / f"{seed}.db", is_full=False)


def test_what_fails_on_a_full_disk_leaves_what_was_asked_for_beside_it(tmp_path: Path) -> None:
    """A6, A10: what was acknowledged is there, and nothing of what was not."""
    for seed in range(4 * ROUNDS):
        with Child(play_on_a_full_disk, seed=seed, path=str(tmp_path / f"{seed}.db")) as child:
            assert child.result() == ("ok", None), f"seed {seed}"
