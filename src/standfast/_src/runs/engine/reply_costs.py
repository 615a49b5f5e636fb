"""Costs of a run's replies, kept with the conversation when their turn is stored."""

from __future__ import annotations

from typing import Any

from standfast._src.base.json_values import Item
from standfast._src.runs.engine.run import Response, Run

Costs = tuple[int, list[Item]]
"""Number of replies kept before, and the cost of each further one."""


def collect_unbilled_costs(run: Run) -> Costs | None:
    """Return the costs of replies not stored yet, or None. Looks only at those."""
    billed, responses = run.marks.billed, run.responses
    costs = costs_since(run, billed) if len(responses) > billed else []
    return (billed, costs) if costs else None


def costs_since(run: Run, start: int) -> list[Item]:
    """Return the costs of the replies from number `start` on, each with its turn."""
    turn, found = run.progress.turns, list[Item]()
    for response in reversed(run.responses.since(start)):
        found.append(_cost(response, max(turn, 1)))
        # Replies of a nested run come behind the one that asked for it, and belong to its turn.
        turn -= not response.hidden
    return found[::-1]


def _cost(response: Response, turn: int) -> Item:
    usage: dict[str, Any] = response.usage
    if len(usage.get("request_usage_entries") or ()) < 2:
        usage = {name: value for name, value in usage.items() if name != "request_usage_entries"}  # it says the same
    cost: Item = {"turn": turn, "usage": usage}
    if response.model is not None:
        cost["model"] = response.model
    if response.agent is not None:
        cost["agent"] = response.agent
    if response.hidden:
        cost["nested"] = True
    return cost
