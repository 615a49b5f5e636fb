"""Mistakes that a strict type checker finds with the OpenAI Agents SDK; each line that has one says so."""

from __future__ import annotations

from typing import Any

from agents import Agent, RunContextWrapper, RunHooks, Runner, RunState, Tool, handoff
from agents.items import TResponseOutputItem, TResponseStreamEvent


class Customer: ...


class Order: ...


desk: Agent[Customer] = Agent(name="Desk")


async def main() -> None:
    await Runner.run(desk, "Hello", context=Order())  # mistake
    Runner.run_sync(desk, "Hello", context=Order())  # mistake
    Runner.run_streamed(desk, "Hello", context=Order())  # mistake
    result = await Runner.run(desk, "Hello", context=Customer())
    wrong: int = result.to_state()  # mistake
    state: RunState[Customer] = result.to_state()
    await Runner.run(desk, state, max_turns="many")  # mistake
    print(wrong, state.to_string().upper(), state.no_such_thing)  # mistake


class Watching(RunHooks[Customer]):
    async def on_tool_start(self, context: RunContextWrapper[Customer], agent: Agent[Any], tool: Tool) -> None:
        print(tool.no_such_thing)  # mistake


def said(item: TResponseOutputItem, event: TResponseStreamEvent) -> None:
    print(item.no_such_thing)  # mistake
    print(event.no_such_thing)  # mistake


over = handoff(Customer())  # mistake
