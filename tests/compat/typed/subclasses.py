"""What a program overrides, as a strict type checker takes it with the SDK: hooks, handoffs, guardrails, contexts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from agents import (
    Agent,
    AgentBase,
    AgentHookContext,
    AgentHooks,
    Handoff,
    InputGuardrail,
    InputGuardrailResult,
    ModelResponse,
    OutputGuardrail,
    OutputGuardrailResult,
    RunContextWrapper,
    RunHooks,
    Tool,
    ToolApprovalItem,
    ToolGuardrailFunctionOutput,
    ToolOutputGuardrail,
    ToolOutputGuardrailData,
    TResponseInputItem,
)
from agents.items import TResponseOutputItem, TResponseStreamEvent
from agents.tool_context import ToolContext


@dataclass
class Place:
    name: str


class Watching(RunHooks[Place]):
    async def on_llm_end(self, context: RunContextWrapper[Place], agent: Agent[Place], response: ModelResponse) -> None:
        for item in response.output:
            print(said(item))

    async def on_agent_end(self, context: AgentHookContext[Place], agent: Agent[Place], output: Any) -> None:
        print(context.context.name, output)

    async def on_tool_start(self, context: RunContextWrapper[Place], agent: Agent[Place], tool: Tool) -> None:
        print(tool.name)

    async def on_tool_end(
        self, context: RunContextWrapper[Place], agent: Agent[Place], tool: Tool, result: object
    ) -> None:
        print(tool.name, result)


class OfOne(AgentHooks[Place]):
    async def on_end(self, context: AgentHookContext[Place], agent: Agent[Place], output: Any) -> None: ...

    async def on_tool_start(self, context: RunContextWrapper[Place], agent: Agent[Place], tool: Tool) -> None: ...


class Politely(Handoff[Place, Agent[Place]]):
    def get_transfer_message(self, agent: AgentBase[Any]) -> str:
        return f"You now talk to {agent.name}."

    @classmethod
    def default_tool_name(cls, agent: AgentBase[Any]) -> str:
        return f"ask_{agent.name}"


class Before(InputGuardrail[Place]):
    async def run(
        self, agent: Agent[Any], input: str | list[TResponseInputItem], context: RunContextWrapper[Place]
    ) -> InputGuardrailResult:
        return await super().run(agent, input, context)


class After(OutputGuardrail[Place]):
    async def run(
        self, context: RunContextWrapper[Place], agent: Agent[Any], agent_output: Any
    ) -> OutputGuardrailResult:
        return await super().run(context, agent, agent_output)


class AfterTool(ToolOutputGuardrail[Place]):
    async def run(self, data: ToolOutputGuardrailData) -> ToolGuardrailFunctionOutput:
        return ToolGuardrailFunctionOutput.allow(output_info={"agent": data.agent.name})


class Deciding(ToolContext[Place]):
    def approve_tool(self, approval_item: ToolApprovalItem, always_approve: bool = False) -> None:
        super().approve_tool(approval_item, always_approve=False)


def said(item: TResponseOutputItem) -> str:
    if item.type == "function_call":
        return item.arguments
    return item.content[0].type if item.type == "message" else ""


def heard(event: TResponseStreamEvent) -> str:
    return event.delta if event.type == "response.output_text.delta" else ""
