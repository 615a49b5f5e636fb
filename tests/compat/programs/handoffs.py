"""Handing over: by agent, with input, with filters, and with a history that is folded."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    HandoffInputData,
    HandoffOutputItem,
    ModelBehaviorError,
    RunConfig,
    RunContextWrapper,
    Runner,
    UserError,
    function_tool,
    handoff,
)
from agents.extensions import handoff_filters
from agents.extensions.handoff_prompt import RECOMMENDED_PROMPT_PREFIX, prompt_with_handoff_instructions
from agents.handoffs import Handoff, HandoffInputData as SameData
from agents.testing import ScriptedModel, assistant_message, function_call
from pydantic import BaseModel


class Reason(BaseModel):
    reason: str
    urgent: bool = False


@function_tool
def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: found"


def _target(name: str = "Refund desk", text: str = "Refunded.") -> Agent[Any]:
    return Agent(name=name, handoff_description="Gives money back.", model=ScriptedModel([[assistant_message(text)]]))


async def example_a_handoff(folder):
    target = _target()
    model = ScriptedModel([[function_call("transfer_to_refund_desk", {}, call_id="h1")]])
    agent = Agent(name="Triage", handoffs=[target], model=model)
    result = await Runner.run(agent, "Refund!")
    [offered] = model.last_call.handoffs
    moved = next(item for item in result.new_items if isinstance(item, HandoffOutputItem))
    return (
        result,
        result.last_agent is target,
        (offered.tool_name, offered.tool_description, offered.agent_name, offered.input_json_schema),
        (moved.source_agent.name, moved.target_agent.name),
        target.model.last_call.input,
    )


async def example_a_handoff_with_input(folder):
    told: list[Any] = []

    async def note(context: RunContextWrapper[Any], given: Reason) -> None:
        told.append((given.reason, given.urgent))

    target = _target()
    over = handoff(target, on_handoff=note, input_type=Reason, tool_name_override="escalate")
    call = function_call("escalate", {"reason": "broken", "urgent": True}, call_id="h1")
    agent = Agent(name="Triage", handoffs=[over], model=ScriptedModel([[call]]))
    result = await Runner.run(agent, "Refund!")
    assert isinstance(over, Handoff)
    return result, told, over.input_json_schema, over.tool_name, SameData is HandoffInputData


async def example_a_handoff_whose_input_does_not_fit(folder):
    async def note(context: RunContextWrapper[Any], given: Reason) -> None:
        raise AssertionError("not reached")

    over = handoff(_target(), on_handoff=note, input_type=Reason)
    agent = Agent(
        name="Triage",
        handoffs=[over],
        model=ScriptedModel([[function_call(over.tool_name, {"urgent": 3}, call_id="h1")]]),
    )
    errors = []
    try:
        await Runner.run(agent, "Refund!")
    except ModelBehaviorError as error:
        errors.append(error)
    try:
        handoff(_target(), input_type=Reason)
    except (UserError, AssertionError) as error:
        errors.append(error)
    return errors


async def example_a_filter(folder):
    def last_two(data: HandoffInputData) -> HandoffInputData:
        history = data.input_history if isinstance(data.input_history, tuple) else ()
        return data.clone(input_history=history[-2:], pre_handoff_items=())

    seen = []
    for chosen in (handoff_filters.remove_all_tools, last_two):
        target = _target()
        steps = [
            [function_call("look_up", {"word": "x"}, call_id="c1")],
            [function_call("transfer_to_refund_desk", {}, call_id="h1")],
        ]
        agent = Agent(
            name="Triage",
            tools=[look_up],
            handoffs=[handoff(target, input_filter=chosen)],
            model=ScriptedModel(steps),
        )
        result = await Runner.run(agent, [{"role": "user", "content": str(n)} for n in range(3)])
        seen.append((result, target.model.last_call.input))
    return seen


async def example_a_filter_for_every_handoff(folder):
    target = _target()
    steps = [
        [function_call("look_up", {"word": "x"}, call_id="c1")],
        [function_call("transfer_to_refund_desk", {}, call_id="h1")],
    ]
    agent = Agent(name="Triage", tools=[look_up], handoffs=[target], model=ScriptedModel(steps))
    config = RunConfig(handoff_input_filter=handoff_filters.remove_all_tools)
    result = await Runner.run(agent, "Refund!", run_config=config)
    return result, target.model.last_call.input


async def example_a_history_that_is_folded(folder):
    target = _target()
    steps = [
        [function_call("look_up", {"word": "x"}, call_id="c1")],
        [function_call("transfer_to_refund_desk", {}, call_id="h1")],
    ]
    agent = Agent(name="Triage", tools=[look_up], handoffs=[target], model=ScriptedModel(steps))
    result = await Runner.run(agent, "Refund!", run_config=RunConfig(nest_handoff_history=True))
    sent = target.model.last_call.input
    return result, [(item.get("role"), item.get("type")) for item in sent], "Refund!" in str(sent)


async def example_handoffs_that_are_switched_off(folder):
    model = ScriptedModel([[assistant_message("I do it.")]])
    off, on = handoff(_target("A"), is_enabled=False), handoff(_target("B"), is_enabled=lambda context, agent: True)
    await Runner.run(Agent(name="Triage", handoffs=[off, on], model=model), "Go")
    return [one.agent_name for one in model.last_call.handoffs]


async def example_two_handoffs_at_once(folder):
    first, second = _target("First"), _target("Second")
    calls = [
        function_call("transfer_to_first", {}, call_id="h1"),
        function_call("transfer_to_second", {}, call_id="h2"),
    ]
    agent = Agent(name="Triage", handoffs=[first, second], model=ScriptedModel([calls]))
    result = await Runner.run(agent, "Go")
    return result.last_agent.name, [item.type for item in result.new_items]


async def example_words_for_agents_that_hand_over(folder):
    text = prompt_with_handoff_instructions("Sell tea.")
    return text.endswith("Sell tea."), text.startswith(RECOMMENDED_PROMPT_PREFIX)
