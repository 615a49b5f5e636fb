"""What the OpenAI Agents SDK documents as `agents.tracing.processors`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.backend_exporter import (
        BackendSpanExporter as BackendSpanExporter,
        default_exporter as default_exporter,
        default_processor as default_processor,
    )
    from standfast._src.tracing.processors import (
        BatchTraceProcessor as BatchTraceProcessor,
        ConsoleSpanExporter as ConsoleSpanExporter,
        TracingExporter as TracingExporter,
    )
    from standfast._src.tracing.trace_records import TracingProcessor as TracingProcessor

__getattr__, __dir__ = lazy(__name__)
