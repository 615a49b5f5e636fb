"""Deterministic simulation of a program by seed: agents on faulty stores, models and tools, in processes that crash.

One seed decides everything outside the program's own code: behaviour and times of model and tools, refusals and late
answers of a store, the order of events, the places of crashes and cancellations, and the way a person continues from
there. Each simulation is compared with one without faults: nothing lost, nothing doubled, no call repeated that must
not be, outputs in call order, and a history that a provider accepts. A failure names its seed, and the seed replays it
exactly.

    python -m standfast.testing.simulator 1000            # a thousand lives of generated agents
    python -m standfast.testing.simulator --seed 17       # one of them, with everything that happened
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from standfast._kits.testing.simulator.checks import problems
from standfast._kits.testing.simulator.parts import CannotSimulate
from standfast._kits.testing.simulator.scripts import conversation, decide as decide_generated
from standfast._kits.testing.simulator.text_lives import Journey, Kind, Wish
from standfast._kits.testing.simulator.world import Faults
from standfast._src.base.errors import CallerError, StandfastError

__all__ = ["Faults", "Report", "SimulationFailed", "replay", "simulate", "simulate_generated"]


class SimulationFailed(StandfastError):
    """A promise was broken under this `seed`; `problems` lists them, `trace` the events before."""

    __module__ = "standfast.testing.simulator.simulate"  # in a traceback, the path that it is imported from

    def __init__(self, seed: int, problems: Sequence[str], trace: Sequence[str]) -> None:
        said = "\n  ".join(problems)
        super().__init__(f"seed {seed} broke a promise:\n  {said}", f"Replay it with seeds=[{seed}].")
        self.seed, self.problems, self.trace = seed, list(problems), list(trace)


@dataclass
class Report:
    """Summary of the simulations."""

    seeds: int = 0
    runs: int = 0
    happened: Counter[str] = field(default_factory=Counter)
    """Number of faults by kind."""
    digests: dict[int, str] = field(default_factory=dict)
    """Digest of all events by seed: equal in a replay."""

    def __str__(self) -> str:
        trouble = ", ".join(f"{count} {what}" for what, count in sorted(self.happened.items())) or "no trouble"
        return f"{self.seeds} seeds, {self.runs} runs: {trouble}; every history as in the calm run"


def simulate(
    agent_factory: Callable[[], Any],
    inputs: Sequence[Any],
    *,
    seeds: Iterable[int] = range(100),
    faults: Faults | None = None,
    decide: Callable[[Any], None] | None = None,
    kind: Kind = "saved",
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Run a conversation with an agent once for each seed.

    Raises SimulationFailed at the first broken promise. `agent_factory` builds the agent for every process; its models
    must answer from the request alone (`AnsweringModel`). `decide` gets the `RunState` of a paused run and decides
    about its interruptions. `kind` is the storage of the conversation; `options` go to `Runner.run` (context,
    max_turns, hooks, …).
    """
    wish = Wish(lambda world: agent_factory(), list(inputs), decide, dict(options or {}), kind)
    report = Report()
    with alone():
        for seed in seeds:
            _run_seed(report, seed, wish, faults or Faults(), tells_on=False)
    return report


def simulate_generated(seeds: Iterable[int], *, faults: Faults | None = None) -> Report:
    """The same with conversations and agents that are made from each seed too."""
    report = Report()
    with alone():
        for seed in seeds:
            made = conversation(seed)
            wish = Wish(made.factory, [plan.input for plan in made.plans], decide_generated, kind=_kind(seed))
            _run_seed(report, seed, wish, faults or Faults(), tells_on=True)
    return report


def replay(seed: int, *, faults: Faults | None = None) -> list[str]:
    """Return all events of a generated seed, one line each."""
    made = conversation(seed)
    wish = Wish(made.factory, [plan.input for plan in made.plans], decide_generated, kind=_kind(seed))
    with alone():
        life, _ = _life(seed, wish, faults or Faults())
    return life.world.trace


def _kind(seed: int) -> Kind:
    kinds: tuple[Kind, ...] = ("saved", "saved", "saved", "adopted", "saved", "saved", "plain")
    return kinds[seed % len(kinds)]


def _life(seed: int, wish: Wish, faults: Faults) -> tuple[Journey, Journey]:
    # An unretrieved exception is noticed when collected: at the end of its own life, never in the middle of another.
    gc.disable()
    try:
        calm = _travel(Journey(seed, wish, None), "even in the calm run, ")
        gc.collect()
        life = Journey(seed, wish, faults)
        _travel(life, "", steps_hint=calm.steps)
        gc.collect()
    finally:
        gc.enable()
    return life, calm


def _travel(life: Journey, when: str, *, steps_hint: int = 0) -> Journey:
    try:
        return life.travel(steps_hint=steps_hint)
    except CannotSimulate:
        raise
    except Exception as error:
        told = [*life.world.broken, f"{when}{type(error).__name__}: {error}"]
        raise SimulationFailed(life.world.seed, told, life.world.trace) from error


def _run_seed(report: Report, seed: int, wish: Wish, faults: Faults, *, tells_on: bool) -> None:
    life, calm = _life(seed, wish, faults)
    broken = problems(life, calm, tells_on=tells_on)
    if broken:
        raise SimulationFailed(seed, broken, life.world.trace)
    report.seeds += 1
    report.runs += len(life.outcomes)
    report.happened += life.world.happened
    report.digests[seed] = life.world.digest


@contextmanager
def alone() -> Iterator[None]:
    """Check that no event loop runs here, and silence the expected log messages of a simulation."""
    if asyncio._get_running_loop() is not None:
        raise CallerError("a simulation was started where an event loop is running", "Call it from a plain function.")
    logger = logging.getLogger("standfast")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    gc.collect()
    was_frozen = gc.get_freeze_count() > 0  # by the caller, when the program was smaller
    # Collecting after each life then costs what that life has left, not what the program is made of: in a process that
    # had run thousands of tests since it froze its modules, forty lives took minutes and not seconds.
    gc.freeze()
    try:
        yield
    finally:
        if not was_frozen:  # else it stays as the caller wanted it
            gc.unfreeze()
        logger.setLevel(level)
