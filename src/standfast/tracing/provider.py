"""What the OpenAI Agents SDK documents as `agents.tracing.provider`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.spans import (
        DefaultTraceProvider as DefaultTraceProvider,
        TraceProvider as TraceProvider,
    )
    from standfast._src.tracing.trace_records import (
        SynchronousMultiTracingProcessor as SynchronousMultiTracingProcessor,
    )

__getattr__, __dir__ = lazy(__name__)
