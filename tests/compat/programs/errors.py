"""What is raised, and handlers that answer instead."""

from __future__ import annotations

from typing import Any

import agents
from agents import (
    Agent,
    AgentsException,
    MaxTurnsExceeded,
    ModelBehaviorError,
    RunErrorHandlerInput,
    RunErrorHandlerResult,
    Runner,
    exceptions,
    function_tool,
)
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseOutputMessage, ResponseOutputRefusal
from pydantic import BaseModel


@function_tool
def again() -> str:
    """Once more."""
    return "again"


def _endless() -> Agent[Any]:
    return Agent(
        name="A", tools=[again], model=ScriptedModel([[function_call("again", {}, call_id=f"c{n}")] for n in range(9)])
    )


async def example_a_handler_for_too_many_turns(folder):
    seen: list[Any] = []

    def give_up(data: RunErrorHandlerInput[Any]) -> RunErrorHandlerResult:
        seen.append((type(data.error).__name__, len(data.run_data.new_items), data.run_data.last_agent.name))
        return RunErrorHandlerResult(final_output="I give up.")

    result = await Runner.run(_endless(), "Go", max_turns=2, error_handlers={"max_turns": give_up})
    streamed = Runner.run_streamed(_endless(), "Go", max_turns=2, error_handlers={"max_turns": give_up})
    async for _ in streamed.stream_events():
        pass
    return result, streamed.final_output, seen


async def example_a_handler_that_keeps_it_out_of_the_history(folder):
    async def give_up(data: RunErrorHandlerInput[Any]) -> RunErrorHandlerResult:
        return RunErrorHandlerResult(final_output="I give up.", include_in_history=False)

    result = await Runner.run(_endless(), "Go", max_turns=1, error_handlers={"max_turns": give_up})
    return result.final_output, [item.type for item in result.new_items]


async def example_a_handler_with_a_structured_answer(folder):
    class Summary(BaseModel):
        text: str

    agent = _endless().clone(output_type=Summary)
    handlers = {"max_turns": lambda data: {"text": "none"}}
    result = await Runner.run(agent, "Go", max_turns=1, error_handlers=handlers)
    return type(result.final_output).__name__, result.final_output.text


async def example_no_limit(folder):
    steps = [[function_call("again", {}, call_id=f"c{n}")] for n in range(14)]
    agent = Agent(name="A", tools=[again], model=ScriptedModel([*steps, [assistant_message("at last")]]))
    result = await Runner.run(agent, "Go", max_turns=None)
    return result.final_output, len(agent.model.calls)


async def example_a_refusal(folder):
    refused = ResponseOutputMessage(
        id="m1",
        type="message",
        role="assistant",
        status="completed",
        content=[ResponseOutputRefusal(type="refusal", refusal="I will not.")],
    )
    agent = Agent(name="A", model=ScriptedModel([[refused]]))
    try:
        result: Any = (await Runner.run(agent, "Go")).final_output
    except AgentsException as error:
        result = error
    handlers = {"model_refusal": lambda data: RunErrorHandlerResult(final_output="Sorry.")}
    handled = await Runner.run(Agent(name="A", model=ScriptedModel([[refused]])), "Go", error_handlers=handlers)
    return result, handled.final_output


async def example_everything_is_an_agents_exception(folder):
    names = [
        "InputGuardrailTripwireTriggered",
        "MaxTurnsExceeded",
        "ModelBehaviorError",
        "OutputGuardrailTripwireTriggered",
        "ToolInputGuardrailTripwireTriggered",
        "ToolOutputGuardrailTripwireTriggered",
        "ToolTimeoutError",
        "UserError",
    ]
    kinds = [getattr(exceptions, name) for name in names]
    assert exceptions.MaxTurnsExceeded is MaxTurnsExceeded
    return [issubclass(kind, AgentsException) for kind in kinds], [
        getattr(agents, n) is k for n, k in zip(names, kinds, strict=True)
    ]


async def example_catching_by_the_common_base(folder):
    try:
        await Runner.run(_endless(), "Go", max_turns=1)
    except AgentsException as error:
        return error, error.run_data.input, len(error.run_data.raw_responses)


async def example_raising_one_oneself(folder):
    @function_tool(failure_error_function=None)
    def picky() -> str:
        """Refuse."""
        raise ModelBehaviorError("I do not like this call")

    agent = Agent(name="A", tools=[picky], model=ScriptedModel([[function_call("picky", {}, call_id="c1")]]))
    try:
        await Runner.run(agent, "Go")
    except ModelBehaviorError as error:
        return error, str(error)
