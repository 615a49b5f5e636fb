"""The SDK's names for provider types: openai's own types for a type checker.

At run time they are `Any`: a program that only annotates with them needs no package of a provider. An item of a run may
also be a plain dict with readable attributes (`ReadableItem`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from openai.types.responses import (
        Response,
        ResponseCodeInterpreterToolCall,
        ResponseComputerToolCall,
        ResponseCustomToolCall,
        ResponseFileSearchToolCall,
        ResponseFunctionShellToolCall,
        ResponseFunctionShellToolCallOutput,
        ResponseFunctionToolCall,
        ResponseFunctionWebSearch,
        ResponseOutputItem,
        ResponseStreamEvent,
        ResponseToolSearchCall,
        ResponseToolSearchOutputItem,
    )
    from openai.types.responses.response_input_item_param import (
        ComputerCallOutput,
        FunctionCallOutput,
        LocalShellCallOutput,
    )
    from openai.types.responses.response_output_item import (
        ImageGenerationCall,
        LocalShellCall,
        McpApprovalRequest,
        McpCall,
        Program,
        ProgramOutput,
    )

    TResponse: TypeAlias = Response
    TResponseOutputItem: TypeAlias = ResponseOutputItem
    TResponseStreamEvent: TypeAlias = ResponseStreamEvent
    ToolCallItemTypes: TypeAlias = (
        ResponseFunctionToolCall
        | ResponseComputerToolCall
        | ResponseFileSearchToolCall
        | ResponseFunctionWebSearch
        | McpCall
        | ResponseCodeInterpreterToolCall
        | ImageGenerationCall
        | LocalShellCall
        | Program
        | dict[str, Any]
    )
    ToolCallOutputTypes: TypeAlias = (
        FunctionCallOutput
        | ComputerCallOutput
        | LocalShellCallOutput
        | ResponseFunctionShellToolCallOutput
        | ProgramOutput
        | dict[str, Any]
    )
    ToolApprovalRawItem: TypeAlias = (
        ResponseFunctionToolCall
        | ResponseCustomToolCall
        | ResponseFunctionShellToolCall
        | McpCall
        | McpApprovalRequest
        | LocalShellCall
        | dict[str, Any]
    )
    ToolSearchCallRawItem: TypeAlias = ResponseToolSearchCall | dict[str, Any]
    ToolSearchOutputRawItem: TypeAlias = ResponseToolSearchOutputItem | dict[str, Any]
else:
    TResponse = Any
    """A whole reply as a provider gives it."""

    TResponseOutputItem = Any
    """An item as a model gives it."""

    TResponseStreamEvent = Any
    """One event of a reply that is streamed."""

    ToolCallItemTypes = Any
    """A call of a tool as a model gives it: a typed provider object or a plain dict."""

    ToolCallOutputTypes = Any
    """The output of a call as it is sent."""

    ToolApprovalRawItem = Any
    """A call that waits for a person, as a model gave it."""

    ToolSearchCallRawItem = Any
    """A search among tools, as a model gives it."""

    ToolSearchOutputRawItem = Any
    """What a search among tools found, as a model gives it."""


def coerce_tool_search_call_raw_item(raw_item: ToolSearchCallRawItem | Mapping[str, Any]) -> ToolSearchCallRawItem:
    """Copy a mapping to a dict; return a typed tool search unchanged."""
    return dict(raw_item) if isinstance(raw_item, Mapping) else raw_item


def coerce_tool_search_output_raw_item(
    raw_item: ToolSearchOutputRawItem | Mapping[str, Any],
) -> ToolSearchOutputRawItem:
    """Copy a mapping to a dict; return a typed result of a tool search unchanged."""
    return dict(raw_item) if isinstance(raw_item, Mapping) else raw_item
