"""What the OpenAI Agents SDK documents as `agents.tracing.spans`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.trace_records import (
        NoOpSpan as NoOpSpan,
        Span as Span,
        SpanError as SpanError,
        SpanImpl as SpanImpl,
        TSpanData as TSpanData,
    )

__getattr__, __dir__ = lazy(__name__)
