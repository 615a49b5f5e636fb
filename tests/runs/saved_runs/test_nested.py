"""A run inside a call waits for a person: the outer run shows it, saves it and goes on with it."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import (
    Agent,
    ApprovalError,
    RunHooks,
    Runner,
    RunState,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    Usage,
    function_tool,
    tool_input_guardrail,
)
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call

from .payment_app import Desk, asks, kinds, outputs, pay, says


class Office:
    """An outer agent that uses the clerk of a desk as a tool."""

    def __init__(self, inner: list[Any], outer: list[Any], *, name: str = "office", **tool: Any) -> None:
        self.desk = Desk(inner)
        self.model = ScriptedModel(outer)
        self.tool = self.desk.agent.as_tool("clerk", "Ask the clerk.", **tool)
        self.agent: Any = Agent(name=name, model=self.model, tools=[self.tool])

    async def reloaded(self, result: Any) -> RunState:
        return await RunState.from_string(self.agent, result.to_state().to_string())


def delegate(call_id: str, text: str = "please") -> dict[str, Any]:
    return function_call("clerk", {"input": text}, call_id=call_id)


@pytest.mark.parametrize("saved", [False, True])
async def test_an_inner_approval_is_shown_by_the_outer_run_and_answered_there(saved: bool):
    office = Office([asks(pay(5, "c1")), says("paid")], [asks(delegate("o1")), says("all done")])
    result = await Runner.run(office.agent, "hi")
    (item,) = result.interruptions
    assert (item.call_id, item.agent.name) == ("c1", "clerk")
    assert [one.type for one in result.new_items] == ["tool_call_item", "tool_approval_item"]
    state = await office.reloaded(result) if saved else result.to_state()
    (item,) = state.get_interruptions()
    assert item.agent is office.desk.agent
    state.approve(item)
    result = await Runner.run(office.agent, state)
    assert result.final_output == "all done"
    assert office.desk.done == [("pay", 5)]
    assert outputs(office.model.calls[-1].input) == {"o1": "paid"}
    assert kinds(office.desk.sent[-1]) == ["user", "call c1", "output c1"]


async def test_two_inner_calls_may_be_decided_one_after_the_other_on_one_state():
    office = Office([asks(pay(5, "c1"), pay(6, "c2")), says("paid")], [asks(delegate("o1")), says("all done")])
    state = await office.reloaded(await Runner.run(office.agent, "hi"))
    first, second = state.get_interruptions()
    state.approve(first)
    assert [item.call_id for item in state.get_interruptions()] == ["c2"]
    state.reject(second, rejection_message="not that")
    state.approve(first)
    result = await Runner.run(office.agent, await RunState.from_string(office.agent, state.to_string()))
    assert result.final_output == "all done"
    assert office.desk.done == [("pay", 5)]
    assert outputs(office.desk.sent[-1])["c2"] == "not that"


async def test_deciding_about_one_inner_call_leaves_the_other_waiting():
    office = Office([asks(pay(5, "c1"), pay(6, "c2")), says("paid")], [asks(delegate("o1")), says("all done")])
    state = await office.reloaded(await Runner.run(office.agent, "hi"))
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(office.agent, state)
    assert office.desk.done == [("pay", 5)]
    assert [item.call_id for item in result.interruptions] == ["c2"]
    state = await office.reloaded(result)
    state.approve(state.get_interruptions()[0])
    assert (await Runner.run(office.agent, state)).final_output == "all done"
    assert office.desk.done == [("pay", 5), ("pay", 6)]


@pytest.mark.parametrize("owner", ["replay", "sqlite"])
async def test_an_outer_call_that_needs_approval_takes_two_rounds_and_the_usage_adds_up(owner: str, tmp_path: Any):
    used = Usage(requests=1, input_tokens=10, output_tokens=1, total_tokens=11)
    office = Office(
        [ModelStep(output=[pay(5, "c1")], usage=used), ModelStep(output=[assistant_message("paid")], usage=used)],
        [ModelStep(output=[delegate("o1")], usage=used), ModelStep(output=[assistant_message("done")], usage=used)],
        needs_approval=True,
    )
    session = SQLiteSession("s", tmp_path / "runs.db") if owner == "sqlite" else None
    result = await Runner.run(office.agent, "hi", session=session)
    assert [item.call_id for item in result.interruptions] == ["o1"]
    for expected in (["c1"], []):
        state = await office.reloaded(result)
        state.approve(state.get_interruptions()[0])
        result = await Runner.run(office.agent, state, session=session)
        assert [item.call_id for item in result.interruptions] == expected
    assert result.final_output == "done"
    assert office.desk.done == [("pay", 5)]
    usage = result.context_wrapper.usage
    assert (usage.requests, usage.input_tokens, usage.total_tokens) == (4, 40, 44)
    if session is not None:
        assert kinds(await session.get_items()) == ["user", "call o1", "output o1", "assistant"]
        session.close()


async def test_a_rejected_outer_call_never_starts_the_inner_run():
    office = Office([says("never")], [asks(delegate("o1")), says("fine")], needs_approval=True)
    state = await office.reloaded(await Runner.run(office.agent, "hi"))
    state.reject(state.get_interruptions()[0], rejection_message="leave the clerk alone")
    assert (await Runner.run(office.agent, state)).final_output == "fine"
    assert office.desk.sent == []
    assert outputs(office.model.calls[-1].input) == {"o1": "leave the clerk alone"}


async def test_hooks_and_guardrails_of_the_outer_call_run_once_over_the_pause():
    seen: list[str] = []

    @tool_input_guardrail
    def looking(data: Any) -> ToolGuardrailFunctionOutput:
        seen.append("guardrail")
        return ToolGuardrailFunctionOutput.allow()

    class Noting(RunHooks[Any]):
        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            seen.append(f"start {tool.name}")

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            seen.append(f"end {tool.name}")

    office = Office([asks(pay(5, "c1")), says("paid")], [asks(delegate("o1")), says("all done")])
    office.tool.tool_input_guardrails = [looking]
    hooks = Noting()
    state = await office.reloaded(await Runner.run(office.agent, "hi", hooks=hooks))
    state.approve(state.get_interruptions()[0])
    await Runner.run(office.agent, state, hooks=hooks)
    assert seen == ["guardrail", "start clerk", "end clerk"]


async def test_the_same_call_in_two_nested_runs_is_ambiguous_and_refused():
    office = Office([asks(pay(5, "c1")), asks(pay(5, "c1"))], [asks(delegate("o1"), delegate("o2")), says("all done")])
    state = await office.reloaded(await Runner.run(office.agent, "hi"))
    first, _ = state.get_interruptions()
    with pytest.raises(ApprovalError, match="more than one"):
        state.approve(first)


async def test_one_id_for_different_calls_in_two_nested_runs_is_no_ambiguity():
    office = Office(
        [asks(pay(5, "c1")), asks(pay(6, "c1")), says("a"), says("b")],
        [asks(delegate("o1"), delegate("o2")), says("all done")],
    )
    state = await office.reloaded(await Runner.run(office.agent, "hi"))
    for item in state.get_interruptions():
        state.approve(item)
    assert (await Runner.run(office.agent, state)).final_output == "all done"
    assert sorted(office.desk.done) == [("pay", 5), ("pay", 6)]


async def test_agents_of_one_name_inside_and_outside_are_not_mixed_up():
    office = Office([asks(pay(5, "c1")), says("paid")], [asks(delegate("o1")), says("ok")], name="clerk")
    state = await office.reloaded(await Runner.run(office.agent, "hi"))
    (item,) = state.get_interruptions()
    assert item.agent is office.desk.agent
    state.approve(item)
    assert (await Runner.run(office.agent, state)).final_output == "ok"


async def test_the_record_of_calls_reaches_into_nested_runs():
    office = Office([asks(pay(5, "c1")), says("paid")], [asks(delegate("o1")), says("ok")])
    result = await Runner.run(office.agent, "hi")
    state = await office.reloaded(result)
    outer, inner = state.get_calls()
    assert (outer.call_id, outer.status, outer.run_id) == ("o1", "waiting", result.run_id)
    assert (inner.call_id, inner.status, inner.run_id) == ("c1", "waiting", f"{result.run_id}/o1")
    state.approve(state.get_interruptions()[0])
    await Runner.run(office.agent, state)
    assert office.desk.keys == [inner.idempotency_key]  # the key a person could have seen before it ran


async def test_a_run_inside_a_run_inside_a_run():
    desk = Desk([asks(pay(5, "c1")), says("paid")])
    middle_model = ScriptedModel([asks(function_call("clerk", {"input": "x"}, call_id="m1")), says("middle")])
    middle: Any = Agent(name="middle", model=middle_model, tools=[desk.agent.as_tool("clerk", "The clerk.")])
    outer_model = ScriptedModel([asks(function_call("middle", {"input": "x"}, call_id="o1")), says("outer")])
    outer: Any = Agent(name="outer", model=outer_model, tools=[middle.as_tool("middle", "The middle.")])
    text = (await Runner.run(outer, "hi")).to_state().to_string()
    state = await RunState.from_string(outer, text)
    (item,) = state.get_interruptions()
    assert item.agent is desk.agent
    state.approve(item)
    assert (await Runner.run(outer, state)).final_output == "outer"
    assert desk.done == [("pay", 5)]


async def test_an_outer_tool_beside_a_paused_inner_run_is_not_run_again():
    done: list[str] = []

    @function_tool
    async def ring() -> str:
        """Ring."""
        done.append("ring")
        return "rang"

    office = Office(
        [asks(pay(5, "c1")), says("paid")],
        [asks(function_call("ring", {}, call_id="r1"), delegate("o1")), says("ok")],
    )
    office.agent.tools.append(ring)
    state = await office.reloaded(await Runner.run(office.agent, "hi"))
    state.approve(state.get_interruptions()[0])
    await Runner.run(office.agent, state)
    assert done == ["ring"]
    assert outputs(office.model.calls[-1].input) == {"r1": "rang", "o1": "paid"}
