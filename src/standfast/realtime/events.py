"""What the OpenAI Agents SDK documents as `agents.realtime.events`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.session_events import (
        RealtimeAgentEndEvent,
        RealtimeAgentStartEvent,
        RealtimeAudio,
        RealtimeAudioDropped,
        RealtimeAudioEnd,
        RealtimeAudioInterrupted,
        RealtimeCallDropped,
        RealtimeConnectionLost,
        RealtimeError,
        RealtimeEventInfo,
        RealtimeGuardrailTripped,
        RealtimeHandoffEvent,
        RealtimeHistoryAdded,
        RealtimeHistoryUpdated,
        RealtimeInputAudioTimeoutTriggered,
        RealtimeRawModelEvent,
        RealtimeReconnected,
        RealtimeSessionEvent,
        RealtimeToolApprovalRequired,
        RealtimeToolEnd,
        RealtimeToolStart,
    )

__all__ = [
    "RealtimeAgentEndEvent",
    "RealtimeAgentStartEvent",
    "RealtimeAudio",
    "RealtimeAudioDropped",
    "RealtimeAudioEnd",
    "RealtimeAudioInterrupted",
    "RealtimeCallDropped",
    "RealtimeConnectionLost",
    "RealtimeError",
    "RealtimeEventInfo",
    "RealtimeGuardrailTripped",
    "RealtimeHandoffEvent",
    "RealtimeHistoryAdded",
    "RealtimeHistoryUpdated",
    "RealtimeInputAudioTimeoutTriggered",
    "RealtimeRawModelEvent",
    "RealtimeReconnected",
    "RealtimeSessionEvent",
    "RealtimeToolApprovalRequired",
    "RealtimeToolEnd",
    "RealtimeToolStart",
]
__getattr__, __dir__ = lazy(__name__)
