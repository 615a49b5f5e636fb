"""Filters of a server's tools: lists of names, or a function asked about each tool."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NotRequired, TypeAlias, TypedDict

from standfast._src.agents.context import RunContextWrapper
from standfast._src.base.aio import maybe_await
from standfast._src.base.errors import SettingTypeError, UserError
from standfast._src.base.logs import logger
from standfast._src.base.type_names import describe_type
from standfast._src.tools.mcp_names import redact

if TYPE_CHECKING:
    from mcp.types import Tool as MCPTool

    from standfast._src.agents.agent import AgentBase


@dataclass
class ToolFilterContext:
    """Context of a filter function besides the tool: the run, the agent, and the server's name."""

    run_context: RunContextWrapper[Any]
    agent: Any
    server_name: str


ToolFilterCallable: TypeAlias = "Callable[[ToolFilterContext, MCPTool], bool | Awaitable[bool]]"
"""Decides about one tool. Where it raises, the agent does not get the tool."""


class ToolFilterStatic(TypedDict):
    """Names of allowed tools, of blocked tools, or both; blocked names have precedence."""

    allowed_tool_names: NotRequired[list[str]]
    blocked_tool_names: NotRequired[list[str]]


ToolFilter: TypeAlias = "ToolFilterCallable | ToolFilterStatic | None"
"""Forms of a server's `tool_filter`; None lets every tool through."""


def create_static_tool_filter(
    allowed_tool_names: list[str] | None = None, blocked_tool_names: list[str] | None = None
) -> ToolFilterStatic | None:
    """Build a filter by names; None without lists."""
    if allowed_tool_names is None and blocked_tool_names is None:
        return None
    made: ToolFilterStatic = {}
    if allowed_tool_names is not None:
        made["allowed_tool_names"] = allowed_tool_names
    if blocked_tool_names is not None:
        made["blocked_tool_names"] = blocked_tool_names
    return made


def check_filter(given: object) -> None:
    """Raise for an invalid filter: silently letting every tool through would be worse than no filter."""
    if given is None or callable(given):
        return
    unknown = set(given) - set(ToolFilterStatic.__annotations__) if isinstance(given, dict) else None
    if unknown is None or unknown:
        raise SettingTypeError(
            f"a tool_filter with {', '.join(sorted(map(str, unknown)))} is none"
            if unknown
            else f"{describe_type(given)} is no tool_filter",
            "Give create_static_tool_filter(...), or a function of a ToolFilterContext and a tool.",
        )


async def apply_filter(
    tools: list[MCPTool],
    given: ToolFilter,
    server_name: str,
    run_context: RunContextWrapper[Any] | None,
    agent: AgentBase[Any] | None,
) -> list[MCPTool]:
    """Return the tools that pass the filter, in their order."""
    if given is None:
        return tools
    if isinstance(given, dict):
        allowed, blocked = given.get("allowed_tool_names"), given.get("blocked_tool_names", [])
        return [tool for tool in tools if (allowed is None or tool.name in allowed) and tool.name not in blocked]
    if run_context is None or agent is None:
        raise UserError(
            "a function as tool_filter needs the run and the agent that ask",
            "Call list_tools(run_context, agent), or use a filter by names.",
        )
    context, kept = ToolFilterContext(run_context, agent, server_name), []
    for tool in tools:
        try:  # asked about a copy: a filter that changes what it looks at must not change what is offered
            if await maybe_await(given(context, tool.model_copy(deep=True))):
                kept.append(tool)
        except Exception as error:  # an application's function may raise anything; what it did not allow is not offered
            logger.error(
                "the tool_filter of MCP server %r raised %s about tool %r; the tool is left out",
                redact(server_name),
                type(error).__name__,
                tool.name,
            )
    return kept
