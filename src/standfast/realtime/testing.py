"""What the OpenAI Agents SDK documents as `agents.realtime.testing`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._kits.testing.realtime.scripted import (
        RealtimeConnectCall as RealtimeConnectCall,
        RealtimeScriptError as RealtimeScriptError,
        RealtimeStep as RealtimeStep,
        ScriptedRealtimeModel as ScriptedRealtimeModel,
        UnconsumedRealtimeSteps as UnconsumedRealtimeSteps,
        UnexpectedRealtimeSend as UnexpectedRealtimeSend,
    )

__getattr__, __dir__ = lazy(__name__)
