"""Watching never slows a run, and a watcher that is quick can still stop it between two turns."""

from __future__ import annotations

import asyncio
from typing import Any

from standfast import Agent, Runner, function_tool
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call

TURNS = 4


@function_tool
def look(page: int) -> str:
    """Look."""
    return "seen"


def looking() -> Agent[Any]:
    steps = [ModelStep([function_call("look", {"page": n}, call_id=f"l{n}")]) for n in range(TURNS)]
    return Agent(name="a", model=ScriptedModel([*steps, ModelStep([assistant_message("done")])]), tools=[look])


async def test_a_watcher_that_never_comes_back_does_not_hold_the_run_up():
    """It used to be waited for, up to half a minute a turn."""
    result = Runner.run_streamed(looking(), "hi")
    events = result.stream_events()
    await anext(events)  # it holds the iteration, and takes nothing more until the run is over
    while not result.is_complete:
        await asyncio.sleep(0)
    assert result.final_output == "done"
    assert result.current_turn == TURNS + 1


async def test_a_stop_said_on_the_last_event_of_a_turn_comes_before_the_next_request():
    result = Runner.run_streamed(looking(), "hi")
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.name == "tool_output":
            result.cancel("after_turn")
    assert result.current_turn == 1
