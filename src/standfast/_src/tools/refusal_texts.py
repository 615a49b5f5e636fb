"""Texts for the model about calls that did not run as asked, and their replacement by an application.

A formatter that raises, or returns anything but text, must not cost the run its history: the default is used and the
fault is logged, without the content of the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Generic, Literal

from standfast._src.agents.context import RunContextWrapper, TContext
from standfast._src.base.aio import maybe_await
from standfast._src.base.logs import logger
from standfast._src.items.texts_for_models import DEFAULT_TEXTS, model_text

ErrorKind = Literal["approval_rejected", "tool_not_found", "tool_exception"]
ToolKind = Literal["function", "computer", "shell", "apply_patch", "custom"]


@dataclass
class ToolErrorFormatterArgs(Generic[TContext]):
    """Argument of a `RunConfig.tool_error_formatter`."""

    kind: ErrorKind
    tool_type: ToolKind
    tool_name: str
    call_id: str
    default_message: str
    run_context: RunContextWrapper[TContext]
    error: Exception | None = None
    """The tool's error, for `tool_exception`."""


ToolErrorFormatter = Callable[[ToolErrorFormatterArgs[Any]], "Awaitable[str | None] | str | None"]
"""Replaces a text that a model would read about a call; None keeps the default."""

# The sentence as it is unless the application has set another; `_src.items.texts_for_models` has it.
REJECTED = DEFAULT_TEXTS.call_rejected


def not_found_text(tool_name: str) -> str:
    """Return the text for a model that called an unknown tool."""
    return model_text("tool_not_found", tool_name=tool_name)


async def format_error(formatter: ToolErrorFormatter | None, args: ToolErrorFormatterArgs[Any]) -> str:
    """Return the formatter's text; the default if the formatter declines, fails or returns no text."""
    if formatter is None:
        return args.default_message
    try:
        text: Any = formatter(args)
        text = await maybe_await(text)
    except Exception as error:  # an application's formatter may raise anything
        logger.warning("tool_error_formatter raised %s; the default text is used", type(error).__name__)
        return args.default_message
    if text is not None and not isinstance(text, str):
        logger.warning("tool_error_formatter returned a %s; the default text is used", type(text).__name__)
    return text if isinstance(text, str) else args.default_message


async def rejection_text(
    ctx: RunContextWrapper[Any],
    *,
    tool_name: str,
    call_id: str,
    message: str | None = None,
    formatter: ToolErrorFormatter | None = None,
    tool_type: ToolKind = "function",
) -> str:
    """Return the text about a rejected call: the person's, else the formatter's, else the default."""
    if message is not None:
        return message
    return await format_error(
        formatter,
        ToolErrorFormatterArgs("approval_rejected", tool_type, tool_name, call_id, model_text("call_rejected"), ctx),
    )


async def unknown_tool_text(
    ctx: RunContextWrapper[Any], *, tool_name: str, call_id: str, formatter: ToolErrorFormatter | None = None
) -> str:
    """Return the text about an invented tool, with `tool_not_found_behavior="return_error_to_model"`."""
    default = not_found_text(tool_name)
    return await format_error(
        formatter, ToolErrorFormatterArgs("tool_not_found", "function", tool_name, call_id, default, ctx)
    )
