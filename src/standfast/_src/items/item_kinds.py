"""The table of item kinds: from the type on the wire to the name in a run and the class of the run item.

The wire type does not tell a handoff from a function call, nor a completed handoff from any other output: that needs
the agent's handoffs, so the caller names these kinds. All other kinds are listed here, so that a restored run uses the
same kinds as the original run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from standfast._src.base.json_values import JsonValue
from standfast._src.items.items import (
    CompactionItem,
    HandoffCallItem,
    MCPApprovalRequestItem,
    MCPApprovalResponseItem,
    MCPListToolsItem,
    MessageOutputItem,
    RawItem,
    ReasoningItem,
    RunItem,
    ToolCallItem,
    ToolCallOutputItem,
    ToolSearchCallItem,
    ToolSearchOutputItem,
    read,
)


@dataclass(frozen=True, slots=True)
class ItemKind:
    """A kind of item: its public name in a run, its class, and the hosted flag."""

    name: str
    shown_as: Callable[..., RunItem]
    """The run item class: called with an agent and the raw item."""
    is_hosted: bool = False
    """True if a provider's own tool was at work: a reply with nothing else in it is not an answer yet."""


TOOL_CALL = ItemKind("tool_call_item", ToolCallItem, is_hosted=True)
"""Kind of all other items: a tool of the provider's, or an item newer than this release. It is kept (A16)."""

KINDS: dict[str, ItemKind] = {
    "message": ItemKind("message_output_item", MessageOutputItem),
    "reasoning": ItemKind("reasoning_item", ReasoningItem),
    "tool_search_call": ItemKind("tool_search_call_item", ToolSearchCallItem, is_hosted=True),
    "tool_search_output": ItemKind("tool_search_output_item", ToolSearchOutputItem, is_hosted=True),
    "program_output": ItemKind("tool_call_output_item", ToolCallOutputItem, is_hosted=True),
    "mcp_list_tools": ItemKind("mcp_list_tools_item", MCPListToolsItem, is_hosted=True),
    "mcp_approval_request": ItemKind("mcp_approval_request_item", MCPApprovalRequestItem),
    "mcp_approval_response": ItemKind("mcp_approval_response_item", MCPApprovalResponseItem),
    "compaction": ItemKind("compaction_item", CompactionItem),
}
"""By the item's `type` on the wire."""

_CLASSES: dict[str, Callable[..., RunItem]] = {kind.name: kind.shown_as for kind in (*KINDS.values(), TOOL_CALL)} | {
    "handoff_call_item": HandoffCallItem
}


def kind_of(item: object) -> ItemKind:
    """The kind of an item of a reply or a history; an item without a type but with a role is a message."""
    wire = read(item, "type") or ("message" if read(item, "role") is not None else None)
    return KINDS.get(str(wire), TOOL_CALL)


def output_of(item: object) -> JsonValue:
    """Return the result of a call: a tool's output, or the result of a program run by the provider."""
    return read(item, "result" if read(item, "type") == "program_output" else "output")


def build_run_item(kind_name: str, agent: object, raw_item: RawItem) -> RunItem:
    """Build the run item of a known kind from a raw item."""
    if kind_name == "tool_call_output_item":
        return ToolCallOutputItem(agent, raw_item, output_of(raw_item))
    return _CLASSES.get(kind_name, ToolCallItem)(agent, raw_item)
