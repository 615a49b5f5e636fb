"""What the OpenAI Agents SDK documents as `agents.realtime`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.agent import (
        RealtimeAgent as RealtimeAgent,
        RealtimeAgentHooks as RealtimeAgentHooks,
        RealtimeRunHooks as RealtimeRunHooks,
        realtime_handoff as realtime_handoff,
    )
    from standfast._src.realtime.config import (
        RealtimeGuardrailsSettings as RealtimeGuardrailsSettings,
        RealtimeReconnectConfig as RealtimeReconnectConfig,
        RealtimeRunConfig as RealtimeRunConfig,
        RealtimeToolExecutionConfig as RealtimeToolExecutionConfig,
    )
    from standfast._src.realtime.machine.call_items import (
        AssistantAudio as AssistantAudio,
        AssistantMessageItem as AssistantMessageItem,
        AssistantText as AssistantText,
        InputAudio as InputAudio,
        InputImage as InputImage,
        InputText as InputText,
        RealtimeItem as RealtimeItem,
        RealtimeMessageItem as RealtimeMessageItem,
        RealtimeResponse as RealtimeResponse,
        RealtimeToolCallItem as RealtimeToolCallItem,
        SystemMessageItem as SystemMessageItem,
        UserMessageItem as UserMessageItem,
    )
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
        RealtimeModelInputAudioTranscriptionCompletedEvent as RealtimeModelInputAudioTranscriptionCompletedEvent,
        RealtimeModelInputTokensDetails as RealtimeModelInputTokensDetails,
        RealtimeModelItemDeletedEvent as RealtimeModelItemDeletedEvent,
        RealtimeModelItemUpdatedEvent as RealtimeModelItemUpdatedEvent,
        RealtimeModelOtherEvent as RealtimeModelOtherEvent,
        RealtimeModelOutputTextDeltaEvent as RealtimeModelOutputTextDeltaEvent,
        RealtimeModelOutputTokensDetails as RealtimeModelOutputTokensDetails,
        RealtimeModelToolCallEvent as RealtimeModelToolCallEvent,
        RealtimeModelTranscriptDeltaEvent as RealtimeModelTranscriptDeltaEvent,
        RealtimeModelTurnEndedEvent as RealtimeModelTurnEndedEvent,
        RealtimeModelTurnStartedEvent as RealtimeModelTurnStartedEvent,
        RealtimeModelUsageEvent as RealtimeModelUsageEvent,
    )
    from standfast._src.realtime.machine.model_inputs import (
        RealtimeModelInputTextContent as RealtimeModelInputTextContent,
        RealtimeModelRawClientMessage as RealtimeModelRawClientMessage,
        RealtimeModelSendAudio as RealtimeModelSendAudio,
        RealtimeModelSendEvent as RealtimeModelSendEvent,
        RealtimeModelSendInterrupt as RealtimeModelSendInterrupt,
        RealtimeModelSendRawMessage as RealtimeModelSendRawMessage,
        RealtimeModelSendSessionUpdate as RealtimeModelSendSessionUpdate,
        RealtimeModelSendToolOutput as RealtimeModelSendToolOutput,
        RealtimeModelSendUserInput as RealtimeModelSendUserInput,
        RealtimeModelUserInput as RealtimeModelUserInput,
        RealtimeModelUserInputMessage as RealtimeModelUserInputMessage,
    )
    from standfast._src.realtime.machine.session_settings import (
        RealtimeAudioFormat as RealtimeAudioFormat,
        RealtimeClientMessage as RealtimeClientMessage,
        RealtimeInputAudioNoiseReductionConfig as RealtimeInputAudioNoiseReductionConfig,
        RealtimeInputAudioTranscriptionConfig as RealtimeInputAudioTranscriptionConfig,
        RealtimeModelName as RealtimeModelName,
        RealtimeModelTracingConfig as RealtimeModelTracingConfig,
        RealtimeReasoningConfig as RealtimeReasoningConfig,
        RealtimeReasoningEffort as RealtimeReasoningEffort,
        RealtimeSessionModelSettings as RealtimeSessionModelSettings,
        RealtimeTurnDetectionConfig as RealtimeTurnDetectionConfig,
        RealtimeUserInput as RealtimeUserInput,
        RealtimeUserInputMessage as RealtimeUserInputMessage,
        RealtimeUserInputText as RealtimeUserInputText,
    )
    from standfast._src.realtime.machine.transport_interface import (
        FrameTransport as FrameTransport,
        RealtimeModel as RealtimeModel,
        RealtimeModelConfig as RealtimeModelConfig,
        RealtimeModelListener as RealtimeModelListener,
        RealtimePlaybackState as RealtimePlaybackState,
        RealtimePlaybackTracker as RealtimePlaybackTracker,
    )
    from standfast._src.realtime.machine.wire_format import DEFAULT_MODEL_SETTINGS as DEFAULT_MODEL_SETTINGS
    from standfast._src.realtime.runner import RealtimeRunner as RealtimeRunner
    from standfast._src.realtime.session.voice_session import RealtimeSession as RealtimeSession
    from standfast._src.realtime.session_events import (
        RealtimeAgentEndEvent as RealtimeAgentEndEvent,
        RealtimeAgentStartEvent as RealtimeAgentStartEvent,
        RealtimeAudio as RealtimeAudio,
        RealtimeAudioDropped as RealtimeAudioDropped,
        RealtimeAudioEnd as RealtimeAudioEnd,
        RealtimeAudioInterrupted as RealtimeAudioInterrupted,
        RealtimeCallDropped as RealtimeCallDropped,
        RealtimeConnectionLost as RealtimeConnectionLost,
        RealtimeError as RealtimeError,
        RealtimeEventInfo as RealtimeEventInfo,
        RealtimeGuardrailTripped as RealtimeGuardrailTripped,
        RealtimeHandoffEvent as RealtimeHandoffEvent,
        RealtimeHistoryAdded as RealtimeHistoryAdded,
        RealtimeHistoryUpdated as RealtimeHistoryUpdated,
        RealtimeInputAudioTimeoutTriggered as RealtimeInputAudioTimeoutTriggered,
        RealtimeRawModelEvent as RealtimeRawModelEvent,
        RealtimeReconnected as RealtimeReconnected,
        RealtimeSessionEvent as RealtimeSessionEvent,
        RealtimeToolApprovalRequired as RealtimeToolApprovalRequired,
        RealtimeToolEnd as RealtimeToolEnd,
        RealtimeToolStart as RealtimeToolStart,
    )
    from standfast._src.realtime.transports.websocket import (
        OpenAIRealtimeSIPModel as OpenAIRealtimeSIPModel,
        OpenAIRealtimeWebSocketModel as OpenAIRealtimeWebSocketModel,
        TransportConfig as TransportConfig,
        get_api_key as get_api_key,
    )

__getattr__, __dir__ = lazy(__name__)
