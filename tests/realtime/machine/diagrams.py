"""The diagrams of states in the docs, drawn from the code: `python tests/realtime/machine/diagrams.py` writes them.

The states of a session are a table that the session itself goes by. Those of a reply are derived, so their ways are
found by living generated calls and noting what happened between two of them.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from realtime.machine.reply_states import reply_state  # noqa: E402 — run as a script, it is found only now
from realtime.machine.world import World  # noqa: E402 — the same

from standfast._src.realtime.session.lifecycle import WAYS  # noqa: E402 — the same

PAGE = ROOT / "docs" / "explanation" / "a-call-is-data.md"
SEEDS = range(40)
SEEN_MIN = 3
"""A way that is seen less often is an accident of two things in one step."""

CAUSES = {
    "Typed": "somebody types",
    "typed": "somebody types",
    "final": "somebody types",
    "conversation.item.added": "somebody spoke",
    "sent reply": "response.create is sent",
    "response.created": "response.created",
    "response.done": "response.done",
    "interrupt": "interrupt()",
    "input_audio_buffer.speech_started": "the caller speaks",
    "judged": "a guardrail trips",
    "lost": "the connection is lost",
    "claimed": "another worker takes over",
    "settled": "another worker takes over",
    "Returned": "a tool returns",
    "error": "refused",
    "hung up": "hang-up",
    "opened": "what was said is said again",
}


class Watched(World):
    """A life that notes how its reply moves from state to state."""

    ways: Counter[tuple[str, str, str]]

    def did(self, what: str, work: Any) -> None:
        before = reply_state(self.talk, self.exchange.link)
        super().did(what, work)
        after = reply_state(self.talk, self.exchange.link)
        if before != after:
            cause = "sent reply" if what.startswith("sent reply/") else what
            cause = next((text for start, text in CAUSES.items() if cause.startswith(start)), cause)
            self.ways[before, after, cause] += 1


def session_states() -> str:
    """The states of a session."""
    lines = ["stateDiagram-v2", "    [*] --> new"]
    for state, ways in WAYS.items():
        lines += [f"    {state} --> {to}: {why}" for to, why in ways.items()]
    return "\n".join([*lines, "    closed --> [*]"])


def reply_states() -> str:
    """The states of a reply, as they were seen in generated calls."""
    ways: Counter[tuple[str, str, str]] = Counter()
    for seed in SEEDS:
        Watched.ways = ways
        Watched(seed).live()
    causes: dict[tuple[str, str], list[str]] = defaultdict(list)
    for (before, after, cause), count in sorted(ways.items()):
        if count >= SEEN_MIN:
            causes[before, after].append(cause)
    lines = ["stateDiagram-v2", "    [*] --> quiet"]
    for (before, after), found in causes.items():
        lines.append(f"    {before.replace(' ', '_')} --> {after.replace(' ', '_')}: {', '.join(found)}")
    return "\n".join(lines)


def drawn(text: str) -> str:
    """The page with its diagrams drawn anew."""
    for name, draw in (("session", session_states), ("reply", reply_states)):
        start = text.index(f"<!-- {name} states -->")
        end = text.index("<!-- end -->", start)
        text = f"{text[:start]}<!-- {name} states -->\n\n```mermaid\n{draw()}\n```\n\n{text[end:]}"
    return text


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
