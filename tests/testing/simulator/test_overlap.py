"""Messages that overlap on one session, by seed (C15); and that a run which steps over another is found out."""

from __future__ import annotations

import os
from typing import Any

import pytest

import standfast._src.runs.loop.start
import standfast._src.runs.persistence.unfinished_runs
from standfast._kits.testing.simulator.__main__ import main
from standfast._kits.testing.simulator.overlap import replay_overlap, simulate_overlaps
from standfast.testing.simulator.simulate import Faults, SimulationFailed

SEEDS = int(os.environ.get("STANDFAST_SIM_SEEDS", "320"))
SLICES = 4


@pytest.mark.clause("C15", backend="runs")
@pytest.mark.parametrize("part", range(SLICES))
def test_whatever_a_tool_did_is_seen_by_the_next_model_once(part: int) -> None:
    report = simulate_overlaps(range(part * SEEDS // SLICES, (part + 1) * SEEDS // SLICES))
    if SEEDS >= 200:
        for what in ("effects", "crashes", "messages answered", "messages paused", "messages refused"):
            assert report.happened[what], what


def test_a_seed_replays_exactly() -> None:
    assert simulate_overlaps(range(8)).digests == simulate_overlaps(range(8)).digests
    assert any("model is asked" in line for line in replay_overlap(0))


def test_it_can_be_asked_for_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["3", "--overlap"]) == 0
    assert capsys.readouterr().out.startswith("3 seeds")


# --- teeth -----------------------------------------------------------------------------------------------------------


async def _nothing(*given: Any, **named: Any) -> None:
    return None


def test_a_run_that_steps_over_others_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standfast._src.runs.loop.start, "look_for_unfinished", _nothing)
    with pytest.raises(SimulationFailed, match="has run, and"):
        simulate_overlaps(range(40))


def test_a_paused_run_that_is_not_shown_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standfast._src.runs.persistence.unfinished_runs, "open_turn", lambda *given: [])
    with pytest.raises(SimulationFailed, match="has run, and"):
        simulate_overlaps(range(80), faults=Faults(crash=0.0, freeze=0.0, store=0.0, model=0.0))
