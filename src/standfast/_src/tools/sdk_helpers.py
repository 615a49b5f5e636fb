"""The SDK's small functions about function tools, for programs that wrap tools of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.tool_context import ToolContext
from standfast._src.items.items import ToolOrigin, ToolOriginType
from standfast._src.tools.function_tool import FunctionTool
from standfast._src.tools.local_tool import ToolErrorFunction, failure_text, timeout_text
from standfast._src.tools.refusal_texts import REJECTED

DEFAULT_APPROVAL_REJECTION_MESSAGE = REJECTED
"""Text for the model about a call rejected without a message."""

ToolParams = ParamSpec("ToolParams")
"""Parameters of a function that becomes a tool, as the model gives them."""

ToolFunction = (
    Callable[ToolParams, Any]
    | Callable[Concatenate[RunContextWrapper[Any], ToolParams], Any]
    | Callable[Concatenate[ToolContext[Any], ToolParams], Any]
)
"""A Python function that can be made a tool."""


def default_tool_timeout_error_message(*, tool_name: str, timeout_seconds: float) -> str:
    """Return the default text for the model after a tool's timeout."""
    return timeout_text(tool_name, timeout_seconds)


def get_function_tool_origin(function_tool: FunctionTool) -> ToolOrigin | None:
    """Return the source of a tool: a Python function, an MCP server, an agent."""
    return function_tool.origin or ToolOrigin(ToolOriginType.FUNCTION)


async def invoke_function_tool(
    *, function_tool: FunctionTool, context: ToolContext[Any], arguments: str, **options: object
) -> Any:
    """Call a tool outside a run: its failure function applies, its guardrails and hooks do not."""
    return await function_tool.on_invoke_tool(context, arguments)


def resolve_function_tool_failure_error_function(function_tool: FunctionTool) -> ToolErrorFunction | None:
    """Return the function that describes a failure to the model; None if a failure ends the run."""
    return function_tool.failure_error_function


def set_function_tool_failure_error_function(
    function_tool: FunctionTool, failure_error_function: ToolErrorFunction | None
) -> FunctionTool:
    """Set the function to describe a failure to the model; None ends the run instead."""
    function_tool.failure_error_function = failure_error_function
    return function_tool


async def maybe_invoke_function_tool_failure_error_function(
    *, function_tool: FunctionTool, context: RunContextWrapper[Any], error: Exception
) -> str | None:
    """Return the model's text about a failure; None for a tool without a failure function."""
    if function_tool.failure_error_function is None:
        return None
    return await failure_text(function_tool, context, error)
