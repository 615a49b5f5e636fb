"""Watching a run."""

from __future__ import annotations

from typing import Any

from agents import (
    Agent,
    AgentUpdatedStreamEvent,
    ItemHelpers,
    MaxTurnsExceeded,
    RawResponsesStreamEvent,
    RunItemStreamEvent,
    Runner,
    SQLiteSession,
    function_tool,
)
from agents.items import ItemHelpers as SameHelpers
from agents.result import RunResultStreaming
from agents.stream_events import RunItemStreamEvent as SameEvent
from agents.testing import ScriptedModel, assistant_message, function_call
from openai.types.responses import ResponseTextDeltaEvent


@function_tool
def how_many() -> int:
    """How many jokes."""
    return 2


def _agent() -> Agent[Any]:
    steps = [[function_call("how_many", {}, call_id="c1")], [assistant_message("Two jokes.")]]
    return Agent(name="Joker", tools=[how_many], model=ScriptedModel(steps))


async def example_text_by_type_of_the_event(folder):
    result = Runner.run_streamed(_agent(), "Jokes!")
    text = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            text += event.data.delta
    return text, result, isinstance(result, RunResultStreaming)


async def example_text_by_class_of_the_event(folder):
    result = Runner.run_streamed(_agent(), "Jokes!")
    text = ""
    async for event in result.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            text += event.data.delta
    return text


async def example_items(folder):
    result = Runner.run_streamed(_agent(), "Jokes!")
    lines = []
    async for event in result.stream_events():
        if isinstance(event, RawResponsesStreamEvent):
            continue
        if isinstance(event, AgentUpdatedStreamEvent):
            lines.append(f"agent {event.new_agent.name}")
        elif isinstance(event, RunItemStreamEvent):
            item = event.item
            if item.type == "tool_call_item":
                lines.append(f"{event.name} {item.raw_item.name}")
            elif item.type == "tool_call_output_item":
                lines.append(f"{event.name} {item.output}")
            elif item.type == "message_output_item":
                lines.append(f"{event.name} {ItemHelpers.text_message_output(item)}")
    return lines, result.is_complete, result.current_turn, SameHelpers is ItemHelpers, SameEvent is RunItemStreamEvent


async def example_the_order_of_raw_events(folder):
    result = Runner.run_streamed(_agent(), "Jokes!")
    return [e.data.type if e.type == "raw_response_event" else e.type async for e in result.stream_events()]


async def example_a_handoff(folder):
    second = Agent(name="Second", model=ScriptedModel([[assistant_message("Here I am.")]]))
    first = Agent(
        name="First", handoffs=[second], model=ScriptedModel([[function_call("transfer_to_second", {}, call_id="h1")]])
    )
    result = Runner.run_streamed(first, "Go")
    names = [e.name if e.type == "run_item_stream_event" else e.type async for e in result.stream_events()]
    return [name for name in names if name != "raw_response_event"], result.last_agent.name, result.current_agent.name


async def example_an_error_in_the_middle(folder):
    agent = _agent()
    result = Runner.run_streamed(agent, "Jokes!", max_turns=1)
    names = []
    try:
        async for event in result.stream_events():
            if event.type == "run_item_stream_event":
                names.append(event.name)
    except MaxTurnsExceeded as error:
        return error, names, [item.type for item in error.run_data.new_items]


async def example_a_model_that_fails(folder):
    result = Runner.run_streamed(Agent(name="A", model=ScriptedModel([ValueError("down")])), "Hi")
    try:
        async for _ in result.stream_events():
            pass
    except ValueError as error:
        return error, result.final_output


async def example_stopping_after_a_turn(folder):
    session = SQLiteSession("s", folder / "s.db")
    agent = _agent()
    result = Runner.run_streamed(agent, "Jokes!", session=session)
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.name == "tool_called":
            result.cancel(mode="after_turn")
    stored = await session.get_items()
    session.close()
    return [item.type for item in result.new_items], stored, len(agent.model.calls), result.final_output


async def example_stopping_at_once(folder):
    result = Runner.run_streamed(_agent(), "Jokes!")
    async for _ in result.stream_events():
        result.cancel()
    return result.final_output, result.is_complete


async def example_the_result_afterwards(folder):
    result = Runner.run_streamed(_agent(), "Jokes!")
    async for _ in result.stream_events():
        pass
    return (
        result.final_output,
        ItemHelpers.text_message_outputs(result.new_items),
        [response.response_id for response in result.raw_responses],
        result.last_response_id,
        result.to_input_list(),
    )
