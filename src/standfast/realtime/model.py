"""What the OpenAI Agents SDK documents as `agents.realtime.model`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.transport_interface import (
        FrameTransport,
        RealtimeModel,
        RealtimeModelConfig,
        RealtimeModelListener,
        RealtimePlaybackState,
        RealtimePlaybackTracker,
    )

__all__ = [
    "FrameTransport",
    "RealtimeModel",
    "RealtimeModelConfig",
    "RealtimeModelListener",
    "RealtimePlaybackState",
    "RealtimePlaybackTracker",
]
__getattr__, __dir__ = lazy(__name__)
