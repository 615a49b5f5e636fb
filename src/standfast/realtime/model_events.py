"""What the OpenAI Agents SDK documents as `agents.realtime.model_events`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.model_events import (
        RealtimeConnectionStatus,
        RealtimeModelAudioDoneEvent,
        RealtimeModelAudioEvent,
        RealtimeModelAudioInterruptedEvent,
        RealtimeModelCachedTokensDetails,
        RealtimeModelConnectionStatusEvent,
        RealtimeModelEndOfStreamEvent,
        RealtimeModelErrorEvent,
        RealtimeModelEvent,
        RealtimeModelExceptionEvent,
        RealtimeModelInputAudioTimeoutTriggeredEvent,
        RealtimeModelInputAudioTranscriptionCompletedEvent,
        RealtimeModelInputTokensDetails,
        RealtimeModelItemDeletedEvent,
        RealtimeModelItemUpdatedEvent,
        RealtimeModelOtherEvent,
        RealtimeModelOutputTextDeltaEvent,
        RealtimeModelOutputTokensDetails,
        RealtimeModelRawServerEvent,
        RealtimeModelToolCallEvent,
        RealtimeModelTranscriptDeltaEvent,
        RealtimeModelTurnEndedEvent,
        RealtimeModelTurnStartedEvent,
        RealtimeModelUsageEvent,
    )

__all__ = [
    "RealtimeConnectionStatus",
    "RealtimeModelAudioDoneEvent",
    "RealtimeModelAudioEvent",
    "RealtimeModelAudioInterruptedEvent",
    "RealtimeModelCachedTokensDetails",
    "RealtimeModelConnectionStatusEvent",
    "RealtimeModelEndOfStreamEvent",
    "RealtimeModelErrorEvent",
    "RealtimeModelEvent",
    "RealtimeModelExceptionEvent",
    "RealtimeModelInputAudioTimeoutTriggeredEvent",
    "RealtimeModelInputAudioTranscriptionCompletedEvent",
    "RealtimeModelInputTokensDetails",
    "RealtimeModelItemDeletedEvent",
    "RealtimeModelItemUpdatedEvent",
    "RealtimeModelOtherEvent",
    "RealtimeModelOutputTextDeltaEvent",
    "RealtimeModelOutputTokensDetails",
    "RealtimeModelRawServerEvent",
    "RealtimeModelToolCallEvent",
    "RealtimeModelTranscriptDeltaEvent",
    "RealtimeModelTurnEndedEvent",
    "RealtimeModelTurnStartedEvent",
    "RealtimeModelUsageEvent",
]
__getattr__, __dir__ = lazy(__name__)
