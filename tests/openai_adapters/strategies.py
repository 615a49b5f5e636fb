"""What each way of owning a conversation sends in each situation: the expectation, as data, and the docs table.

A scenario is the story told once: what is new in each request, and what the model says to it. From the story follows
what every strategy sends. A client-owned conversation (replay, a session) sends the whole story so far; a server-owned
one sends only what is new, with the id that stands for the rest. `python tests/openai_adapters/strategies.py` writes
the page; a test fails if it is out of date.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "what-is-sent.md"

CLIENT_OWNED = ("replay", "session")
STRATEGIES = (*CLIENT_OWNED, "conversation_id", "previous_response_id", "auto_previous_response_id")


@dataclass(frozen=True)
class Step:
    """One request that is taken: what is new in it, and the reply. `refused` requests before it carried the same."""

    new: tuple[str, ...]
    reply: tuple[str, ...]
    refused: int = 0


SCENARIOS: dict[str, tuple[Step, ...]] = {
    "first turn": (Step(("U(hi)",), ("A",)),),
    "follow-up": (Step(("U(hi)",), ("A",)), Step(("U(next)",), ("A",))),
    "tool turn": (Step(("U(hi)",), ("C1",)), Step(("O1",), ("A",))),
    "two calls at once": (Step(("U(hi)",), ("C1", "C2")), Step(("O1", "O2"), ("A",))),
    "reasoning before a call": (Step(("U(hi)",), ("R", "C1")), Step(("O1",), ("A",))),
    "handoff": (Step(("U(hi)",), ("C1",)), Step(("O1",), ("A",))),
    "retry of the first request": (Step(("U(hi)",), ("A",), refused=1),),
    "retry of a tool turn": (Step(("U(hi)",), ("C1",)), Step(("O1",), ("A",), refused=2)),
    "interruption and resume": (Step(("U(hi)",), ("C1", "C2")), Step(("O1", "O2"), ("A",))),
    "interruption, saved as text and resumed": (Step(("U(hi)",), ("C1", "C2")), Step(("O1", "O2"), ("A",))),
    "interruption, then a follow-up": (
        Step(("U(hi)",), ("C1", "C2")),
        Step(("O1", "O2"), ("A",)),
        Step(("U(next)",), ("A",)),
    ),
}


def expected(strategy: str, scenario: str) -> list[str]:
    """Every request of a scenario under a strategy, in the words of the table; refused ones too."""
    story: list[str] = []
    requests: list[str] = []
    for number, step in enumerate(SCENARIOS[scenario]):
        items = [*story, *step.new] if strategy in CLIENT_OWNED else list(step.new)
        line = " ".join([*items, *owner_marks(strategy, number)])
        requests += [line] * (step.refused + 1)
        story += [*step.new, *step.reply]
    return requests


def owner_marks(strategy: str, number: int) -> list[str]:
    """The id that goes with taken request number `number` (from 0)."""
    if strategy == "conversation_id":
        return ["[conv]"]
    if strategy == "previous_response_id" or (strategy == "auto_previous_response_id" and number > 0):
        return [f"[prev=r{number}]"]
    return []


def page() -> str:
    """The table of the documentation."""
    lines = [
        "# What is sent",
        "",
        "What the server receives, request by request, for every owner of a conversation. The tests assert each cell",
        "on the server's side, streaming and not, and that client and server agree at the end. (Written by",
        "`python tests/openai_adapters/strategies.py`.)",
        "",
        "`U` is a user message, `A` an answer, `R` reasoning, `C1` and `O1` a call and its output. `[conv]` is the",
        "conversation's id, `[prev=r1]` the id of the first response of this story (`r0` came before it). Requests are",
        "separated by `→`; a request that was refused (429) is repeated as it was.",
        "",
    ]
    for scenario in SCENARIOS:
        lines += [f"## {scenario.capitalize()}", "", "| owner | requests |", "|---|---|"]
        for strategy in STRATEGIES:
            cells = " → ".join(f"`{line}`" for line in expected(strategy, scenario))
            lines.append(f"| {strategy} | {cells} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
