"""Parts of one's own, as a strict type checker takes them with the SDK: sessions, models, tools, outputs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from agents import (
    Agent,
    AgentOutputSchema,
    AgentOutputSchemaBase,
    CustomTool,
    FunctionTool,
    FunctionToolResult,
    Handoff,
    MessageOutputItem,
    Model,
    ModelProvider,
    ModelResponse,
    ModelSettings,
    ModelTracing,
    ProgrammaticToolCallingTool,
    RunConfig,
    RunContextWrapper,
    Runner,
    StopAtTools,
    Tool,
    ToolApprovalItem,
    ToolCallOutputItem,
    ToolsToFinalOutputResult,
    TResponseInputItem,
    Usage,
    add_trace_processor,
    custom_span,
    function_tool,
    handoff,
)
from agents.items import TResponseStreamEvent
from agents.memory import SessionABC
from agents.tool import CustomToolOnApprovalFunctionResult
from agents.tool_context import ToolContext
from agents.tracing import Span, Trace, TracingProcessor
from openai.types.responses import ResponseTextDeltaEvent
from openai.types.responses.response_prompt_param import ResponsePromptParam
from openai.types.shared import Reasoning
from pydantic import BaseModel


class Listed(SessionABC):
    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._items: list[TResponseInputItem] = []

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        return self._items[-limit:] if limit else list(self._items)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        self._items.extend(items)

    async def pop_item(self) -> TResponseInputItem | None:
        return self._items.pop() if self._items else None

    async def clear_session(self) -> None:
        self._items.clear()


class Silent(Model):
    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        return ModelResponse(output=[], usage=Usage(), response_id=None)

    def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff[Any, Any]],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        raise NotImplementedError


class Own(ModelProvider):
    def get_model(self, model_name: str | None) -> Model:
        return Silent()


class Printing(TracingProcessor):
    def on_trace_start(self, trace: Trace) -> None:
        print(trace.name)

    def on_trace_end(self, trace: Trace) -> None: ...

    def on_span_start(self, span: Span[Any]) -> None: ...

    def on_span_end(self, span: Span[Any]) -> None:
        print(span.span_data.type, span.span_id)

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


@dataclass
class Place:
    name: str


class Reason(BaseModel):
    why: str


async def query(ctx: ToolContext[Place], text: str) -> str:
    return f"{ctx.context.name}: {text}"


async def decide(ctx: RunContextWrapper[Place], item: ToolApprovalItem) -> CustomToolOnApprovalFunctionResult:
    return {"approve": item.name == "query"}


async def by_hand(ctx: ToolContext[Any], arguments: str) -> str:
    return Reason.model_validate_json(arguments).why


def ends(ctx: RunContextWrapper[Place], results: list[FunctionToolResult]) -> ToolsToFinalOutputResult:
    return ToolsToFinalOutputResult(is_final_output=bool(results), final_output=results[0].output)


async def moved(ctx: RunContextWrapper[Place], reason: Reason) -> None:
    ctx.context.name = reason.why


@function_tool(allowed_callers=["programmatic"], output_type=Reason)
async def count(ctx: RunContextWrapper[Place], what: str) -> Reason:
    """Count."""
    with custom_span("counting", {"what": what}):
        return Reason(why=what)


tools: list[Tool] = [
    CustomTool(name="query", description="Ask.", on_invoke_tool=query, needs_approval=True, on_approval=decide),
    FunctionTool(name="why", description="", params_json_schema=Reason.model_json_schema(), on_invoke_tool=by_hand),
    ProgrammaticToolCallingTool(),
    count,
]
second = Agent[Place](name="Second", tool_use_behavior=StopAtTools(stop_at_tool_names=["why"]))
first = Agent[Place](
    name="First",
    tools=tools,
    handoffs=[second, handoff(second, on_handoff=moved, input_type=Reason)],
    output_type=AgentOutputSchema(list[Reason], strict_json_schema=False),
    tool_use_behavior=ends,
    model=Silent(),
    model_settings=ModelSettings(reasoning=Reasoning(effort="low"), verbosity="low"),
)


async def main() -> list[str]:
    add_trace_processor(Printing())
    stream = Runner.run_streamed(
        first, "Hello", context=Place("here"), session=Listed("s"), run_config=RunConfig(model_provider=Own())
    )
    said: list[str] = []
    async for event in stream.stream_events():
        if event.type == "raw_response_event" and isinstance(event.data, ResponseTextDeltaEvent):
            said.append(event.data.delta)
    for item in stream.new_items:
        if isinstance(item, ToolCallOutputItem):
            said.append(str(item.output))
        elif isinstance(item, MessageOutputItem):
            said.append(item.raw_item.id)
    return said
