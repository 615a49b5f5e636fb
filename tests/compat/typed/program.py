"""A program that a strict type checker takes with the OpenAI Agents SDK; it is only checked, never run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from agents import (
    Agent,
    AgentHooks,
    GuardrailFunctionOutput,
    HandoffInputData,
    InputGuardrailTripwireTriggered,
    ItemHelpers,
    ModelSettings,
    RunConfig,
    RunContextWrapper,
    RunHooks,
    Runner,
    RunResult,
    RunResultStreaming,
    RunState,
    SQLiteSession,
    Tool,
    TResponseInputItem,
    Usage,
    function_tool,
    handoff,
    input_guardrail,
    output_guardrail,
    trace,
)
from agents.extensions.handoff_filters import remove_all_tools
from agents.tool_context import ToolContext
from pydantic import BaseModel


@dataclass
class Customer:
    name: str
    visits: int = 0


class Answer(BaseModel):
    text: str
    sure: bool


@function_tool
def visits(ctx: RunContextWrapper[Customer], more: int) -> str:
    """How often the customer came."""
    ctx.context.visits += more
    return f"{ctx.context.name}: {ctx.context.visits}"


@function_tool(needs_approval=True)
async def refund(ctx: ToolContext[Customer], cents: int) -> str:
    """Give money back."""
    return f"{ctx.tool_call_id}: {cents}"


def instructions(ctx: RunContextWrapper[Customer], agent: Agent[Customer]) -> str:
    return f"You are {agent.name} and talk to {ctx.context.name}."


@input_guardrail
async def polite(
    ctx: RunContextWrapper[Customer], agent: Agent[Any], input: str | list[TResponseInputItem]
) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="!" in str(input))


@output_guardrail
async def sure(ctx: RunContextWrapper[Customer], agent: Agent[Any], output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(output_info={"sure": True}, tripwire_triggered=False)


class Counting(RunHooks[Customer]):
    def __init__(self) -> None:
        self.tools: list[str] = []

    async def on_tool_start(self, context: RunContextWrapper[Customer], agent: Agent[Customer], tool: Tool) -> None:
        self.tools.append(tool.name)


class Greeting(AgentHooks[Customer]):
    async def on_start(self, context: Any, agent: Agent[Customer]) -> None:
        context.context.visits += 1


def only_messages(data: HandoffInputData) -> HandoffInputData:
    return remove_all_tools(data)


billing = Agent[Customer](name="Billing", instructions=instructions, tools=[refund], output_type=Answer)
desk: Agent[Customer] = Agent(
    name="Desk",
    instructions=instructions,
    tools=[visits, billing.as_tool(tool_name="ask_billing", tool_description="Ask.")],
    handoffs=[handoff(billing, input_filter=only_messages)],
    input_guardrails=[polite],
    output_guardrails=[sure],
    hooks=Greeting(),
    model_settings=ModelSettings(temperature=0.2),
)


async def watch(result: RunResultStreaming) -> list[str]:
    texts: list[str] = []
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.item.type == "message_output_item":
            texts.append(ItemHelpers.text_message_output(event.item))
        elif event.type == "agent_updated_stream_event":
            texts.append(event.new_agent.name)
    return texts


async def resumed(result: RunResult, customer: Customer) -> RunResult:
    state: RunState[Customer] = result.to_state()
    for item in state.get_interruptions():
        state.approve(item, always_approve=False)
    text: str = state.to_string()
    again = await RunState.from_string(desk, text)
    return await Runner.run(desk, again, context=customer)


async def main() -> int:
    customer, hooks = Customer("Ada"), Counting()
    session = SQLiteSession("ada")
    config = RunConfig(workflow_name="Desk", trace_metadata={"shop": "1"})
    with trace("Desk", group_id="ada"):
        try:
            result = await Runner.run(
                desk, "Hello", context=customer, session=session, hooks=hooks, run_config=config, max_turns=3
            )
        except InputGuardrailTripwireTriggered as error:
            print(error.guardrail_result.output.output_info)
            return 1
    while result.interruptions:
        result = await resumed(result, customer)
    answer: Answer = result.final_output_as(Answer)
    usage: Usage = result.context_wrapper.usage
    items: list[TResponseInputItem] = result.to_input_list()
    print(answer.text, usage.input_tokens_details.cached_tokens, len(items), result.last_agent.name)
    print(await watch(Runner.run_streamed(desk, items, context=customer)))
    return len(await session.get_items(limit=2))


if __name__ == "__main__":
    asyncio.run(main())
