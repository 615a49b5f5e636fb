"""What the OpenAI Agents SDK documents as `agents.tracing`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.processors import TracingConfig as TracingConfig
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
    from standfast._src.tracing.spans import (
        TraceCtxManager as TraceCtxManager,
        TraceProvider as TraceProvider,
        add_trace_processor as add_trace_processor,
        agent_span as agent_span,
        custom_span as custom_span,
        flush_traces as flush_traces,
        function_span as function_span,
        generation_span as generation_span,
        get_current_span as get_current_span,
        get_current_trace as get_current_trace,
        get_trace_provider as get_trace_provider,
        guardrail_span as guardrail_span,
        handoff_span as handoff_span,
        mcp_tools_span as mcp_tools_span,
        response_span as response_span,
        set_trace_processors as set_trace_processors,
        set_trace_provider as set_trace_provider,
        set_tracing_export_api_key as set_tracing_export_api_key,
        speech_group_span as speech_group_span,
        speech_span as speech_span,
        task_span as task_span,
        trace as trace,
        transcription_span as transcription_span,
        turn_span as turn_span,
    )
    from standfast._src.tracing.trace_records import (
        Span as Span,
        SpanError as SpanError,
        Trace as Trace,
        TracingProcessor as TracingProcessor,
        gen_span_id as gen_span_id,
        gen_trace_id as gen_trace_id,
    )
    from standfast._src.tracing.tracing_switch import set_tracing_disabled as set_tracing_disabled

__getattr__, __dir__ = lazy(__name__)
