"""Invariants at the end of a simulation, compared with a run of the same program without faults.

No fault may show, except if the outcome was unknowable: the output of a call with a lost outcome, or of a stopped one,
may differ, and with a model that reads outputs, so may the items after it.
"""

from __future__ import annotations

import json

from standfast._kits.testing.simulator.scripts import remove_salt
from standfast._kits.testing.simulator.text_lives import Journey, Outcome
from standfast._kits.testing.simulator.world import invalid
from standfast._src.base.json_values import Item
from standfast._src.items.texts_for_models import DEFAULT_TEXTS

LOST = (DEFAULT_TEXTS.outcome_unknown, DEFAULT_TEXTS.not_completed, DEFAULT_TEXTS.did_not_run)


def problems(life: Journey, calm: Journey, *, tells_on: bool = False) -> list[str]:
    """Return all broken promises. `tells_on`: the model answers the same regardless of outputs."""
    found = list(life.world.broken)
    found += _find_repeated_calls(life)
    if tells_on:
        strange = sorted(set(life.world.executed) - set(calm.world.executed))
        found += [f"call {name} ran, which never runs in the calm life" for name in strange]
    history = life.history()
    wrong = invalid(history)
    if wrong is not None:
        found.append(f"no provider would take the stored history: {wrong}")
    found += _compare_with_calm(life, calm, history, tells_on=tells_on)
    if life.wish.kind != "plain":
        found += _as_told(life)
    return found


def _find_repeated_calls(life: Journey) -> list[str]:
    if life.wish.kind != "saved":
        return []  # without a run store, a torn turn's tools may run again (C12)
    world = life.world
    return [
        f"call {name} ran {times} times and must not be repeated"
        for name, times in world.executed.items()
        if times > 1 and name not in world.repeatable and name.rpartition(":")[2] not in life.unknown
    ]


def _as_told(life: Journey) -> list[str]:
    """Compare the new items of each result with the session's items of the run (C3, C5)."""
    found = []
    for outcome in life.outcomes:
        written = life.written(outcome.run_id)
        own = written[len(written) - len(outcome.items) :] if outcome.items else []
        if outcome.error is None and own != outcome.items:
            found.append(f"{outcome.run_id} says it added {outcome.items} and the session holds {written}")
        if outcome.error is None and life.wish.kind == "saved" and outcome.tokens < outcome.tokens_told:
            found.append(f"{outcome.run_id} counts {outcome.tokens} tokens; its replies cost {outcome.tokens_told}")
    return found


def _compare_with_calm(life: Journey, calm: Journey, history: list[Item], *, tells_on: bool) -> list[str]:
    lost = {*life.unknown, *lost_calls(history)}
    ours, theirs = retold(history, lost), retold(calm.history(), lost)
    if tells_on:
        ours = _without_second_endings(life, ours)
    cut = _first_difference(ours, theirs)
    if cut is None:
        return _outcomes(life, calm) if not lost else []
    if lost and not tells_on and cut > _place_of_first(ours):
        return []  # a model that reads its tools' outputs may go on differently
    return [
        f"the history is not that of the calm run; item {cut}: {_item_at(ours, cut)} instead of {_item_at(theirs, cut)}"
    ]


def _without_second_endings(life: Journey, told: list[str]) -> list[str]:
    """Remove answers given only because the turn whose tool ends the run was cut short."""
    for outcome in life.outcomes:
        if _ended_twice(life, outcome):
            run = outcome.run_id.removeprefix("run-")
            told = [item for item in told if not (f'"answer {run}#' in item or f'"forbidden {run}#' in item)]
    return told


def _ended_twice(life: Journey, outcome: Outcome) -> bool:
    run = outcome.run_id.removeprefix("run-")
    calls = [item for item in life.history() if item.get("name") == "finish"]
    ends = any(str(item.get("call_id")).startswith(f"{run}#") for item in calls)
    return ends and outcome.troubled and "finished" not in str(outcome.output)


def _outcomes(life: Journey, calm: Journey) -> list[str]:
    found = []
    for ours, theirs in zip(life.outcomes, calm.outcomes, strict=True):
        if ours.torn or _ended_twice(life, ours):
            continue
        for name in ("error", "output", "agent"):
            mine, other = _read_field(ours, name), _read_field(theirs, name)
            if mine != other:
                found.append(f"{ours.run_id}: its {name} is {mine!r} instead of {other!r}")
    return found


def _read_field(outcome: Outcome, name: str) -> object:
    value = getattr(outcome, name)
    return remove_salt(value) if isinstance(value, str) else value


def lost_calls(history: list[Item]) -> set[str]:
    """Return the calls whose outcome is unknown in the history, or that were stopped."""
    return {remove_salt(item["call_id"]) for item in history if _is_lost(item.get("output"))}


def _is_lost(output: object) -> bool:
    # A nested run that fails is a tool that fails: its model's failure is told to the outer model.
    return output in LOST or (isinstance(output, str) and "the simulated provider" in output)


def retold(history: list[Item], lost: set[str]) -> list[str]:
    """Normalise items: remove the parts that may differ between two runs of a seed."""
    told = []
    for item in history:
        plain = dict(item)
        if plain.get("type") == "function_call_output" and remove_salt(str(plain.get("call_id"))) in lost:
            plain["output"] = "?"
        elif '"assistant"' in str(plain.get("output")):
            plain["output"] = "handed over"  # to whom depends on who had it, and so on handoffs that got lost
        told.append(remove_salt(json.dumps(plain, sort_keys=True, ensure_ascii=False)))
    return told


def _place_of_first(told: list[str]) -> int:
    return next((place for place, item in enumerate(told) if '"output": "?"' in item), len(told))


def _first_difference(ours: list[str], theirs: list[str]) -> int | None:
    for place in range(max(len(ours), len(theirs))):
        if _item_at(ours, place) != _item_at(theirs, place):
            return place
    return None


def _item_at(items: list[str], place: int) -> str:
    return items[place] if place < len(items) else "nothing"
