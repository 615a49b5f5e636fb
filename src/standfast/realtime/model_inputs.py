"""What the OpenAI Agents SDK documents as `agents.realtime.model_inputs`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.model_inputs import (
        RealtimeModelInputImageContent as RealtimeModelInputImageContent,
        RealtimeModelInputTextContent as RealtimeModelInputTextContent,
        RealtimeModelRawClientMessage as RealtimeModelRawClientMessage,
        RealtimeModelSendAudio as RealtimeModelSendAudio,
        RealtimeModelSendEvent as RealtimeModelSendEvent,
        RealtimeModelSendInterrupt as RealtimeModelSendInterrupt,
        RealtimeModelSendRawMessage as RealtimeModelSendRawMessage,
        RealtimeModelSendSessionUpdate as RealtimeModelSendSessionUpdate,
        RealtimeModelSendToolOutput as RealtimeModelSendToolOutput,
        RealtimeModelSendUserInput as RealtimeModelSendUserInput,
        RealtimeModelUserInput as RealtimeModelUserInput,
        RealtimeModelUserInputMessage as RealtimeModelUserInputMessage,
    )

__getattr__, __dir__ = lazy(__name__)
