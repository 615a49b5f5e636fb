"""Mistakes that a strict type checker finds with the OpenAI Agents SDK; each line that has one says so."""

from __future__ import annotations

from agents import Agent, Runner, RunState


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
