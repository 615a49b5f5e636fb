"""What the OpenAI Agents SDK documents as `agents.items`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .sessions.protocol import TResponseInputItem
    from .words.items import (
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
        ToolApprovalItem,
        ToolCallItem,
        ToolCallOutputItem,
        ToolSearchCallItem,
        ToolSearchOutputItem,
        TResponseOutputItem,
    )

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
    "TResponseInputItem",
    "TResponseOutputItem",
    "ToolApprovalItem",
    "ToolCallItem",
    "ToolCallOutputItem",
    "ToolSearchCallItem",
    "ToolSearchOutputItem",
]
__getattr__, __dir__ = lazy(__name__)
