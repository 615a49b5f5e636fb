"""Events of a voice session, with the SDK's names and order of fields, and the events the SDK lacks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from standfast._src.agents.context import RunContextWrapper
from standfast._src.agents.guardrails import OutputGuardrailResult
from standfast._src.realtime.agent import RealtimeAgent
from standfast._src.realtime.machine.call_items import RealtimeItem
from standfast._src.realtime.machine.model_events import RealtimeModelAudioEvent, RealtimeModelEvent
from standfast._src.tools.local_tool import LocalTool


@dataclass
class RealtimeEventInfo:
    """Common part of all session events: the context, with the usage so far."""

    context: RunContextWrapper[Any]


@dataclass
class RealtimeAgentStartEvent:
    """An agent begins a reply."""

    agent: RealtimeAgent[Any]
    info: RealtimeEventInfo
    type: Literal["agent_start"] = "agent_start"


@dataclass
class RealtimeAgentEndEvent:
    """An agent's reply has ended."""

    agent: RealtimeAgent[Any]
    info: RealtimeEventInfo
    type: Literal["agent_end"] = "agent_end"


@dataclass
class RealtimeHandoffEvent:
    """Another agent has taken over, and the model has its settings."""

    from_agent: RealtimeAgent[Any]
    to_agent: RealtimeAgent[Any]
    info: RealtimeEventInfo
    type: Literal["handoff"] = "handoff"


@dataclass
class RealtimeToolStart:
    """A tool begins."""

    agent: RealtimeAgent[Any]
    tool: LocalTool
    arguments: str
    info: RealtimeEventInfo
    type: Literal["tool_start"] = "tool_start"


@dataclass
class RealtimeToolEnd:
    """A call has its output."""

    agent: RealtimeAgent[Any]
    tool: LocalTool
    arguments: str
    output: Any
    info: RealtimeEventInfo
    type: Literal["tool_end"] = "tool_end"


@dataclass
class RealtimeToolApprovalRequired:
    """A call waits for a person."""

    agent: RealtimeAgent[Any]
    tool: LocalTool
    call_id: str
    arguments: str
    info: RealtimeEventInfo
    type: Literal["tool_approval_required"] = "tool_approval_required"
    same_as_run: str | None = field(default=None, kw_only=True)
    """Another run of the conversation in which the same question waits already (C15)."""
    prepared_arguments: str | None = field(default=None, kw_only=True)
    """The values that the tool will get, as JSON text, where they differ from `arguments`."""


@dataclass
class RealtimeRawModelEvent:
    """A raw event of the transport."""

    data: RealtimeModelEvent
    info: RealtimeEventInfo
    type: Literal["raw_model_event"] = "raw_model_event"


@dataclass
class RealtimeAudioEnd:
    """All audio of an item was sent."""

    info: RealtimeEventInfo
    item_id: str
    content_index: int
    type: Literal["audio_end"] = "audio_end"


@dataclass
class RealtimeAudio:
    """A piece of the model's speech."""

    audio: RealtimeModelAudioEvent
    item_id: str
    content_index: int
    info: RealtimeEventInfo
    type: Literal["audio"] = "audio"
    # How much of the item there is with this: by it a reader's share of the item is known. No field, it is ours alone.
    end = 0


@dataclass
class RealtimeAudioInterrupted:
    """Stop of playback: the unheard rest is no longer wanted."""

    info: RealtimeEventInfo
    item_id: str
    content_index: int
    type: Literal["audio_interrupted"] = "audio_interrupted"


@dataclass
class RealtimeError:
    """An error that does not end the call."""

    error: Any
    info: RealtimeEventInfo
    type: Literal["error"] = "error"


@dataclass
class RealtimeHistoryUpdated:
    """The history is different now."""

    history: list[RealtimeItem]
    info: RealtimeEventInfo
    type: Literal["history_updated"] = "history_updated"


@dataclass
class RealtimeHistoryAdded:
    """An item is new in the history."""

    item: RealtimeItem
    info: RealtimeEventInfo
    type: Literal["history_added"] = "history_added"


@dataclass
class RealtimeGuardrailTripped:
    """An output guardrail refused a reply."""

    guardrail_results: list[OutputGuardrailResult]
    message: str
    info: RealtimeEventInfo
    type: Literal["guardrail_tripped"] = "guardrail_tripped"


@dataclass
class RealtimeInputAudioTimeoutTriggered:
    """Silence of the user for the server's idle timeout."""

    info: RealtimeEventInfo
    type: Literal["input_audio_timeout_triggered"] = "input_audio_timeout_triggered"


@dataclass
class RealtimeAudioDropped:
    """Audio of an item dropped because this reader was too slow. It counts as not heard."""

    item_id: str
    ms: float
    info: RealtimeEventInfo
    type: Literal["audio_dropped"] = "audio_dropped"


@dataclass
class RealtimeConnectionLost:
    """Loss of the connection; a new one is being made."""

    code: int | None
    reason: str | None
    info: RealtimeEventInfo
    type: Literal["connection_lost"] = "connection_lost"


@dataclass
class RealtimeReconnected:
    """Continuation of the call over a new connection."""

    restored: int
    said_again_ms: float
    cut: list[str]
    gap: str | None
    """On an attached call (phone, WebRTC): the server's newest item, if unknown here until now.

    Items between it and the last known one are missing. None: no item is missing."""
    info: RealtimeEventInfo
    type: Literal["reconnected"] = "reconnected"


@dataclass
class RealtimeCallDropped:
    """A call that waited for a person, or an unsent output, lost at the end of a session without a record."""

    call_id: str
    name: str
    output: str | None
    info: RealtimeEventInfo
    type: Literal["call_dropped"] = "call_dropped"


RealtimeSessionEvent: TypeAlias = (
    RealtimeAgentStartEvent
    | RealtimeAgentEndEvent
    | RealtimeHandoffEvent
    | RealtimeToolStart
    | RealtimeToolEnd
    | RealtimeToolApprovalRequired
    | RealtimeRawModelEvent
    | RealtimeAudioEnd
    | RealtimeAudio
    | RealtimeAudioInterrupted
    | RealtimeError
    | RealtimeHistoryUpdated
    | RealtimeHistoryAdded
    | RealtimeGuardrailTripped
    | RealtimeInputAudioTimeoutTriggered
    | RealtimeAudioDropped
    | RealtimeConnectionLost
    | RealtimeReconnected
    | RealtimeCallDropped
)
"""Anything a session shows."""
