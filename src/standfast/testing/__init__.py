"""Public path of `standfast._kits.testing`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing import (
        AnsweringModel,
        InvalidModelStep,
        LeakError,
        LoopbackRealtimeServer,
        ModelCall,
        ModelScriptError,
        ModelStep,
        ModelStepSpec,
        RealtimeStep,
        ScriptedModel,
        ScriptedRealtimeModel,
        StreamPiece,
        UnconsumedModelSteps,
        UnexpectedModelCall,
        assistant_message,
        final,
        function_call,
        handoff_call,
        no_leaks,
        reasoning,
        refusal,
        stream_of,
        text_of,
    )

__all__ = [
    "AnsweringModel",
    "InvalidModelStep",
    "LeakError",
    "LoopbackRealtimeServer",
    "ModelCall",
    "ModelScriptError",
    "ModelStep",
    "ModelStepSpec",
    "RealtimeStep",
    "ScriptedModel",
    "ScriptedRealtimeModel",
    "StreamPiece",
    "UnconsumedModelSteps",
    "UnexpectedModelCall",
    "assistant_message",
    "final",
    "function_call",
    "handoff_call",
    "no_leaks",
    "reasoning",
    "refusal",
    "stream_of",
    "text_of",
]
__getattr__, __dir__ = forward(__name__)
