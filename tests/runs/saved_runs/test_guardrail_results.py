"""What guardrails said is part of a run: it survives a pause, in this process and as JSON, outside of the head."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemoryRunStore,
    InMemorySession,
    RunConfig,
    Runner,
    RunState,
    ToolGuardrailFunctionOutput,
    function_tool,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call


@input_guardrail
def polite(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput({"tone": "kind"}, tripwire_triggered=False)


@output_guardrail
def short(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(len(output), tripwire_triggered=False)


@tool_input_guardrail
def small(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow({"limit": 10})


@tool_output_guardrail
def clean(data: Any) -> ToolGuardrailFunctionOutput:
    return ToolGuardrailFunctionOutput.allow(["ok"])


@function_tool(tool_input_guardrails=[small], tool_output_guardrails=[clean])
def look(page: int) -> str:
    """Look."""
    return "seen"


@function_tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return "paid"


def paying() -> Agent[Any]:
    calls = [function_call("look", {"page": 1}, call_id="l1"), function_call("pay", {"amount": 1}, call_id="p1")]
    model = ScriptedModel([ModelStep(calls), ModelStep([assistant_message("done")])])
    return Agent(name="a", model=model, tools=[look, pay], input_guardrails=[polite], output_guardrails=[short])


def said(result: Any) -> dict[str, list[Any]]:
    return {
        name: [(one.guardrail.get_name(), one.output.output_info) for one in getattr(result, name)]
        for name in (
            "input_guardrail_results",
            "output_guardrail_results",
            "tool_input_guardrail_results",
            "tool_output_guardrail_results",
        )
    }


@pytest.mark.parametrize("way", ["memory", "json", "store"])
async def test_results_from_before_a_pause_are_there_after_it(way: str):
    """They used to vanish on resume: a program that records them saw only half of a run."""
    agent, session = paying(), InMemorySession("s")
    paused = await Runner.run(agent, "hi", session=session)
    before = said(paused)
    assert before["input_guardrail_results"] == [("polite", {"tone": "kind"})]
    state = paused.to_state()
    if way == "json":
        state = await RunState.from_string(agent, state.to_string())
    elif way == "store":
        state = await Runner.load(agent, paused.run_id, session=session)
    state.approve(state.get_interruptions()[0])
    after = said(await Runner.run(agent, state, session=session))
    assert after == before | {"output_guardrail_results": [("short", 4)]}
    assert after["tool_input_guardrail_results"] == [("small", {"limit": 10})]
    assert after["tool_output_guardrail_results"] == [("clean", ["ok"])]


async def test_a_guardrail_that_is_gone_is_still_named():
    agent = paying()
    state = (await Runner.run(agent, "hi")).to_state()
    other = paying()
    other.input_guardrails = []
    state = await RunState.from_json(other, state.to_json())
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(other, state)
    assert [one.guardrail.get_name() for one in result.input_guardrail_results] == ["polite"]


class Measuring(InMemoryRunStore):
    """Remembers how long the head of each save was."""

    def __init__(self) -> None:
        super().__init__()
        self.heads: list[int] = []

    async def save_run(self, run_id: str, **saved: Any) -> int:
        self.heads.append(len(saved["head"]))
        return await super().save_run(run_id, **saved)


async def test_very_many_results_do_not_make_each_save_longer():
    """Results were part of the head, which is written whole with every save."""
    turns = 30
    steps = [ModelStep([function_call("look", {"page": n}, call_id=f"l{n:03}")]) for n in range(turns)]
    agent = Agent(name="a", model=ScriptedModel([*steps, ModelStep([assistant_message("done")])]), tools=[look])
    store = Measuring()
    result = await Runner.run(agent, "hi", max_turns=None, run_config=RunConfig(run_store=store))
    assert len(result.tool_input_guardrail_results) == turns
    early, late = max(store.heads[:6]), max(store.heads[-6:])
    assert late <= early + 40, "only numbers grow"


async def test_a_state_that_is_resumed_twice_has_its_results_once_each_time():
    """In this process the very objects come back; a paused result does not grow when its state is resumed."""
    agent = paying()
    paused = await Runner.run(agent, "hi")
    state = paused.to_state()
    state.approve(state.get_interruptions()[0])
    payload = state.to_json()
    result = await Runner.run(agent, state)
    assert result.input_guardrail_results[0] is paused.input_guardrail_results[0]
    assert (len(result.output_guardrail_results), len(paused.output_guardrail_results)) == (1, 0)
    again = await RunState.from_json(paying(), payload)
    later = paying()
    later.model = ScriptedModel([ModelStep([assistant_message("done")])])
    assert len((await Runner.run(later, again)).tool_input_guardrail_results) == 1
