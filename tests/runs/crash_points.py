"""Kill the real driver at a chosen point: before and after every effect it performs and every event it is told.

A point is where one thing is over and the next has not begun. What the process did up to it reached the world; what
its code still tries afterwards (to close the turn, to give back a lease) reaches nothing. What follows is a new process
that knows only what was saved.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from hypothesis import strategies as st

import standfast._src.runs.loop.loop as drive
import standfast._src.runs.loop.run_attempt as run_attempt
from standfast._kits.testing.simulator.checks import problems
from standfast._kits.testing.simulator.loop import VirtualLoop
from standfast._kits.testing.simulator.scripts import Plan, PlannedTurn, conversation_of, decide, remove_salt
from standfast._kits.testing.simulator.text_lives import Journey, Kind, Wish
from standfast._kits.testing.simulator.world import Died, Faults, invalid
from standfast._src.runs.engine.events import Appended, Returned
from tests.helpers.model_texts import UNKNOWN_OUTCOME

PAUSING = ("book", "check", "help")
"""Tools that may let a run wait for a person; its input is then stored alone."""

QUIET = Faults(store=0, model=0, crash=0, freeze=0, cancel=0)
"""Nothing goes wrong by chance; only order, delays and the ways to go on are the seed's."""


@dataclass
class Story:
    """A conversation, and where its processes are killed: the first at point `kills[0]`, the next at `kills[1]`, …"""

    plans: tuple[Plan, ...]
    kills: tuple[int, ...] = ()
    guarded: bool = False
    filtered: bool = False
    kind: Kind = "saved"
    seed: int = 0

    def wish(self) -> Wish:
        factory = conversation_of(list(self.plans), guarded=self.guarded, filtered=self.filtered)
        return Wish(factory, [plan.input for plan in self.plans], decide, kind=self.kind)


class Life(Journey):
    """A journey that knows of which runs the input may be stored alone: they trip, or may wait for a person."""

    may_be_alone: tuple[bool, ...] = ()


class Points:
    """Counts the points of one process after another, and kills each where it was told to."""

    def __init__(self, journey: Life, kills: tuple[int, ...]) -> None:
        self._journey, self._kills = journey, list(kills)
        self._process: Any = None
        self.names: list[str] = []
        self.killed: list[str] = []
        self.returned: set[str] = set()
        """Calls whose outputs were told, and so are saved."""
        self.with_the_turn: set[str] = set()
        """Calls whose outputs will be saved with their turn."""
        self.problems: list[str] = []

    def here(self, name: str) -> None:
        """This is a point; the process may end here."""
        if self._journey.process is not self._process:
            self._process, self.names = self._journey.process, []
            self.with_the_turn = set()  # the process that had them is gone: a turn stored now is not theirs
        if not self._process.alive:
            raise Died
        self.names.append(name)
        if self._kills and len(self.names) > self._kills[0]:
            self._kills.pop(0)
            self.killed.append(name)
            self._look(name)
            self._process.alive = False
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.crash_at = loop.step_count
            raise Died

    def _look(self, name: str) -> None:
        """What stands in the session the moment somebody is killed: whole turns, and no input without one (C3)."""
        history, given = self._journey.history(), self._journey.wish.inputs[self._journey.at]
        wrong = invalid(history)
        if wrong is not None:
            self.problems.append(f"killed {name}, the session holds a torn turn: {wrong}")
        alone = bool(history) and history[-1].get("content") == given
        if alone and not self._journey.may_be_alone[self._journey.at]:
            self.problems.append(f"killed {name}, the session holds an input without its turn")


@contextlib.contextmanager
def pointed(points: Points) -> Iterator[None]:
    """Let the driver pass these points."""
    record, done = drive.Loop.record, run_attempt.perform

    async def recorded(self: Any, event: Any, **named: Any) -> None:
        points.here(f"before {type(event).__name__}")
        await record(self, event, **named)
        if isinstance(event, Returned) and event.entries[0].item.get("output") != UNKNOWN_OUTCOME:
            # The output that completes a turn is stored with the turn, which is the very next step.
            told = points.with_the_turn if self._is_stored_next(event) else points.returned
            told.add(remove_salt(event.call_id))
        elif isinstance(event, Appended):
            points.returned |= points.with_the_turn
            points.with_the_turn = set()
        points.here(f"after {type(event).__name__}")

    async def performed(live: Any, driver: Any, effect: Any) -> None:
        points.here(f"before {effect.key}")
        await done(live, driver, effect)
        points.here(f"after {effect.key}")

    drive.Loop.record, run_attempt.perform = recorded, performed  # type: ignore[method-assign]
    try:
        yield
    finally:
        drive.Loop.record, run_attempt.perform = record, done  # type: ignore[method-assign]


