"""What the OpenAI Agents SDK documents as `agents.tracing.util`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.trace_records import (
        gen_group_id as gen_group_id,
        gen_span_id as gen_span_id,
        gen_trace_id as gen_trace_id,
        time_iso as time_iso,
    )

__getattr__, __dir__ = lazy(__name__)
