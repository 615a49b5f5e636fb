"""Whole voice calls by seed: drops, crashes, failing stores and interruptions, and what must hold after all of it."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import function_tool
from standfast._kits.testing.simulator.world import Faults
from standfast._src.realtime.machine import advance
from standfast._src.realtime.session.call_store import CallStore
from standfast.realtime import RealtimeAgent
from standfast.testing.loopback import Asked, call
from standfast.testing.simulator.simulate import SimulationFailed
from standfast.testing.simulator.voice import Act, simulate_call, simulate_generated_calls


def test_generated_calls_hold():
    report = simulate_generated_calls(range(30))
    assert report.seeds == 30
    for trouble in ("crashes", "dropped lines", "refused connections", "store faults"):
        assert report.happened[trouble], f"{trouble} did not happen: nothing was tried"


def test_a_seed_replays_exactly():
    once, again = (simulate_generated_calls([4, 11]).digests for _ in range(2))
    assert once == again


def test_an_agent_of_ones_own_can_be_simulated():
    @function_tool(needs_approval=True)
    def book(seats: int) -> str:
        """Book a table."""
        return f"table for {seats}"

    def model(asked: Asked) -> Any:
        calls = [item for item in asked.context if item.get("type") == "function_call"]
        wants = any("table" in str(item.get("content")) for item in asked.context if item.get("role") == "user")
        return call("book", {"seats": 2}) if wants and not calls else "Very well"

    asked_about = []

    def decide(waiting: Any) -> bool:
        asked_about.append(waiting.tool.name)
        return True

    acts = ["good evening", Act("wait"), "a table for two", Act("wait"), Act("type", "thank you")]
    report = simulate_call(lambda: RealtimeAgent(name="Desk", tools=[book]), acts, model, seeds=range(8), decide=decide)
    assert report.seeds == 8
    assert set(asked_about) == {"book"}


def test_a_calm_world_has_no_trouble():
    quiet = Faults(store=0, model=0, line=0, crash=0, freeze=0, cancel=0)
    assert not simulate_generated_calls(range(3), faults=quiet).happened


def test_a_worker_that_runs_again_what_another_had_begun_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """The simulator has teeth: what was begun in a process that died may have been done (E13)."""
    claimed = advance.apply_claimed

    def careless(talk: Any, stored: int, shown: Any) -> Any:
        made = claimed(talk, stored, shown)
        calls = [
            advance.evolve(one, call=advance.evolve(one.call, state="asked", reason=None))
            if one.call.state == "doubt"
            else one
            for one in made.calls
        ]
        return advance.evolve(made, calls=tuple(calls))

    monkeypatch.setattr(advance, "apply_claimed", careless)
    with pytest.raises(SimulationFailed, match="ran 2 times"):
        simulate_generated_calls(range(40), faults=Faults(crash=1.0))


def test_a_reply_that_was_lost_and_is_not_asked_for_again_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """The simulator has teeth: a line that drops while the caller waits for an answer must not leave them waiting."""
    lost = advance.apply_lost

    def forgetful(talk: Any, *more: Any) -> Any:
        return advance.evolve(lost(talk, *more), asks=())

    monkeypatch.setattr(advance, "apply_lost", forgetful)
    with pytest.raises(SimulationFailed, match="never answered"):
        simulate_generated_calls(range(20), faults=Faults(crash=0, store=0, line=0.5, trouble_max=20))


def test_a_call_that_only_says_it_was_saved_is_found_out(monkeypatch: pytest.MonkeyPatch):
    """The simulator has teeth: acknowledged words that no store has are missed after a crash."""

    async def pretend(self: CallStore, talk: Any) -> None:
        pass

    monkeypatch.setattr(CallStore, "save", pretend)
    with pytest.raises(SimulationFailed):
        simulate_generated_calls(range(60))
