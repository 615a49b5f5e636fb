"""Guardrails of inputs, outputs and tool calls."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    GuardrailFunctionOutput,
    InputGuardrail,
    InputGuardrailTripwireTriggered,
    OutputGuardrail,
    OutputGuardrailTripwireTriggered,
    RunConfig,
    RunContextWrapper,
    Runner,
    SQLiteSession,
    ToolGuardrailFunctionOutput,
    ToolInputGuardrailData,
    ToolInputGuardrailTripwireTriggered,
    ToolOutputGuardrailData,
    ToolOutputGuardrailTripwireTriggered,
    TResponseInputItem,
    function_tool,
    input_guardrail,
    output_guardrail,
    tool_input_guardrail,
    tool_output_guardrail,
)
from agents.guardrail import GuardrailFunctionOutput as SameOutput
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_guardrails import ToolGuardrailFunctionOutput as SameToolOutput


@input_guardrail
async def no_homework(
    context: RunContextWrapper[Any], agent: Agent[Any], input: str | list[TResponseInputItem]
) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info={"agent": agent.name}, tripwire_triggered="homework" in str(input))


@input_guardrail(name="first of all", run_in_parallel=False)
def no_shouting(context: RunContextWrapper[Any], agent: Agent[Any], input: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="!!!" in str(input))


@output_guardrail
async def no_numbers(context: RunContextWrapper[Any], agent: Agent[Any], output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=str(output), tripwire_triggered=any(c.isdigit() for c in str(output)))


def _agent(*texts: str, **more: Any) -> Agent[Any]:
    return Agent(name="A", model=ScriptedModel([[assistant_message(text)] for text in texts]), **more)


async def example_guardrails_that_let_pass(folder):
    agent = _agent("Hello.", input_guardrails=[no_homework, no_shouting], output_guardrails=[no_numbers])
    result = await Runner.run(agent, "Hi")
    return (
        result,
        sorted(one.guardrail.get_name() for one in result.input_guardrail_results),
        [
            (one.guardrail.get_name(), one.agent_output, one.output.output_info)
            for one in result.output_guardrail_results
        ],
        SameOutput is GuardrailFunctionOutput,
        SameToolOutput is ToolGuardrailFunctionOutput,
    )


async def example_an_input_that_trips(folder):
    seen = []
    for guard, text in ((no_homework, "my homework"), (no_shouting, "help!!!")):
        session = SQLiteSession("guest", folder / f"{guard.get_name()}.db")
        agent = _agent("Hello.", input_guardrails=[guard])
        try:
            await Runner.run(agent, text, session=session)
        except InputGuardrailTripwireTriggered as error:
            result = error.guardrail_result
            seen.append(
                (error, result.guardrail.get_name(), result.output.tripwire_triggered, result.output.output_info)
            )
        seen.append(await session.get_items())
        session.close()
    return seen, len(agent.model.calls)


async def example_an_output_that_trips(folder):
    session = SQLiteSession("guest", folder / "s.db")
    agent = _agent("Call 555.", output_guardrails=[OutputGuardrail(guardrail_function=no_numbers.guardrail_function)])
    try:
        await Runner.run(agent, "Hi", session=session)
    except OutputGuardrailTripwireTriggered as error:
        seen = (error, error.guardrail_result.agent_output, error.guardrail_result.agent.name)
    stored = await session.get_items()
    session.close()
    return seen, stored


async def example_guardrails_of_a_config(folder):
    config = RunConfig(
        input_guardrails=[InputGuardrail(no_homework.guardrail_function)], output_guardrails=[no_numbers]
    )
    errors = []
    for question, answer in (("my homework", "x"), ("Hi", "555"), ("Hi", "Hello.")):
        try:
            await Runner.run(_agent(answer), question, run_config=config)
        except (InputGuardrailTripwireTriggered, OutputGuardrailTripwireTriggered) as error:
            errors.append(error)
    return errors


async def example_a_trip_while_streaming(folder):
    agent = _agent("Hello.", input_guardrails=[no_homework])
    result = Runner.run_streamed(agent, "my homework")
    try:
        async for _ in result.stream_events():
            pass
    except InputGuardrailTripwireTriggered as error:
        return error, [one.guardrail.get_name() for one in result.input_guardrail_results]


@tool_input_guardrail
def no_secrets(data: ToolInputGuardrailData) -> ToolGuardrailFunctionOutput:
    arguments = data.context.tool_arguments
    if "password" in arguments:
        return ToolGuardrailFunctionOutput.reject_content("Not allowed.", output_info={"why": "password"})
    if "bomb" in arguments:
        return ToolGuardrailFunctionOutput.raise_exception(output_info="bomb")
    return ToolGuardrailFunctionOutput.allow(output_info="fine")


@tool_output_guardrail
async def no_leaks(data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
    if "42" in str(data.output):
        return ToolGuardrailFunctionOutput.reject_content("Withheld.")
    if "13" in str(data.output):
        return ToolGuardrailFunctionOutput.raise_exception(output_info=13)
    return ToolGuardrailFunctionOutput.allow()


@function_tool(tool_input_guardrails=[no_secrets], tool_output_guardrails=[no_leaks])
def search(query: str) -> str:
    """Search."""
    return f"found {query}"


async def example_guardrails_of_tools(folder):
    seen = []
    for query in ("tea", "password", "bomb", "42", "13"):
        steps = [[function_call("search", {"query": query}, call_id="c1")], [assistant_message("ok")]]
        agent = Agent(name="A", tools=[search], model=ScriptedModel(steps))
        try:
            result = await Runner.run(agent, "Go")
        except (ToolInputGuardrailTripwireTriggered, ToolOutputGuardrailTripwireTriggered) as error:
            seen.append((query, error, error.output.output_info))
            continue
        outputs = [item.output for item in result.new_items if item.type == "tool_call_output_item"]
        told = [(one.guardrail.get_name(), one.output.behavior["type"]) for one in result.tool_input_guardrail_results]
        seen.append((query, outputs, told, len(result.tool_output_guardrail_results)))
    return seen
