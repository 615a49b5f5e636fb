"""What the replies of a run cost, as it is kept with the conversation when their turn is stored."""

from __future__ import annotations

from typing import Any

from standfast._src.base.json_values import Item
from standfast._src.runs.engine.run import Response, Run

Costs = tuple[int, list[Item]]
"""How many replies were kept before, and what each of the further ones cost."""


def collect_unbilled_costs(run: Run) -> Costs | None:
    """What the replies cost that are not kept yet; None if there are none. Looks only at those."""
    billed, responses = run.marks.billed, run.responses
    costs = costs_since(run, billed) if len(responses) > billed else []
    return (billed, costs) if costs else None


def costs_since(run: Run, start: int) -> list[Item]:
    """What each reply from number `start` on cost, with the turn it was for."""
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