@dataclass
class Telling:
    """How a story went."""

    problems: list[str]
    points: list[str]
    killed: list[str] = field(default_factory=list)


def tell(story: Story, calm: Journey | None = None) -> Telling:
    """Tell the story, kills and all, and compare it with the calm telling."""
    calm = calm_telling(story) if calm is None else calm
    life = Life(story.seed, story.wish(), QUIET)
    pauses = [any(name in turn.calls for turn in plan.turns for name in PAUSING) for plan in story.plans]
    trips = ["trips" in plan.input or plan.answer == "forbidden" for plan in story.plans]
    life.may_be_alone = tuple(map(any, zip(pauses, trips, strict=True)))
    points = Points(life, story.kills)
    with pointed(points):
        life.travel(steps_hint=calm.steps)
    found = [*points.problems, *problems(life, calm, tells_on=True)]
    if story.kind == "saved":
        lost = {remove_salt(item["call_id"]) for item in life.history() if item.get("output") == UNKNOWN_OUTCOME}
        found += [f"{call_id} had returned, and was said to be unknown" for call_id in sorted(lost & points.returned)]
    elif len(points.killed) == 1 and not any(pauses):  # a run that waits, and is then run again, tears its turn itself
        torn = {name.rpartition(".")[0] for name, times in life.world.executed.items() if times > 1}
        torn = {name.partition(":")[2] for name in torn if "/" not in name}
        if len(torn) > 1:
            found.append(f"one kill made the tools of turns {sorted(torn)} run again")
    return Telling(found, points.names, points.killed)


def calm_telling(story: Story) -> Journey:
    """The story without kills."""
    return Journey(story.seed, story.wish(), None).travel()


@cache
def point_count(plans: tuple[Plan, ...], guarded: bool, filtered: bool, kind: Kind) -> int:
    """How many points a story has in which nobody is killed."""
    return len(tell(Story(plans, (), guarded, filtered, kind)).points)


# --- stories ---------------------------------------------------------------------------------------------------------

tools = st.sampled_from(["pay", "note", "look", "check", "fails", "book", "help", "late"])


@st.composite
def turns(draw: st.DrawFn) -> PlannedTurn:
    calls = draw(st.lists(tools, min_size=1, max_size=4))
    if draw(st.integers(0, 4)) == 0:
        calls.insert(draw(st.integers(0, len(calls))), "transfer")
    return PlannedTurn(tuple(calls), thinks=draw(st.booleans()))


@st.composite
def plans(draw: st.DrawFn) -> tuple[tuple[Plan, ...], bool]:
    guarded = draw(st.booleans())
    made = []
    for number in range(draw(st.integers(1, 2))):
        trip = draw(st.sampled_from(["", "", "", " trips-gate", " trips-watch"])) if guarded else ""
        answer = draw(st.sampled_from(["answer", "answer", "forbidden"])) if guarded else "answer"
        made.append(Plan(f"question {number}#0{trip}", tuple(draw(st.lists(turns(), max_size=3))), answer))
    return tuple(made), guarded


@st.composite
def stories(draw: st.DrawFn) -> Story:
    told, guarded = draw(plans())
    kills = tuple(draw(st.lists(st.integers(0, 60), min_size=1, max_size=4)))
    kind: Kind = draw(st.sampled_from(["saved", "saved", "saved", "adopted"]))
    return Story(told, kills, guarded, draw(st.booleans()), kind, draw(st.integers(0, 2**16)))


RICH = (
    Plan(
        "question 0#0",
        (
            PlannedTurn(("pay", "note", "check", "pay"), thinks=True),
            PlannedTurn(("look", "transfer", "pay")),
            PlannedTurn(("help", "pay")),
        ),
    ),
)
"""Parallel calls of every policy, a handoff beside calls, a nested run."""

WITH_APPROVAL = (Plan("question 0#0", (PlannedTurn(("pay", "book", "note")), PlannedTurn(("pay",)))),)
GUARDED = (
    Plan("question 0#0", (PlannedTurn(("pay", "note")), PlannedTurn(("pay",)))),
    Plan("question 1#0 trips-watch", (PlannedTurn(("pay",)),)),
    Plan("question 2#0", (PlannedTurn(("note",)),), "forbidden"),
)
