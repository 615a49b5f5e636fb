"""The one table of item kinds: what an item of the wire is called in a run, and the class that shows it.

An item's `type` on the wire does not say everything: whether a function call is a handoff, and whether its output
completed one, is known only to who knows the agent's handoffs. Those kinds are named by the caller; all others are
here, so that a run that is read back calls an item what it was called when it arrived.
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
    """One kind of item: its public name in a run, its class, and whether a provider's own tool made it."""

    name: str
    shown_as: Callable[..., RunItem]
    """The run item class: called with an agent and the raw item."""
    is_hosted: bool = False
    """Whether a provider's tool was at work, so that a reply with nothing else in it is no answer yet."""


TOOL_CALL = ItemKind("tool_call_item", ToolCallItem, is_hosted=True)
"""What is nothing else: a tool of the provider's, or something newer than this release. It is kept (A16)."""

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
    """What an item says that a call came to: a tool's output, or the result of a program that the provider ran."""
    return read(item, "result" if read(item, "type") == "program_output" else "output")


def build_run_item(kind_name: str, agent: object, raw_item: RawItem) -> RunItem:
    """The run item for a raw item that a run knows by this kind."""
    if kind_name == "tool_call_output_item":
        return ToolCallOutputItem(agent, raw_item, output_of(raw_item))
    return _CLASSES.get(kind_name, ToolCallItem)(agent, raw_item)
