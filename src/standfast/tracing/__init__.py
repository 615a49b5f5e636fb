"""What the OpenAI Agents SDK documents as `agents.tracing`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.telemetry.spans import (
        Span,
        Trace,
        add_trace_processor,
        custom_span,
        flush_traces,
        gen_span_id,
        gen_trace_id,
        get_current_trace,
        set_trace_processors,
        set_trace_provider,
        set_tracing_export_api_key,
        trace,
    )
    from standfast.telemetry.switch import set_tracing_disabled

__all__ = [
    "Span",
    "Trace",
    "add_trace_processor",
    "custom_span",
    "flush_traces",
    "gen_span_id",
    "gen_trace_id",
    "get_current_trace",
    "set_trace_processors",
    "set_trace_provider",
    "set_tracing_disabled",
    "set_tracing_export_api_key",
    "trace",
]
__getattr__, __dir__ = lazy(__name__)
