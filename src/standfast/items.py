"""What the OpenAI Agents SDK documents as `agents.items`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.items.items import (
        CompactionItem as CompactionItem,
        HandoffCallItem as HandoffCallItem,
        HandoffOutputItem as HandoffOutputItem,
        InputItem as InputItem,
        ItemHelpers as ItemHelpers,
        MCPApprovalRequestItem as MCPApprovalRequestItem,
        MCPApprovalResponseItem as MCPApprovalResponseItem,
        MCPListToolsItem as MCPListToolsItem,
        MessageOutputItem as MessageOutputItem,
        ModelResponse as ModelResponse,
        ReasoningItem as ReasoningItem,
        RunItem as RunItem,
        RunItemBase as RunItemBase,
        ToolApprovalItem as ToolApprovalItem,
        ToolCallItem as ToolCallItem,
        ToolCallOutputItem as ToolCallOutputItem,
        ToolSearchCallItem as ToolSearchCallItem,
        ToolSearchOutputItem as ToolSearchOutputItem,
    )
    from ._src.models.providers.item_types import (
        ToolApprovalRawItem as ToolApprovalRawItem,
        ToolCallItemTypes as ToolCallItemTypes,
        ToolCallOutputTypes as ToolCallOutputTypes,
        ToolSearchCallRawItem as ToolSearchCallRawItem,
        ToolSearchOutputRawItem as ToolSearchOutputRawItem,
        TResponse as TResponse,
        TResponseOutputItem as TResponseOutputItem,
        TResponseStreamEvent as TResponseStreamEvent,
        coerce_tool_search_call_raw_item as coerce_tool_search_call_raw_item,
        coerce_tool_search_output_raw_item as coerce_tool_search_output_raw_item,
    )
    from ._src.sessions.protocol import TResponseInputItem as TResponseInputItem

__getattr__, __dir__ = lazy(__name__)
