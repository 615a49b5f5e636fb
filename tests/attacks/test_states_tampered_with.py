"""A saved run that was changed on its way: what contradicts itself is refused, and nothing of it runs (C8, D9)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from standfast import Agent, Runner, RunState, RunStateError, ToolContext, function_tool
from standfast.testing import ScriptedModel, final, function_call

Change = Callable[[dict[str, Any]], object]


CHANGES: dict[str, Change] = {
    "a call that returned is open again": lambda turn: turn["calls"][1].pop("state"),
    "an output is another call's": lambda turn: turn["calls"][1]["outputs"][0]["item"].update(call_id="pay-1"),
    "an output is nobody's": lambda turn: turn["calls"][1]["outputs"][0].update(item={}),
    "the call that waits is gone": lambda turn: turn["calls"].pop(0),
    "all calls are gone": lambda turn: turn.pop("calls"),
    "the reply has lost a call": lambda turn: turn["reply"].pop(0),
    "the reply names another call": lambda turn: turn["reply"][0]["item"].update(call_id="pay-2"),
    "the reply names no call": lambda turn: turn["reply"][0]["item"].update(call_id=[]),
}


def paying(done: list[str]) -> tuple[Agent[Any], Agent[Any]]:
    """An agent that looks and wants to pay, and one that has it as a tool."""

    @function_tool(needs_approval=True)
    def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        done.append(ctx.tool_call_id)
        return "paid"

    @function_tool
    def look(ctx: ToolContext[Any]) -> str:
        """Look."""
        done.append(ctx.tool_call_id)
        return "seen"

    asks = [function_call("pay", {}, call_id="pay-1"), function_call("look", {}, call_id="look-1")]
    inner = Agent(name="inner", model=ScriptedModel([asks, final("ok")]), tools=[pay, look])
    model = ScriptedModel([[function_call("helper", {"input": "pay"}, call_id="helper-1")], final("ok")])
    return inner, Agent(name="outer", model=model, tools=[inner.as_tool("helper", "Help.")])


@pytest.mark.parametrize("depth", [0, 1], ids=["", "nested"])
@pytest.mark.parametrize("how", CHANGES)
async def test_a_state_whose_open_turn_contradicts_itself_is_refused(how: str, depth: int) -> None:
    """Read as it stood, one ran a paid call again and another forgot the call that a person was to decide."""
    done: list[str] = []
    agent = paying(done)[depth]
    saved = json.loads((await Runner.run(agent, "go")).to_state().to_string())
    assert done == ["look-1"]
    turn = saved["turn"]
    for _ in range(depth):
        turn = turn["calls"][0]["child"]["turn"]
    CHANGES[how](turn)
    with pytest.raises(RunStateError):
        await RunState.from_string(agent, json.dumps(saved))
    assert done == ["look-1"]


@pytest.mark.parametrize("depth", [0, 1], ids=["", "nested"])
async def test_the_same_state_unchanged_goes_on(depth: int) -> None:
    done: list[str] = []
    agent = paying(done)[depth]
    text = (await Runner.run(agent, "go")).to_state().to_string()
    state = await RunState.from_string(agent, json.dumps(json.loads(text)))
    state.approve(state.get_interruptions()[0])
    assert (await Runner.run(agent, state)).final_output == "ok"
    assert done == ["look-1", "pay-1"]
