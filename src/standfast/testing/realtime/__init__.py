"""Public path of `standfast._kits.testing.realtime`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.realtime import (
        Answering,
        Close,
        Conversation,
        Cut,
        Ears,
        Fault,
        Frame,
        Habits,
        Instead,
        Journal,
        LoopbackCall,
        LoopbackRealtimeServer,
        Lose,
        RealtimeConnectCall,
        RealtimeScriptError,
        RealtimeStep,
        Refuse,
        Rejected,
        ScriptedRealtimeModel,
        Slow,
        Stall,
        UnconsumedRealtimeSteps,
        UnexpectedRealtimeSend,
        Voice,
        tones,
    )

__all__ = [
    "Answering",
    "Close",
    "Conversation",
    "Cut",
    "Ears",
    "Fault",
    "Frame",
    "Habits",
    "Instead",
    "Journal",
    "LoopbackCall",
    "LoopbackRealtimeServer",
    "Lose",
    "RealtimeConnectCall",
    "RealtimeScriptError",
    "RealtimeStep",
    "Refuse",
    "Rejected",
    "ScriptedRealtimeModel",
    "Slow",
    "Stall",
    "UnconsumedRealtimeSteps",
    "UnexpectedRealtimeSend",
    "Voice",
    "tones",
]
__getattr__, __dir__ = forward(__name__)
