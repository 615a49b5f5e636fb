"""Agents as tools of other agents."""

from __future__ import annotations

from typing import Any

from agents import Agent, AgentToolStreamEvent, RunContextWrapper, Runner, RunResult, Usage, function_tool
from agents.testing import ModelStep, ScriptedModel, assistant_message, function_call
from pydantic import BaseModel


def _inner(*steps: Any, **more: Any) -> Agent[Any]:
    return Agent(name="Translator", instructions="Translate.", model=ScriptedModel(steps), **more)


def _outer(tool: Any, arguments: Any) -> Agent[Any]:
    steps = [[function_call("translate", arguments, call_id="c1")], [assistant_message("It says: bonjour.")]]
    return Agent(name="Boss", tools=[tool], model=ScriptedModel(steps))


async def example_an_agent_as_a_tool(folder):
    inner = _inner([assistant_message("bonjour")])
    tool = inner.as_tool(tool_name="translate", tool_description="To French.")
    agent = _outer(tool, {"input": "hello"})
    result = await Runner.run(agent, "How do I say hello?")
    return result, tool.params_json_schema, inner.model.last_call.input, agent.model.last_call.input


async def example_choosing_what_comes_back(folder):
    async def shouted(result: RunResult) -> str:
        return str(result.final_output).upper()

    inner = _inner([assistant_message("bonjour")])
    tool = inner.as_tool("translate", "To French.", custom_output_extractor=shouted)
    result = await Runner.run(_outer(tool, {"input": "hello"}), "Go")
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


async def example_a_tool_inside_and_the_cost_of_both(folder):
    @function_tool
    def dictionary(word: str) -> str:
        """Look it up."""
        return "bonjour"

    cost = Usage(requests=1, input_tokens=5, output_tokens=1, total_tokens=6)
    inner = _inner(
        ModelStep(output=[function_call("dictionary", {"word": "hello"}, call_id="d1")], usage=cost),
        ModelStep(output=[assistant_message("bonjour")], usage=cost),
        tools=[dictionary],
    )
    result = await Runner.run(_outer(inner.as_tool("translate", "To French."), {"input": "hello"}), "Go")
    usage = result.context_wrapper.usage
    return result, usage.requests, usage.total_tokens


async def example_watching_the_inner_run(folder):
    seen: list[Any] = []

    async def watch(event: AgentToolStreamEvent) -> None:
        kind = event["event"].type
        if kind != "raw_response_event":
            seen.append((event["agent"].name, event["tool_call"].call_id, kind))

    inner = _inner([assistant_message("bonjour")])
    tool = inner.as_tool("translate", "To French.", on_stream=watch)
    result = await Runner.run(_outer(tool, {"input": "hello"}), "Go")
    streamed = Runner.run_streamed(
        _outer(_inner([assistant_message("salut")]).as_tool("translate", "F"), {"input": "x"}), "Go"
    )
    names = [event.name async for event in streamed.stream_events() if event.type == "run_item_stream_event"]
    return result, seen, names


async def example_structured_input(folder):
    class Wish(BaseModel):
        text: str
        language: str = "French"

    inner = _inner([assistant_message("bonjour")])
    tool = inner.as_tool("translate", "To any language.", parameters=Wish)
    result = await Runner.run(_outer(tool, {"text": "hello", "language": "French"}), "Go")
    return result, tool.params_json_schema, "hello" in str(inner.model.last_call.input)


async def example_switched_off(folder):
    async def only_members(context: RunContextWrapper[Any], agent: Agent[Any]) -> bool:
        return context.context == "member"

    tool = _inner().as_tool("translate", "To French.", is_enabled=only_members)
    seen = []
    for context in ("member", "guest"):
        model = ScriptedModel([[assistant_message("ok")]])
        await Runner.run(Agent(name="Boss", tools=[tool], model=model), "Go", context=context)
        seen.append([one.name for one in model.last_call.tools])
    return seen


async def example_an_inner_run_that_fails(folder):
    inner = _inner(RuntimeError("no dictionary"))
    agent = _outer(inner.as_tool("translate", "To French."), {"input": "hello"})
    result = await Runner.run(agent, "Go")
    other = _inner(RuntimeError("no dictionary")).as_tool("translate", "To French.", failure_error_function=None)
    try:
        await Runner.run(_outer(other, {"input": "hello"}), "Go")
    except Exception as error:
        return result.final_output, [item.type for item in result.new_items], error
