"""What the OpenAI Agents SDK documents as `agents.items`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.items.items import (
        CompactionItem,
        HandoffCallItem,
        HandoffOutputItem,
        InputItem,
        ItemHelpers,
        MCPApprovalRequestItem,
        MCPApprovalResponseItem,
        MCPListToolsItem,
        MessageOutputItem,
        ModelResponse,
        ReasoningItem,
        RunItem,
        RunItemBase,
        ToolApprovalItem,
        ToolCallItem,
        ToolCallOutputItem,
        ToolSearchCallItem,
        ToolSearchOutputItem,
    )
    from ._src.models.providers.item_types import (
        ToolApprovalRawItem,
        ToolCallItemTypes,
        ToolCallOutputTypes,
        ToolSearchCallRawItem,
        ToolSearchOutputRawItem,
        TResponse,
        TResponseOutputItem,
        TResponseStreamEvent,
        coerce_tool_search_call_raw_item,
        coerce_tool_search_output_raw_item,
    )
    from ._src.sessions.protocol import TResponseInputItem

__all__ = [
    "CompactionItem",
    "HandoffCallItem",
    "HandoffOutputItem",
    "InputItem",
    "ItemHelpers",
    "MCPApprovalRequestItem",
    "MCPApprovalResponseItem",
    "MCPListToolsItem",
    "MessageOutputItem",
    "ModelResponse",
    "ReasoningItem",
    "RunItem",
    "RunItemBase",
    "TResponse",
    "TResponseInputItem",
    "TResponseOutputItem",
    "TResponseStreamEvent",
    "ToolApprovalItem",
    "ToolApprovalRawItem",
    "ToolCallItem",
    "ToolCallItemTypes",
    "ToolCallOutputItem",
    "ToolCallOutputTypes",
    "ToolSearchCallItem",
    "ToolSearchCallRawItem",
    "ToolSearchOutputItem",
    "ToolSearchOutputRawItem",
    "coerce_tool_search_call_raw_item",
    "coerce_tool_search_output_raw_item",
]
__getattr__, __dir__ = lazy(__name__)
