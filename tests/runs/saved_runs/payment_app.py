"""A small world for tests of saved runs: an agent that pays, a script, and a book of what was really done."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from standfast import Agent, Runner, RunState, ToolContext, function_tool
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call


def says(text: str) -> ModelStep:
    """A step in which the model answers."""
    return ModelStep(output=[assistant_message(text)])


def asks(*calls: dict[str, Any], response_id: str | None = "scripted-response") -> ModelStep:
    """A step in which the model asks for these calls."""
    return ModelStep(output=list(calls), response_id=response_id)


def pay(amount: int, call_id: str) -> dict[str, Any]:
    return function_call("pay", {"amount": amount}, call_id=call_id)


def look(what: str, call_id: str) -> dict[str, Any]:
    return function_call("look", {"what": what}, call_id=call_id)


class Desk:
    """An agent that may look freely and pays only if a person agrees. `done` is what really happened, in order."""

    def __init__(self, steps: Sequence[Any], *, tools: Sequence[Any] = (), **agent: Any) -> None:
        self.done: list[Any] = []
        self.keys: list[str | None] = []
        self.model = ScriptedModel(steps)
        done, keys = self.done, self.keys

        @function_tool(needs_approval=True)
        async def pay(context: ToolContext[Any], amount: int) -> str:
            """Pay."""
            await asyncio.sleep(0)
            done.append(("pay", amount))
            keys.append(context.idempotency_key)
            return f"paid {amount}"

        pay.needs_approval = agent.pop("needs_approval", True)

        @function_tool
        async def look(what: str) -> str:
            """Look."""
            done.append(("look", what))
            return f"saw {what}"

        self.pay, self.look = pay, look
        self.agent: Any = Agent(name="clerk", model=self.model, tools=[pay, look, *tools], **agent)

    @property
    def sent(self) -> list[list[Any]]:
        """What the model was sent, call by call."""
        return [list(call.input) for call in self.model.calls]

    async def run(self, given: Any, **options: Any) -> Any:
        return await Runner.run(self.agent, given, **options)

    async def once(self, given: Any, streamed: bool, options: dict[str, Any]) -> Any:
        """Run it, watched or not."""
        if not streamed:
            return await Runner.run(self.agent, given, **options)
        result = Runner.run_streamed(self.agent, given, **options)
        async for _ in result.stream_events():
            pass
        return result

    async def reloaded(self, state: RunState, **options: Any) -> RunState:
        """The state after a trip through its text."""
        return await RunState.from_string(self.agent, state.to_string(), **options)


def outputs(items: Sequence[Any]) -> dict[str, Any]:
    """The outputs among these items, by call id."""
    return {item["call_id"]: item["output"] for item in items if item.get("type") == "function_call_output"}


def kinds(items: Sequence[Any]) -> list[str]:
    """What the items are, in short: user, call c1, output c1, assistant."""
    names = []
    for item in items:
        kind = item.get("type") or "message"
        if kind == "message":
            names.append(str(item["role"]))
        else:
            short = {"function_call": "call", "function_call_output": "output"}.get(kind, kind)
            names.append(f"{short} {item.get('call_id') or item.get('approval_request_id') or item.get('id')}")
    return names
