"""What each way of owning a conversation sends in each situation: the expectation, as data, and the page of the docs.

A story is told once: what is new in each request, and what the model says to it. From it follows what every strategy
sends. A client-owned conversation (replay, a session) sends the whole story so far; a server-owned one sends only what
is new, with the id that stands for the rest. `python tests/runs/owners/stories.py` writes the page; a test fails if
it is out of date.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "what-is-sent.md"

CLIENT_OWNED = ("replay", "session")
CONVERSATION = "conversation_id"
GIVEN, AUTOMATIC = "previous_response_id", "auto_previous_response_id"
BOTH = f"{GIVEN} + auto"
CHAINS = (GIVEN, AUTOMATIC, BOTH)
STRATEGIES = (*CLIENT_OWNED, CONVERSATION, *CHAINS)


@dataclass(frozen=True)
class Step:
    """One request that is taken: what is new in it, and the reply. `refused` requests before it carried the same."""

    new: tuple[str, ...]
    reply: tuple[str, ...]
    refused: int = 0


def step(new: str, reply: str, *, refused: int = 0) -> Step:
    return Step(tuple(new.split()), tuple(reply.split()), refused)


STORIES: dict[str, tuple[Step, ...]] = {
    "first turn": (step("U(hi)", "A"),),
    "follow-up": (step("U(hi)", "A"), step("U(next)", "A")),
    "two equal messages": (step("U(hi)", "A"), step("U(hi)", "A")),
    "tool turn": (step("U(hi)", "C1"), step("O1", "A")),
    "tool turn, then a follow-up": (step("U(hi)", "C1"), step("O1", "A"), step("U(next)", "A")),
    "three tool turns": (step("U(hi)", "C1"), step("O1", "C2"), step("O2", "C3"), step("O3", "A")),
    "two calls at once": (step("U(hi)", "C1 C2"), step("O1 O2", "A")),
    "reasoning before a call": (step("U(hi)", "R C1"), step("O1", "A")),
    "handoff": (step("U(hi)", "C1"), step("O1", "A")),
    "handoff, then a follow-up": (step("U(hi)", "C1"), step("O1", "A"), step("U(next)", "A")),
    "retry of the first request": (step("U(hi)", "A", refused=1),),
    "retry of a tool turn": (step("U(hi)", "C1"), step("O1", "A", refused=2)),
    "interruption and resume": (step("U(hi)", "C1 C2"), step("O1 O2", "A")),
    "interruption, saved as text and resumed": (step("U(hi)", "C1 C2"), step("O1 O2", "A")),
    "interruption, rejected": (step("U(hi)", "C1 C2"), step("O1 O2", "A")),
    "interruption, resumed with more input": (step("U(hi)", "C1 C2"), step("O1 O2 U(more)", "A")),
    "interruption, then a follow-up": (step("U(hi)", "C1 C2"), step("O1 O2", "A"), step("U(next)", "A")),
}


def whole(story: str) -> list[str]:
    """Everything that is said in a story, in order: what every owner has at its end."""
    return [word for each in STORIES[story] for word in (*each.new, *each.reply)]


def expected(strategy: str, story: str) -> list[str]:
    """Every request of a story under a strategy, in the words of the table; refused ones too."""
    so_far: list[str] = []
    requests: list[str] = []
    for number, each in enumerate(STORIES[story]):
        items = [*so_far, *each.new] if strategy in CLIENT_OWNED else list(each.new)
        line = " ".join([*items, *owner_marks(strategy, number)])
        requests += [line] * (each.refused + 1)
        so_far += [*each.new, *each.reply]
    return requests


def owner_marks(strategy: str, number: int) -> list[str]:
    """The id that goes with taken request number `number` (from 0)."""
    if strategy == CONVERSATION:
        return ["[conv]"]
    if strategy in (GIVEN, BOTH) or (strategy == AUTOMATIC and number > 0):
        return [f"[prev=r{number}]"]
    return []


def page() -> str:
    """The table of the documentation."""
    lines = [
        "# What is sent",
        "",
        "What the server receives, request by request, for every owner of a conversation. The tests assert each cell",
        "on the server's side, streaming and not, and that client and server agree at the end. (Written by",
        "`python tests/runs/owners/stories.py`.)",
        "",
        "`U` is a user message, `A` an answer, `R` reasoning, `C1` and `O1` a call and its output. `[conv]` is the",
        "conversation's id, `[prev=r1]` the id of the first response of this story (`r0` came before it). Requests are",
        "separated by `→`; a request that was refused (429) is repeated as it was.",
        "",
    ]
    for story in STORIES:
        lines += [f"## {story.capitalize()}", "", "| owner | requests |", "|---|---|"]
        for strategy in STRATEGIES:
            cells = " → ".join(f"`{line}`" for line in expected(strategy, story))
            lines.append(f"| {strategy} | {cells} |")
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE.name}\n")
