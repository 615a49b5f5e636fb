"""What a person said last is what counts."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, InMemorySession, Runner, RunState, function_tool
from standfast.testing import ScriptedModel, assistant_message, function_call


@pytest.mark.parametrize("saved", [False, True], ids=["in memory", "as JSON"])
async def test_nothing_runs_after_always_was_taken_back(saved: bool) -> None:
    """Approved for good, then rejected for good: neither the other open call nor a later one may run."""
    ran: list[int] = []

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    replies = [
        [function_call("pay", {"amount": 1}, call_id="a"), function_call("pay", {"amount": 2}, call_id="b")],
        [function_call("pay", {"amount": 3}, call_id="c")],
        [assistant_message("done")],
    ]
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel(replies), tools=[pay])
    session = InMemorySession("s")
    state = (await Runner.run(agent, "go", session=session)).to_state()
    first = state.get_interruptions()[0]
    state.approve(first, always_approve=True)
    state.reject(first, always_reject=True, rejection_message="no more")
    if saved:
        state = await RunState.from_string(agent, state.to_string())
    result = await Runner.run(agent, state, session=session)
    assert result.final_output == "done"
    assert ran == []
    outputs = [item["output"] for item in await session.get_items() if item.get("type") == "function_call_output"]
    assert outputs == ["no more"] * 3
