"""What the OpenAI Agents SDK documents as `agents.realtime.model_events`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.model_events import (
        RealtimeConnectionStatus as RealtimeConnectionStatus,
        RealtimeModelAudioDoneEvent as RealtimeModelAudioDoneEvent,
        RealtimeModelAudioEvent as RealtimeModelAudioEvent,
        RealtimeModelAudioInterruptedEvent as RealtimeModelAudioInterruptedEvent,
        RealtimeModelCachedTokensDetails as RealtimeModelCachedTokensDetails,
        RealtimeModelConnectionStatusEvent as RealtimeModelConnectionStatusEvent,
        RealtimeModelEndOfStreamEvent as RealtimeModelEndOfStreamEvent,
        RealtimeModelErrorEvent as RealtimeModelErrorEvent,
        RealtimeModelEvent as RealtimeModelEvent,
        RealtimeModelExceptionEvent as RealtimeModelExceptionEvent,
        RealtimeModelInputAudioTimeoutTriggeredEvent as RealtimeModelInputAudioTimeoutTriggeredEvent,
        RealtimeModelInputAudioTranscriptionCompletedEvent as RealtimeModelInputAudioTranscriptionCompletedEvent,
        RealtimeModelInputTokensDetails as RealtimeModelInputTokensDetails,
        RealtimeModelItemDeletedEvent as RealtimeModelItemDeletedEvent,
        RealtimeModelItemUpdatedEvent as RealtimeModelItemUpdatedEvent,
        RealtimeModelOtherEvent as RealtimeModelOtherEvent,
        RealtimeModelOutputTextDeltaEvent as RealtimeModelOutputTextDeltaEvent,
        RealtimeModelOutputTokensDetails as RealtimeModelOutputTokensDetails,
        RealtimeModelRawServerEvent as RealtimeModelRawServerEvent,
        RealtimeModelToolCallEvent as RealtimeModelToolCallEvent,
        RealtimeModelTranscriptDeltaEvent as RealtimeModelTranscriptDeltaEvent,
        RealtimeModelTurnEndedEvent as RealtimeModelTurnEndedEvent,
        RealtimeModelTurnStartedEvent as RealtimeModelTurnStartedEvent,
        RealtimeModelUsageEvent as RealtimeModelUsageEvent,
    )

__getattr__, __dir__ = lazy(__name__)
