"""Public path of `standfast._kits.testing.realtime`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.realtime import (
        Answering as Answering,
        Close as Close,
        Conversation as Conversation,
        Cut as Cut,
        Ears as Ears,
        Fault as Fault,
        Frame as Frame,
        Habits as Habits,
        Instead as Instead,
        Journal as Journal,
        LoopbackCall as LoopbackCall,
        LoopbackRealtimeServer as LoopbackRealtimeServer,
        Lose as Lose,
        RealtimeConnectCall as RealtimeConnectCall,
        RealtimeScriptError as RealtimeScriptError,
        RealtimeStep as RealtimeStep,
        Refuse as Refuse,
        Rejected as Rejected,
        ScriptedRealtimeModel as ScriptedRealtimeModel,
        Slow as Slow,
        Stall as Stall,
        UnconsumedRealtimeSteps as UnconsumedRealtimeSteps,
        UnexpectedRealtimeSend as UnexpectedRealtimeSend,
        Voice as Voice,
        tones as tones,
    )

__getattr__, __dir__ = forward(__name__)
