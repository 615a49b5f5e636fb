"""What the OpenAI Agents SDK documents as `agents.tracing.span_data`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.span_data import (
        AgentSpanData,
        CustomSpanData,
        FunctionSpanData,
        GenerationSpanData,
        GuardrailSpanData,
        HandoffSpanData,
        MCPListToolsSpanData,
        ResponseSpanData,
        SpanData,
        SpeechGroupSpanData,
        SpeechSpanData,
        TaskSpanData,
        TranscriptionSpanData,
        TurnSpanData,
    )

__all__ = [
    "AgentSpanData",
    "CustomSpanData",
    "FunctionSpanData",
    "GenerationSpanData",
    "GuardrailSpanData",
    "HandoffSpanData",
    "MCPListToolsSpanData",
    "ResponseSpanData",
    "SpanData",
    "SpeechGroupSpanData",
    "SpeechSpanData",
    "TaskSpanData",
    "TranscriptionSpanData",
    "TurnSpanData",
]
__getattr__, __dir__ = lazy(__name__)
