"""What the OpenAI Agents SDK documents as `agents.realtime.events`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.session_events import (
        RealtimeAgentEndEvent as RealtimeAgentEndEvent,
        RealtimeAgentStartEvent as RealtimeAgentStartEvent,
        RealtimeAudio as RealtimeAudio,
        RealtimeAudioDropped as RealtimeAudioDropped,
        RealtimeAudioEnd as RealtimeAudioEnd,
        RealtimeAudioInterrupted as RealtimeAudioInterrupted,
        RealtimeCallDropped as RealtimeCallDropped,
        RealtimeConnectionLost as RealtimeConnectionLost,
        RealtimeError as RealtimeError,
        RealtimeEventInfo as RealtimeEventInfo,
        RealtimeGuardrailTripped as RealtimeGuardrailTripped,
        RealtimeHandoffEvent as RealtimeHandoffEvent,
        RealtimeHistoryAdded as RealtimeHistoryAdded,
        RealtimeHistoryUpdated as RealtimeHistoryUpdated,
        RealtimeInputAudioTimeoutTriggered as RealtimeInputAudioTimeoutTriggered,
        RealtimeRawModelEvent as RealtimeRawModelEvent,
        RealtimeReconnected as RealtimeReconnected,
        RealtimeSessionEvent as RealtimeSessionEvent,
        RealtimeToolApprovalRequired as RealtimeToolApprovalRequired,
        RealtimeToolEnd as RealtimeToolEnd,
        RealtimeToolStart as RealtimeToolStart,
    )

__getattr__, __dir__ = lazy(__name__)
