"""What the OpenAI Agents SDK documents as `agents.realtime.config`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.config import (
        RealtimeGuardrailsSettings,
        RealtimeReconnectConfig,
        RealtimeRunConfig,
        RealtimeToolExecutionConfig,
    )
    from standfast._src.realtime.machine.session_settings import (
        RealtimeAudioConfig,
        RealtimeAudioFormat,
        RealtimeAudioInputConfig,
        RealtimeAudioOutputConfig,
        RealtimeClientMessage,
        RealtimeCustomVoice,
        RealtimeInputAudioNoiseReductionConfig,
        RealtimeInputAudioTranscriptionConfig,
        RealtimeModelName,
        RealtimeModelTracingConfig,
        RealtimeReasoningConfig,
        RealtimeReasoningEffort,
        RealtimeSessionModelSettings,
        RealtimeTurnDetectionConfig,
        RealtimeUserInput,
        RealtimeUserInputImage,
        RealtimeUserInputMessage,
        RealtimeUserInputText,
        RealtimeVoice,
    )

__all__ = [
    "RealtimeAudioConfig",
    "RealtimeAudioFormat",
    "RealtimeAudioInputConfig",
    "RealtimeAudioOutputConfig",
    "RealtimeClientMessage",
    "RealtimeCustomVoice",
    "RealtimeGuardrailsSettings",
    "RealtimeInputAudioNoiseReductionConfig",
    "RealtimeInputAudioTranscriptionConfig",
    "RealtimeModelName",
    "RealtimeModelTracingConfig",
    "RealtimeReasoningConfig",
    "RealtimeReasoningEffort",
    "RealtimeReconnectConfig",
    "RealtimeRunConfig",
    "RealtimeSessionModelSettings",
    "RealtimeToolExecutionConfig",
    "RealtimeTurnDetectionConfig",
    "RealtimeUserInput",
    "RealtimeUserInputImage",
    "RealtimeUserInputMessage",
    "RealtimeUserInputText",
    "RealtimeVoice",
]
__getattr__, __dir__ = lazy(__name__)
