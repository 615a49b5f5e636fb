"""What the OpenAI Agents SDK documents as `agents.tracing`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.processors import TracingConfig
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
    from standfast._src.tracing.spans import (
        TraceCtxManager,
        TraceProvider,
        add_trace_processor,
        agent_span,
        custom_span,
        flush_traces,
        function_span,
        generation_span,
        get_current_span,
        get_current_trace,
        get_trace_provider,
        guardrail_span,
        handoff_span,
        mcp_tools_span,
        response_span,
        set_trace_processors,
        set_trace_provider,
        set_tracing_export_api_key,
        speech_group_span,
        speech_span,
        task_span,
        trace,
        transcription_span,
        turn_span,
    )
    from standfast._src.tracing.trace_records import Span, SpanError, Trace, TracingProcessor, gen_span_id, gen_trace_id
    from standfast._src.tracing.tracing_switch import set_tracing_disabled

__all__ = [
    "AgentSpanData",
    "CustomSpanData",
    "FunctionSpanData",
    "GenerationSpanData",
    "GuardrailSpanData",
    "HandoffSpanData",
    "MCPListToolsSpanData",
    "ResponseSpanData",
    "Span",
    "SpanData",
    "SpanError",
    "SpeechGroupSpanData",
    "SpeechSpanData",
    "TaskSpanData",
    "Trace",
    "TraceCtxManager",
    "TraceProvider",
    "TracingConfig",
    "TracingProcessor",
    "TranscriptionSpanData",
    "TurnSpanData",
    "add_trace_processor",
    "agent_span",
    "custom_span",
    "flush_traces",
    "function_span",
    "gen_span_id",
    "gen_trace_id",
    "generation_span",
    "get_current_span",
    "get_current_trace",
    "get_trace_provider",
    "guardrail_span",
    "handoff_span",
    "mcp_tools_span",
    "response_span",
    "set_trace_processors",
    "set_trace_provider",
    "set_tracing_disabled",
    "set_tracing_export_api_key",
    "speech_group_span",
    "speech_span",
    "task_span",
    "trace",
    "transcription_span",
    "turn_span",
]
__getattr__, __dir__ = lazy(__name__)
