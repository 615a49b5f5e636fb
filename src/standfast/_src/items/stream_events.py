"""Stream events of a run, under the SDK's public names.

Three kinds: raw events of the model's stream, untouched; a run item, when made; the agent, when changed. `event_for`
returns the announcement of an item, or None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from standfast._src.items.items import RunItem

RunItemEventName: TypeAlias = Literal[
    "message_output_created",
    "handoff_requested",
    "handoff_occured",
    "tool_called",
    "tool_search_called",
    "tool_search_output_created",
    "tool_output",
    "reasoning_item_created",
    "mcp_approval_requested",
    "mcp_approval_response",
    "mcp_list_tools",
    "input_heard",
]


@dataclass(slots=True)
class RawResponsesStreamEvent:
    """A raw event of the model's own stream."""

    data: Any
    type: Literal["raw_response_event"] = "raw_response_event"


@dataclass(slots=True)
class RunItemStreamEvent:
    """A run item was made: by the model's reply, or as the result of a call."""

    name: RunItemEventName
    item: RunItem
    type: Literal["run_item_stream_event"] = "run_item_stream_event"


@dataclass(slots=True)
class AgentUpdatedStreamEvent:
    """Change of the agent in charge; also emitted once at the start, for the first agent."""

    new_agent: Any
    type: Literal["agent_updated_stream_event"] = "agent_updated_stream_event"


StreamEvent: TypeAlias = RawResponsesStreamEvent | RunItemStreamEvent | AgentUpdatedStreamEvent
"""Whatever `stream_events()` yields: `event.type` says which."""

# "occured" is misspelt in the SDK and programs compare with it: it stays.
EVENT_NAMES: dict[str, RunItemEventName] = {
    "message_output_item": "message_output_created",
    "handoff_call_item": "handoff_requested",
    "handoff_output_item": "handoff_occured",
    "tool_call_item": "tool_called",
    "tool_call_output_item": "tool_output",
    "tool_search_call_item": "tool_search_called",
    "tool_search_output_item": "tool_search_output_created",
    "reasoning_item": "reasoning_item_created",
    "mcp_approval_request_item": "mcp_approval_requested",
    "mcp_approval_response_item": "mcp_approval_response",
    "mcp_list_tools_item": "mcp_list_tools",
}
"""Run item `type` to event name. Approval placeholders, compactions and admitted input are not announced; a message
that a run hears is, as `input_heard`."""


def event_for(item: RunItem) -> RunItemStreamEvent | None:
    """Build the event that announces an item, or return None for an item without an announcement."""
    name = EVENT_NAMES.get(item.type)
    return None if name is None else RunItemStreamEvent(name, item)
