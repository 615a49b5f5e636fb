"""What the OpenAI Agents SDK documents as `agents.usage`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.items.usage import (
        RequestUsage as RequestUsage,
        Usage as Usage,
        deserialize_usage as deserialize_usage,
        model_usage_to_span_usage as model_usage_to_span_usage,
        serialize_usage as serialize_usage,
        task_usage_to_span_data as task_usage_to_span_data,
        total_usage_to_span_metadata as total_usage_to_span_metadata,
        turn_usage_to_span_data as turn_usage_to_span_data,
    )

__getattr__, __dir__ = lazy(__name__)
