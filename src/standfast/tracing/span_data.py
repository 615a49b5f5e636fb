"""What the OpenAI Agents SDK documents as `agents.tracing.span_data`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.span_data import (
        AgentSpanData as AgentSpanData,
        CustomSpanData as CustomSpanData,
        FunctionSpanData as FunctionSpanData,
        GenerationSpanData as GenerationSpanData,
        GuardrailSpanData as GuardrailSpanData,
        HandoffSpanData as HandoffSpanData,
        MCPListToolsSpanData as MCPListToolsSpanData,
        ResponseSpanData as ResponseSpanData,
        SpanData as SpanData,
        SpeechGroupSpanData as SpeechGroupSpanData,
        SpeechSpanData as SpeechSpanData,
        TaskSpanData as TaskSpanData,
        TranscriptionSpanData as TranscriptionSpanData,
        TurnSpanData as TurnSpanData,
    )

__getattr__, __dir__ = lazy(__name__)
