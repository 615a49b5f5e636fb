"""Scripts and schedules for Hypothesis."""

from __future__ import annotations

import os
from dataclasses import replace

from hypothesis import settings, strategies as st
from runs.engine.schedule import Action
from runs.engine.schedule_world import Script, ScriptCall, ScriptTurn

EXPLORED = int(os.environ.get("STANDFAST_EXPLORE", "1"))


def examples(count: int) -> settings:
    """So many examples; with STANDFAST_EXPLORE=N, N times as many."""
    return settings(max_examples=count * EXPLORED)


names = st.sampled_from(["pay", "look"])
approvals = st.sampled_from(["no", "no", "no", "approve", "reject", "sticky", "sticky_reject"])
doubts = st.sampled_from(["rerun", "ask", "ask_reject", "report"])


@st.composite
def calls_of_a_turn(draw: st.DrawFn, depth: int) -> tuple[ScriptCall, ...]:
    """Up to four calls; at most one handoff, the ones after it are ignored."""
    calls: list[ScriptCall] = []
    handed_off = False
    kinds = ["tool", "tool", "tool", "handoff", "unknown", "hosted", *(["agent", "agent"] if depth else [])]
    for _ in range(draw(st.sampled_from([1, 2, 3, 0, 4, 2]))):
        kind = draw(st.sampled_from(kinds))
        if kind == "handoff":
            calls.append(ScriptCall("ignored" if handed_off else "handoff", "transfer", based=draw(st.booleans())))
            handed_off = True
        elif kind == "agent":
            child = replace(draw(scripts(depth - 1, owners=("replay", "session"))), max_turns=None)
            calls.append(ScriptCall("agent", "helper", draw(approvals), child=replace(child, staged=())))
        elif kind == "hosted":
            calls.append(ScriptCall("hosted", "remote", draw(st.sampled_from(["approve", "reject"]))))
        else:
            calls.append(ScriptCall(kind, draw(names), draw(approvals), draw(doubts)))
    return tuple(calls)


@st.composite
def turns(draw: st.DrawFn, depth: int) -> ScriptTurn:
    calls = draw(calls_of_a_turn(depth))
    hands_off = any(call.kind == "handoff" for call in calls)
    return ScriptTurn(
        calls,
        reasoning=draw(st.booleans()),
        final=bool(calls) and not hands_off and draw(st.integers(0, 3)) == 0,
        named=draw(st.integers(0, 3)) > 0,
        left_out=draw(st.lists(st.integers(0, 3), max_size=2).map(tuple)),
    )


@st.composite
def scripts(
    draw: st.DrawFn, depth: int = 1, owners: tuple[str, ...] = ("session", "session", "replay", "conversation", "chain")
) -> Script:
    """Any run."""
    owner = draw(st.sampled_from(owners))
    # What a server has taken cannot be taken back, so its guardrails all come first (D10).
    beside = [] if owner == "conversation" else ["parallel", "both"]
    guards = draw(st.sampled_from(["none", "blocking", *beside]))
    trips = ["no", "no", "no", "no", *{"none": [], "both": ["blocking", "parallel"]}.get(guards, [guards])]
    return Script(
        owner=owner,
        input=draw(st.sampled_from([("yes",), ("yes", "yes"), ("hi",)])),
        history=draw(st.sampled_from([(), ("yes",), ("before", "yes")])) if owner == "session" else (),
        guards=guards,
        trips=draw(st.sampled_from(trips)),
        turns=tuple(
            draw(turns(depth)) for _ in range(draw(st.sampled_from([1, 0, 2, 3, 2] if depth else [1, 0, 1, 2])))
        ),
        output_trips=(output_trips := draw(st.integers(0, 3)) == 0),
        output_guards=output_trips or draw(st.booleans()),
        max_turns=draw(st.sampled_from([None, None, None, None, None, 0, 1, 2])),
        handler=draw(st.booleans()),
        staged=draw(st.sampled_from([(), (), ("and yes",), ("yes", "yes")])),
        staged_trips=draw(st.integers(0, 3)) == 0,
    )


def schedules(*stops: str) -> st.SearchStrategy[list[Action]]:
    """Long enough to reach the middle of a run, with crashes and with up to two stops somewhere in it."""
    kinds = ["calm", *["start"] * 8, *["go"] * 8, "fail", "crash", "strike", "strike", "hunt"]
    steps = st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 3)), min_size=20, max_size=70)
    breaks = st.lists(st.tuples(st.integers(0, 40), st.sampled_from(stops)), max_size=2)
    aftermath = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4), st.sampled_from(stops)), max_size=1)
    return st.builds(_with_stops, steps, breaks, aftermath)


def _with_stops(
    steps: list[Action], stops: list[tuple[int, str]], aftermath: list[tuple[int, int, str]]
) -> list[Action]:
    """Stops anywhere, and perhaps one soon after a crash that hurt."""
    for place, kind in stops:
        steps = [*steps[:place], (kind, 0), *steps[place:]]
    for place, pause, kind in aftermath:
        steps = [*steps[:place], ("hunt", place), *[("calm", 0)] * pause, (kind, 0), *steps[place:]]
    return steps


gentle = schedules("after_turn")
"""Any order, effects that fail, crashes, and ends after a turn from which somebody resumes: still the calm history."""
anything = schedules("after_turn", "immediate", "failed", "observed", "other", "immediate", "abandoned")
"""Everything that can happen."""
saves = st.sampled_from(["every", "lazy"])
