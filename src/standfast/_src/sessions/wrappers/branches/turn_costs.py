"""Costs of a conversation's turns: the costs kept by runs (B15), assigned to turns.

A run's items name it as their writer, so the turn is known by their place. A cost handed in without a run is kept under
the first record of the turn, and is removed with the turn. Costs kept by the OpenAI Agents SDK are added to the list.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from standfast._src.base.json_values import decode_value, encode_value
from standfast._src.items.usage import Usage
from standfast._src.sessions.rules.history import USAGE, commit, ignore_fault, items_of, look, usage_cell
from standfast._src.sessions.rules.inspection import cost_in, usage_in
from standfast._src.sessions.storage import KeyUpdate, Name, Plan, ReadAnswer, ReadRequest, Rows
from standfast._src.sessions.wrappers.branches.branch_rules import SDK_USAGE
from standfast._src.sessions.wrappers.branches.turns import turn_numbers

OF_TURN = "turn "
"""Begins what costs are kept under that came without a run: the ref of the turn's first record follows."""


@dataclass(frozen=True)
class TurnCost:
    """Cost of one turn. `turn` is None for a cost of a removed turn."""

    turn: int | None
    usage: Usage

    def to_sdk_dict(self) -> dict[str, Any]:
        """Return the cost in the SDK's form."""
        kept = self.usage.to_json()
        names = ("requests", "input_tokens", "output_tokens", "total_tokens", "input_tokens_details")
        return {name: kept[name] for name in (*names, "output_tokens_details")}


def keep(name: Name, usage: Usage, run_id: str | None) -> Plan[None]:
    """Store a cost for the last turn of a history, unless its run has kept it itself."""
    sight = yield from look(ReadRequest(name, prefixes=(USAGE,), rows=(Rows(),), mark=False))
    if run_id is not None and any(one.run_id == run_id for one in usage_in(sight)):
        return
    numbers = _turns(sight)
    if not numbers:
        return  # there is no turn that it could be for
    first = min(ref for ref, turn in numbers.items() if turn == max(numbers.values()))
    request = {"turn": 1, "usage": Usage.from_provider(usage).to_json()}
    cell = usage_cell(0, f"{OF_TURN}{first}" + ("" if run_id is None else f" {run_id}"))
    yield from commit([KeyUpdate(name, put={cell: encode_value([sight.now, [request]])})])


def of_turns(conversation: Name, name: Name, branch: str) -> Plan[list[TurnCost]]:
    """Return the cost of each turn of a branch, in order; a cost without a turn is last."""
    sight = yield from look(ReadRequest(name, prefixes=(USAGE,), rows=(Rows(),), mark=False))
    beside = yield from look(ReadRequest(conversation, prefixes=(SDK_USAGE,), mark=False))
    numbers = _turns(sight)
    ends: dict[str, int] = {}  # the turn that each writer wrote to last
    for row in sight.rows[0]:
        if row.tag is not None and row.ref in numbers:
            ends[row.tag.writer] = numbers[row.ref]
    found: dict[int | None, Usage] = {}
    for run in usage_in(sight):
        turn = numbers.get(_first(run.run_id)) if run.run_id.startswith(OF_TURN) else ends.get(run.run_id)
        found.setdefault(turn, Usage()).add(run.total)
    for cell, kept in beside.cells.items():
        number, _, of = cell[len(SDK_USAGE) :].partition("/")
        if of == branch and int(number) in numbers.values():
            found.setdefault(int(number), Usage()).add(_sdk_usage(kept.value))
    last = max((turn for turn in found if turn is not None), default=0) + 1
    ordered = sorted(found.items(), key=lambda one: last if one[0] is None else one[0])
    return [TurnCost(turn, usage) for turn, usage in ordered]


def total(costs: Sequence[TurnCost]) -> dict[str, int] | None:
    """Return the sum of costs in the SDK's form; None if there are none."""
    if not costs:
        return None
    spent = Usage()
    for cost in costs:
        spent.add(cost.usage)
    return {
        "requests": spent.requests,
        "input_tokens": spent.input_tokens,
        "output_tokens": spent.output_tokens,
        "total_tokens": spent.total_tokens,
        "total_turns": sum(cost.turn is not None for cost in costs),
    }


def _turns(sight: ReadAnswer) -> dict[int, int]:
    """Return the turn of each item record, by its ref."""
    found = items_of(sight.rows[0], ignore_fault)
    return dict(zip([row.ref for row, _ in found], turn_numbers(item for _, item in found), strict=True))


def _first(kept_under: str) -> int:
    return int(kept_under.removeprefix(OF_TURN).split(" ")[0])


def _sdk_usage(value: bytes) -> Usage:
    return cost_in({"turn": 0, "usage": decode_value(value)}).usage
