"""An agent that answers by rules: for trying tools, approvals and sessions without a key or a model."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from standfast._kits.testing.answering_model import AnsweringModel
from standfast._kits.testing.script import ModelCall, assistant_message, function_call
from standfast._src.agents.agent import Agent
from standfast._src.tools.function_tool import function_tool

if TYPE_CHECKING:
    from standfast._src.base.json_values import Item

CAN = (
    "I answer by rules, not by thinking. Try: roll 2 dice · pay 120 to ACME (asks you first) · what did I say? "
    "Kill this process whenever you like, and start it again with --continue."
)


@function_tool
def roll(dice: int) -> str:
    """Roll dice."""
    import random

    return ", ".join(str(random.randint(1, 6)) for _ in range(min(dice, 20)))


@function_tool(needs_approval=True)
def pay(amount: int, to: str) -> str:
    """Pay a person. Nothing is really paid."""
    return f"paid {amount} to {to}"


def demo_agent() -> Agent[Any]:
    """The agent of `standfast chat --demo`."""
    return Agent(name="Demo", instructions="Answer by rules.", tools=[roll, pay], model=AnsweringModel(_answer))


def _answer(call: ModelCall) -> list[Item]:
    items = [item for item in call.input if isinstance(item, dict)]
    last = items[-1] if items else {}
    if last.get("type") == "function_call_output":
        return [assistant_message(f"Done: {last.get('output')}.")]
    said = [_words(item) for item in items if item.get("role") == "user"]
    asked = said[-1] if said else ""
    call_id = f"call-{len(items)}"
    if found := re.search(r"roll\D*(\d+)?", asked, re.IGNORECASE):
        return [function_call("roll", {"dice": int(found.group(1) or 1)}, call_id=call_id)]
    if found := re.search(r"pay\D*(\d+)\s*(?:to\s+)?(.*)", asked, re.IGNORECASE):
        return [function_call("pay", {"amount": int(found.group(1)), "to": found.group(2) or "you"}, call_id=call_id)]
    if "what did i say" in asked.lower():
        earlier = "; ".join(json.dumps(words) for words in said[:-1]) or "nothing yet"
        return [assistant_message(f"You said: {earlier}.")]
    return [assistant_message(CAN)]


def _words(item: dict[str, Any]) -> str:
    content = item.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return " ".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
