"""What the OpenAI Agents SDK documents as `agents.realtime.config`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.config import (
        RealtimeGuardrailsSettings as RealtimeGuardrailsSettings,
        RealtimeReconnectConfig as RealtimeReconnectConfig,
        RealtimeRunConfig as RealtimeRunConfig,
        RealtimeToolExecutionConfig as RealtimeToolExecutionConfig,
    )
    from standfast._src.realtime.machine.session_settings import (
        RealtimeAudioConfig as RealtimeAudioConfig,
        RealtimeAudioFormat as RealtimeAudioFormat,
        RealtimeAudioInputConfig as RealtimeAudioInputConfig,
        RealtimeAudioOutputConfig as RealtimeAudioOutputConfig,
        RealtimeClientMessage as RealtimeClientMessage,
        RealtimeCustomVoice as RealtimeCustomVoice,
        RealtimeInputAudioNoiseReductionConfig as RealtimeInputAudioNoiseReductionConfig,
        RealtimeInputAudioTranscriptionConfig as RealtimeInputAudioTranscriptionConfig,
        RealtimeModelName as RealtimeModelName,
        RealtimeModelTracingConfig as RealtimeModelTracingConfig,
        RealtimeReasoningConfig as RealtimeReasoningConfig,
        RealtimeReasoningEffort as RealtimeReasoningEffort,
        RealtimeSessionModelSettings as RealtimeSessionModelSettings,
        RealtimeTurnDetectionConfig as RealtimeTurnDetectionConfig,
        RealtimeUserInput as RealtimeUserInput,
        RealtimeUserInputImage as RealtimeUserInputImage,
        RealtimeUserInputMessage as RealtimeUserInputMessage,
        RealtimeUserInputText as RealtimeUserInputText,
        RealtimeVoice as RealtimeVoice,
    )

__getattr__, __dir__ = lazy(__name__)
