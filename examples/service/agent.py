"""The agent that answers. This is the file to replace; the rest of the service knows nothing of it."""

from __future__ import annotations

import os
import time
from typing import Any

from standfast import Agent, Model, function_tool
from standfast.testing import AnsweringModel, ModelCall, assistant_message, function_call


@function_tool
async def look_up(invoice: str) -> str:
    """Look up what is owed on an invoice."""
    return f"{invoice}: 120 euros, due since {time.strftime('%A')}"


@function_tool(needs_approval=True)
async def pay(invoice: str, euros: int) -> str:
    """Pay an invoice. A person is asked first."""
    return f"{euros} euros paid for {invoice}"


def _answer(call: ModelCall) -> Any:
    """What a model might answer, by what was said last: nothing is remembered, so that any worker can go on."""
    last = call.input[-1]
    match last.get("type"), str(last.get("content", "")).lower():
        case "function_call_output", _ if "due since" in str(last["output"]):
            return [function_call("pay", {"invoice": "A-1", "euros": 120}, call_id=f"pay-{len(call.input)}")]
        case "function_call_output", _:
            return [assistant_message(f"This is what came of it: {last['output']}.")]
        case _, text if "pay" in text:
            return [function_call("look_up", {"invoice": "A-1"}, call_id=f"look-{len(call.input)}")]
        case _:
            return [assistant_message("Good day. Ask me to pay your invoice.")]


def model() -> Model | str:
    """The provider's model if there is a key, else one that needs none."""
    if os.environ.get("OPENAI_API_KEY"):
        return os.environ.get("OPENAI_MODEL", "gpt-5-mini")
    return AnsweringModel(_answer)


clerk: Agent[Any] = Agent(
    name="Clerk",
    instructions="You look after invoices. Look an invoice up before you pay it.",
    tools=[look_up, pay],
    model=model(),
)
