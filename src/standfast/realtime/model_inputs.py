"""What the OpenAI Agents SDK documents as `agents.realtime.model_inputs`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.model_inputs import (
        RealtimeModelInputImageContent,
        RealtimeModelInputTextContent,
        RealtimeModelRawClientMessage,
        RealtimeModelSendAudio,
        RealtimeModelSendEvent,
        RealtimeModelSendInterrupt,
        RealtimeModelSendRawMessage,
        RealtimeModelSendSessionUpdate,
        RealtimeModelSendToolOutput,
        RealtimeModelSendUserInput,
        RealtimeModelUserInput,
        RealtimeModelUserInputMessage,
    )

__all__ = [
    "RealtimeModelInputImageContent",
    "RealtimeModelInputTextContent",
    "RealtimeModelRawClientMessage",
    "RealtimeModelSendAudio",
    "RealtimeModelSendEvent",
    "RealtimeModelSendInterrupt",
    "RealtimeModelSendRawMessage",
    "RealtimeModelSendSessionUpdate",
    "RealtimeModelSendToolOutput",
    "RealtimeModelSendUserInput",
    "RealtimeModelUserInput",
    "RealtimeModelUserInputMessage",
]
__getattr__, __dir__ = lazy(__name__)
