"""Agents as tools of other agents: definition, input, and conversion of the nested run's result to the call's output.

The nested run itself belongs to a higher layer. It finds an `AgentTool` on the function tool, puts `run_agent` on the
call's context, and the tool asks it, with an `AgentToolRun`, for a result. If the nested run has to wait for a person,
`ChildPaused` is raised through the call; a later attempt at the call continues the same nested run.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypedDict

from standfast._src.agents.context import AnyAgent, NamedAgent
from standfast._src.agents.hooks import RunHooks, check_hooks
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig, check_max_turns, coerce_run_config
from standfast._src.agents.tool_context import ToolContext
from standfast._src.agents.tool_input import StructuredToolInputBuilder, ToolArguments
from standfast._src.base.aio import cancel, maybe_await
from standfast._src.base.errors import InvalidSettingError, OwnerError, UserError
from standfast._src.base.json_values import Item
from standfast._src.base.logs import logger
from standfast._src.base.type_names import describe_type
from standfast._src.items.items import (
    ItemHelpers,
    MessageOutputItem,
    RawItem,
    RunItem,
    ToolCallOutputItem,
    ToolOrigin,
    ToolOriginType,
)
from standfast._src.sessions.protocol import Session
from standfast._src.tools.function_tool import FunctionTool, Invoker, ToolEnabled, ToolNeedsApproval
from standfast._src.tools.local_tool import ToolErrorFunction
from standfast._src.tools.tool_names import function_style

DEFAULT_TOOL_TURNS = DEFAULT_MAX_TURNS
"""Default turn limit of an agent used as a tool."""


class AgentToolStreamEvent(TypedDict):
    """Argument of an `on_stream` function."""

    event: Any
    """The event of the inner run: a `StreamEvent`."""

    agent: AnyAgent
    """The inner agent of the event."""

    tool_call: RawItem
    """The call that the inner run answers."""


@dataclass
class AgentTool:
    """Settings of an agent as a tool; made by `Agent.as_tool`."""

    agent: AnyAgent
    name: str | None = None
    description: str | None = None
    custom_output_extractor: Callable[[Any], Awaitable[str]] | None = None
    on_stream: Callable[[AgentToolStreamEvent], Awaitable[None] | None] | None = None
    on_stream_max_pending_events: int | None = 1024
    run_config: RunConfig | None = None
    """None: that of the outer run."""

    max_turns: int | None = DEFAULT_TOOL_TURNS
    """None: no limit."""

    hooks: RunHooks[Any] | None = None
    previous_response_id: str | None = None
    conversation_id: str | None = None
    session: Session | None = None
    parameters: type[Any] | None = None
    input_builder: StructuredToolInputBuilder | None = None
    include_input_schema: bool = False

    def __post_init__(self) -> None:
        if self.on_stream is not None and not callable(self.on_stream):
            raise UserError(
                f"on_stream is {describe_type(self.on_stream)}", "Give a function; run_config=... is a keyword."
            )
        pending = self.on_stream_max_pending_events
        if pending is not None and pending < 1:
            raise InvalidSettingError(f"on_stream cannot have {pending} events waiting", "Give 1 or more, or None.")
        check_max_turns(self.max_turns)
        check_hooks(self.hooks)
        if self.run_config is not None:
            self.run_config = coerce_run_config(self.run_config)
        owners = [name for name in ("previous_response_id", "conversation_id", "session") if getattr(self, name)]
        if len(owners) > 1:
            named = self.name or self.agent.name
            raise OwnerError(
                f"the conversation of agent tool {named!r} has two owners: {' and '.join(owners)}",
                "Give one of them.",
            )


@dataclass(frozen=True)
class AgentToolRun:
    """Request for a nested run, passed to `ToolContext.run_agent`."""

    tool: AgentTool
    input: str | list[Item]
    tool_input: Any
    """Value of `context.tool_input` in the inner run; None for the usual single `input`."""

    context: ToolContext[Any]
    """The context of the outer call; `context.for_child(tool_input)` makes that of the inner run."""


class AgentToolResult(Protocol):
    """Part of a nested run's result needed for the call's output; `RunResult` has it."""

    @property
    def final_output(self) -> Any:
        """Return the final output."""
        ...

    @property
    def new_items(self) -> Sequence[RunItem]:
        """Return the new items of the run."""
        ...

    @property
    def output_guardrail_results(self) -> Sequence[object]:
        """Return the results of output guardrails."""
        ...


RunAgentTool: TypeAlias = Callable[[AgentToolRun], Awaitable[AgentToolResult]]
"""Runs an agent as a tool."""


def make_agent_tool(
    described: AgentTool,
    *,
    is_enabled: ToolEnabled,
    failure_error_function: ToolErrorFunction | None,
    needs_approval: ToolNeedsApproval,
) -> FunctionTool:
    """Build the function tool that runs an agent."""
    name = described.name or function_style(described.agent.name)
    arguments_of = ToolArguments(
        name, described.parameters, described.input_builder, shows_schema=described.include_input_schema
    )

    async def run(ctx: ToolContext[Any], arguments: str) -> Any:
        input, tool_input = await arguments_of.read(arguments)
        if not isinstance(ctx, ToolContext):  # a program that calls a tool itself may have no more than a run's context
            call_id = f"call_{uuid.uuid4().hex}"
            ctx = ToolContext.from_agent_context(ctx, call_id, tool_name=name, tool_arguments=arguments)
        run_agent = ctx.run_agent or _outside_a_run(name)
        result = await run_agent(AgentToolRun(described, input, tool_input, ctx))
        return await output_of(described, result)

    return FunctionTool(
        name=name,
        description=described.description or "",
        params_json_schema=arguments_of.schema,
        on_invoke_tool=Invoker(run, None, prepare=arguments_of.prepare),
        is_enabled=is_enabled,
        needs_approval=needs_approval,
        failure_error_function=failure_error_function,
        origin=ToolOrigin(ToolOriginType.AGENT_AS_TOOL, agent_name=described.agent.name, agent_tool_name=name),
        agent_tool=described,
    )


_run_by_hand: RunAgentTool | None = None


def set_run_by_hand(run_agent: RunAgentTool) -> None:
    """Set the function that runs an agent whose tool a program calls itself, outside any run.

    A higher layer sets it (`_src.runs.api.direct_tool_call`), because running is above this layer.
    """
    global _run_by_hand
    _run_by_hand = run_agent


def _outside_a_run(name: str) -> RunAgentTool:
    if _run_by_hand is None:
        raise UserError(
            f"agent tool {name!r} was called outside a run, and nothing that runs agents is loaded",
            "Import Agent from standfast: that loads it.",
        )
    return _run_by_hand


async def output_of(described: AgentTool, result: AgentToolResult) -> Any:
    """Convert the result of a nested run to the call's output.

    In this order: the extractor's value; the final output; if empty, the last text of the run, unless output guardrails
    have judged the run: text that they have not seen must not stand in for text that they have.
    """
    if described.custom_output_extractor is not None:
        return await described.custom_output_extractor(result)
    final = result.final_output
    if (final is not None and final != "") or result.output_guardrail_results:
        return final
    for item in reversed(result.new_items):
        text = ""
        if isinstance(item, MessageOutputItem):
            text = ItemHelpers.text_message_output(item)
        elif isinstance(item, ToolCallOutputItem) and isinstance(item.output, str):
            text = item.output
        if text:
            return text
    return final


# --- events ----------------------------------------------------------------------------------------------------------


async def relay_events(
    events: AsyncIterator[Any],
    on_stream: Callable[[AgentToolStreamEvent], Awaitable[None] | None],
    *,
    agent: NamedAgent,
    tool_call: RawItem,
    max_pending: int | None,
) -> None:
    """Pass every event of a nested run to `on_stream`, in order, without blocking the run.

    Returns once all have been passed. An error of `on_stream` is logged, and the next event follows. If `on_stream`
    falls `max_pending` events behind, UserError is raised here, and no further event is passed.
    """
    waiting: asyncio.Queue[AgentToolStreamEvent | None] = asyncio.Queue()
    courier = asyncio.ensure_future(_deliver(waiting, on_stream))
    try:
        async for event in events:
            if getattr(event, "type", None) == "agent_updated_stream_event":
                agent = event.new_agent
            if max_pending is not None and waiting.qsize() >= max_pending:
                await asyncio.sleep(0)  # a burst must not count against a courier that had no turn yet
                if waiting.qsize() >= max_pending:
                    raise UserError(
                        f"on_stream is {max_pending} events behind", "Make it faster, or raise the limit of as_tool."
                    )
            waiting.put_nowait({"event": event, "agent": agent, "tool_call": tool_call})
        waiting.put_nowait(None)
        await courier
    finally:
        await cancel([courier])


async def _deliver(
    waiting: asyncio.Queue[AgentToolStreamEvent | None],
    on_stream: Callable[[AgentToolStreamEvent], Awaitable[None] | None],
) -> None:
    while (event := await waiting.get()) is not None:
        try:
            await maybe_await(on_stream(event))
        except Exception as error:  # an observer must not fail what it observes
            logger.warning("on_stream of an agent tool raised %s", type(error).__name__, exc_info=error)
