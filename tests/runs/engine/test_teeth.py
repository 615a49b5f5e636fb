"""The properties can fail: each of these wrong engines is caught by them, on one fixed set of scripts and schedules."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from runs.engine.schedule import Action, Engine, Play, Saves
from runs.engine.schedule_world import Script, ScriptCall, ScriptTurn

from standfast._src.base.errors import StandfastError
from tests.mistakes.planting import wrong_module
from tests.mistakes.registry import Mistake, proving
from tests.runs.engine import strategies as some
from tests.runs.engine.properties import check


@cache
def corpus() -> list[tuple[Script, list[Action], Saves]]:
    """The same for every mutant and on every machine, so that a mutant that dies once dies always."""
    told: list[tuple[Script, list[Action], Saves]] = list(stopped_after_a_crash())

    @settings(
        deadline=None,
        max_examples=1_000,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(some.scripts(), some.anything, some.saves)
    def collect(script: Script, schedule: list[Action], saves: Saves) -> None:
        told.append((script, schedule, saves))

    collect()
    return told


def stopped_after_a_crash() -> Iterator[tuple[Script, list[Action], Saves]]:
    """What chance seldom tells: a crash cuts a call off and the run is stopped soon after, or a hook fails anywhere."""
    for doubt, pause, stop in product(("rerun", "ask", "ask_reject", "report"), range(6), ("immediate", "failed")):
        script = Script(turns=(ScriptTurn((ScriptCall(doubt=doubt), ScriptCall(name="look"))),))
        yield script, [("hunt", 1), *[("calm", 0)] * pause, (stop, 0)], "every"
    for owner, pause in product(("replay", "session", "conversation", "chain"), range(12)):
        yield Script(owner, turns=(ScriptTurn((ScriptCall(),)),)), [*[("calm", 0)] * pause, ("observed", 0)], "every"


@cache
def calm(number: int) -> Play:
    """What the engine itself makes of a script when nothing happens."""
    return Play(corpus()[number][0]).play(())


def tell_all(engine: Engine | None) -> None:
    for number, (script, schedule, saves) in enumerate(corpus()):
        check(script, schedule, saves, engine, lambda number=number: calm(number))


@pytest.mark.parametrize("mistake", proving("schedules"), ids=lambda mistake: mistake.id)
def test_a_wrong_engine_is_caught(mistake: Mistake):
    name = mistake.module.rpartition(".")[2]
    engine = Engine(**{name: getattr(wrong_module(mistake), name)})
    with pytest.raises((AssertionError, StandfastError)):
        tell_all(engine)


def test_the_engine_itself_is_not_caught():
    """On the same set, so that it is the mutation that kills."""
    tell_all(None)
