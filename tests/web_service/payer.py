"""An agent for workers that are killed: it pays what it is told, and stands where a test wants it to stand.

A place at which it can stand has a name: `tool-a` inside call `a`, behind its effect; `model-a-2` while turn 2 of the
message "a …" is being answered; `turn-a-2` before that is asked for, when turn 1 is stored. A file `hold-NAME` in its
folder makes whoever comes there stand, say so in a file `at-NAME`, and wait until the first file is gone.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

from standfast import Agent, AgentHooks, ToolContext, function_tool
from standfast.testing import AnsweringModel, ModelCall, assistant_message, function_call
from tests.helpers.ledger_oracle import done, write


class Places:
    """Where workers stand, seen from either side."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hold(self, place: str) -> None:
        (self.folder / f"hold-{place}").touch()

    def release(self, place: str) -> None:
        (self.folder / f"hold-{place}").unlink()

    def standing(self, place: str) -> int:
        """The process that stands there; 0 if none has come."""
        try:
            return int((self.folder / f"at-{place}").read_text() or 0)
        except FileNotFoundError:
            return 0

    async def pass_by(self, place: str) -> None:
        if (self.folder / f"hold-{place}").exists():
            (self.folder / f"at-{place}").write_text(str(os.getpid()))
            while (self.folder / f"hold-{place}").exists():
                await asyncio.sleep(0.005)


def payer(folder: Path) -> Agent[Any]:
    """An agent that makes one call for each word of its input, then says what came of them.

    A word that begins with "ask" needs a person. What is done is one line of the file `book` each.
    """
    places = Places(folder)

    async def pay(context: ToolContext[Any]) -> str:
        write(folder / "book", context.tool_call_id)
        await places.pass_by(f"tool-{context.tool_call_id}")
        return done(context.tool_call_id)

    async def answer(call: ModelCall) -> Any:
        words, outputs = _said(call.input)
        await places.pass_by(f"model-{words[0]}-{len(outputs) + 1}")
        if len(outputs) < len(words):
            call_id = words[len(outputs)]
            return [function_call("ask" if call_id.startswith("ask") else "pay", {}, call_id=call_id)]
        return [assistant_message("; ".join(outputs))]

    class BetweenTurns(AgentHooks[Any]):
        async def on_llm_start(self, context: Any, agent: Any, system_prompt: str | None, input_items: Any) -> None:
            words, outputs = _said(input_items)
            await places.pass_by(f"turn-{words[0]}-{len(outputs) + 1}")

    tools = [
        function_tool(pay, name_override="pay", description_override="Pay."),
        function_tool(pay, name_override="ask", description_override="Pay, if allowed.", needs_approval=True),
    ]
    return Agent(name="Payer", tools=tools, model=AnsweringModel(answer), hooks=BetweenTurns())


def _said(items: Any) -> tuple[list[str], list[str]]:
    """The words of the newest message, and the outputs of its calls; a run that waits for a person is shown, too."""
    asked = max(place for place, item in enumerate(items) if item.get("role") == "user")
    words = str(items[asked]["content"]).split()
    answers = [item for item in items[asked:] if item.get("type") == "function_call_output"]
    return words, [str(item["output"]) for item in answers if item["call_id"] in words]
