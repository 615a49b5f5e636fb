"""What the OpenAI Agents SDK documents as `agents.realtime.model`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.transport_interface import (
        FrameTransport as FrameTransport,
        RealtimeModel as RealtimeModel,
        RealtimeModelConfig as RealtimeModelConfig,
        RealtimeModelListener as RealtimeModelListener,
        RealtimePlaybackState as RealtimePlaybackState,
        RealtimePlaybackTracker as RealtimePlaybackTracker,
    )

__getattr__, __dir__ = lazy(__name__)
