"""What the OpenAI Agents SDK documents as `agents.stream_events`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.items.stream_events import (
        AgentUpdatedStreamEvent as AgentUpdatedStreamEvent,
        RawResponsesStreamEvent as RawResponsesStreamEvent,
        RunItemStreamEvent as RunItemStreamEvent,
        StreamEvent as StreamEvent,
    )

__getattr__, __dir__ = lazy(__name__)
