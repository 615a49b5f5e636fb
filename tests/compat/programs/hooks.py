"""Being told what happens."""

from __future__ import annotations

from typing import Any

from agents import Agent, AgentHooks, RunContextWrapper, RunHooks, Runner, Tool, function_tool
from agents.lifecycle import AgentHooksBase, RunHooksBase
from agents.run_context import RunContextWrapper as SameWrapper
from agents.testing import ScriptedModel, assistant_message, function_call
from agents.tool_context import ToolContext


class Log(RunHooks):
    def __init__(self) -> None:
        self.lines: list[Any] = []

    async def on_agent_start(self, context, agent) -> None:
        self.lines.append(("start", agent.name, type(context).__name__, isinstance(context, RunContextWrapper)))

    async def on_agent_end(self, context, agent, output: Any) -> None:
        self.lines.append(("end", agent.name, output, context.usage.requests))

    async def on_handoff(self, context, from_agent, to_agent) -> None:
        self.lines.append(("handoff", from_agent.name, to_agent.name))

    async def on_tool_start(self, context, agent, tool: Tool) -> None:
        self.lines.append(("tool", tool.name, isinstance(context, ToolContext), context.tool_call_id))

    async def on_tool_end(self, context, agent, tool: Tool, result: Any) -> None:
        self.lines.append(("tool end", tool.name, result))

    async def on_llm_start(self, context, agent, system_prompt, input_items) -> None:
        self.lines.append(("llm", agent.name, system_prompt, len(input_items)))

    async def on_llm_end(self, context, agent, response) -> None:
        self.lines.append(("llm end", agent.name, len(response.output)))


class OwnLog(AgentHooks):
    def __init__(self, lines: list[Any]) -> None:
        self.lines = lines

    async def on_start(self, context, agent) -> None:
        self.lines.append(("own start", agent.name))

    async def on_end(self, context, agent, output) -> None:
        self.lines.append(("own end", agent.name, output))

    async def on_handoff(self, context, agent, source) -> None:
        self.lines.append(("own handoff", agent.name, source.name))

    async def on_tool_start(self, context, agent, tool) -> None:
        self.lines.append(("own tool", agent.name, tool.name))

    async def on_tool_end(self, context, agent, tool, result) -> None:
        self.lines.append(("own tool end", agent.name, tool.name, result))

    async def on_llm_start(self, context, agent, system_prompt, input_items) -> None:
        self.lines.append(("own llm", agent.name))

    async def on_llm_end(self, context, agent, response) -> None:
        self.lines.append(("own llm end", agent.name))


@function_tool
def clock() -> str:
    """The time."""
    return "noon"


def _pair(lines: list[Any]) -> Agent[Any]:
    second = Agent(
        name="Second", hooks=OwnLog(lines), instructions="2", model=ScriptedModel([[assistant_message("Noon.")]])
    )
    steps = [[function_call("clock", {}, call_id="c1")], [function_call("transfer_to_second", {}, call_id="h1")]]
    return Agent(name="First", tools=[clock], handoffs=[second], instructions="1", model=ScriptedModel(steps))


async def example_hooks_of_a_run_and_of_an_agent(folder):
    log, own = Log(), []
    result = await Runner.run(_pair(own), "Time?", hooks=log)
    return result, log.lines, own, issubclass(Log, RunHooksBase), issubclass(OwnLog, AgentHooksBase)


async def example_hooks_while_streaming(folder):
    log, own = Log(), []
    result = Runner.run_streamed(_pair(own), "Time?", hooks=log)
    async for _ in result.stream_events():
        pass
    return log.lines, own, SameWrapper is RunContextWrapper


async def example_hooks_of_an_agent_with_a_tool(folder):
    lines: list[Any] = []
    steps = [[function_call("clock", {}, call_id="c1")], [assistant_message("Noon.")]]
    await Runner.run(Agent(name="A", hooks=OwnLog(lines), tools=[clock], model=ScriptedModel(steps)), "Time?")
    return lines


async def example_a_hook_that_fails(folder):
    class Broken(RunHooks):
        async def on_tool_start(self, context, agent, tool) -> None:
            raise RuntimeError("the log is full")

    steps = [[function_call("clock", {}, call_id="c1")], [assistant_message("Noon.")]]
    try:
        await Runner.run(Agent(name="A", tools=[clock], model=ScriptedModel(steps)), "Time?", hooks=Broken())
    except Exception as error:
        return isinstance(error, Exception)
