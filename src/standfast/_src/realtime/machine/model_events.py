"""Events from a transport to a session, with the SDK's names, fields and order of fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from standfast._src.items.usage import Usage
from standfast._src.realtime.machine.call_items import RealtimeItem

RealtimeConnectionStatus: TypeAlias = Literal["connecting", "connected", "disconnected"]
"""Status of a connection."""


@dataclass
class RealtimeModelErrorEvent:
    """The server reported an error."""

    error: Any
    type: Literal["error"] = "error"


@dataclass
class RealtimeModelToolCallEvent:
    """The model wants something done."""

    name: str
    call_id: str
    arguments: str
    id: str | None = None
    previous_item_id: str | None = None
    type: Literal["function_call"] = "function_call"


@dataclass
class RealtimeModelAudioEvent:
    """A piece of the model's speech."""

    data: bytes
    response_id: str
    item_id: str
    content_index: int
    type: Literal["audio"] = "audio"


@dataclass
class RealtimeModelAudioInterruptedEvent:
    """Playback of an item must stop."""

    item_id: str
    content_index: int
    type: Literal["audio_interrupted"] = "audio_interrupted"


@dataclass
class RealtimeModelAudioDoneEvent:
    """All audio of an item was sent."""

    item_id: str
    content_index: int
    type: Literal["audio_done"] = "audio_done"


@dataclass
class RealtimeModelInputAudioTranscriptionCompletedEvent:
    """Transcript of a user's speech."""

    item_id: str
    transcript: str
    type: Literal["input_audio_transcription_completed"] = "input_audio_transcription_completed"


@dataclass
class RealtimeModelInputAudioTimeoutTriggeredEvent:
    """Silence of the user for the server's idle timeout."""

    item_id: str
    audio_start_ms: int
    audio_end_ms: int
    type: Literal["input_audio_timeout_triggered"] = "input_audio_timeout_triggered"


@dataclass
class RealtimeModelTranscriptDeltaEvent:
    """A piece of the transcript of the model's speech."""

    item_id: str
    delta: str
    response_id: str
    type: Literal["transcript_delta"] = "transcript_delta"


@dataclass
class RealtimeModelOutputTextDeltaEvent:
    """A piece of the model's text."""

    item_id: str
    delta: str
    response_id: str
    type: Literal["output_text_delta"] = "output_text_delta"


@dataclass
class RealtimeModelItemUpdatedEvent:
    """An item is new, or is different now."""

    item: RealtimeItem
    type: Literal["item_updated"] = "item_updated"


@dataclass
class RealtimeModelItemDeletedEvent:
    """An item was deleted."""

    item_id: str
    type: Literal["item_deleted"] = "item_deleted"


@dataclass
class RealtimeModelConnectionStatusEvent:
    """Change of the connection's status; `code` and `reason` describe its end."""

    status: RealtimeConnectionStatus
    type: Literal["connection_status"] = "connection_status"
    code: int | None = None
    reason: str | None = None


@dataclass
class RealtimeModelEndOfStreamEvent:
    """There will be no further events."""

    type: Literal["end_of_stream"] = "end_of_stream"


@dataclass
class RealtimeModelTurnStartedEvent:
    """The model begins a reply."""

    type: Literal["turn_started"] = "turn_started"
    response_id: str | None = None


@dataclass
class RealtimeModelCachedTokensDetails:
    """Cached tokens by kind."""

    text_tokens: int | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None


@dataclass
class RealtimeModelInputTokensDetails:
    """Input tokens by kind."""

    text_tokens: int | None = None
    audio_tokens: int | None = None
    image_tokens: int | None = None
    cached_tokens: int | None = None
    cached_tokens_details: RealtimeModelCachedTokensDetails | None = None


@dataclass
class RealtimeModelOutputTokensDetails:
    """Output tokens by kind."""

    text_tokens: int | None = None
    audio_tokens: int | None = None


@dataclass
class RealtimeModelUsageEvent:
    """Token usage of a reply."""

    usage: Usage
    input_tokens_details: RealtimeModelInputTokensDetails | None = None
    output_tokens_details: RealtimeModelOutputTokensDetails | None = None
    type: Literal["usage"] = "usage"


@dataclass
class RealtimeModelTurnEndedEvent:
    """The model's reply has ended, however."""

    type: Literal["turn_ended"] = "turn_ended"
    response_id: str | None = None


@dataclass
class RealtimeModelOtherEvent:
    """Anything else a transport wants to tell."""

    data: Any
    type: Literal["other"] = "other"


@dataclass
class RealtimeModelExceptionEvent:
    """The transport failed."""

    exception: Exception
    context: str | None = None
    type: Literal["exception"] = "exception"


@dataclass
class RealtimeModelRawServerEvent:
    """A raw frame of the server, emitted before its interpretation."""

    data: Any
    type: Literal["raw_server_event"] = "raw_server_event"


RealtimeModelEvent: TypeAlias = (
    RealtimeModelErrorEvent
    | RealtimeModelToolCallEvent
    | RealtimeModelAudioEvent
    | RealtimeModelAudioInterruptedEvent
    | RealtimeModelAudioDoneEvent
    | RealtimeModelInputAudioTimeoutTriggeredEvent
    | RealtimeModelInputAudioTranscriptionCompletedEvent
    | RealtimeModelTranscriptDeltaEvent
    | RealtimeModelOutputTextDeltaEvent
    | RealtimeModelItemUpdatedEvent
    | RealtimeModelItemDeletedEvent
    | RealtimeModelConnectionStatusEvent
    | RealtimeModelEndOfStreamEvent
    | RealtimeModelTurnStartedEvent
    | RealtimeModelUsageEvent
    | RealtimeModelTurnEndedEvent
    | RealtimeModelOtherEvent
    | RealtimeModelExceptionEvent
    | RealtimeModelRawServerEvent
)
"""Anything a transport tells."""
