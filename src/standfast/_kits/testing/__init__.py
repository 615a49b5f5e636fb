"""Test kit for programs that use standfast: the tools of its own test suite.

`ScriptedModel` plays a script instead of asking a provider, `AnsweringModel` answers from the request alone;
`assistant_message`, `function_call` and similar functions build items for both. The simulator is in `testing.simulate`.
Everything works without any provider's library. The parts for voice calls are loaded when used: their server needs the
`websockets` library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from standfast._kits.testing.answering_model import AnsweringModel
from standfast._kits.testing.leaks import LeakError, no_leaks
from standfast._kits.testing.script import (
    InvalidModelStep,
    ModelCall,
    ModelScriptError,
    ModelStep,
    ModelStepSpec,
    UnconsumedModelSteps,
    UnexpectedModelCall,
    assistant_message,
    final,
    function_call,
    handoff_call,
    reasoning,
    refusal,
)
from standfast._kits.testing.scripted_model import ScriptedModel, text_of
from standfast._kits.testing.stream import StreamPiece, stream_of
from standfast._src.base.extras import needed_by
from standfast._src.exports.absent import absent

if TYPE_CHECKING:
    from standfast._kits.testing.realtime import (
        LoopbackRealtimeServer,
        RealtimeStep,
        ScriptedRealtimeModel,
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

_REALTIME = ("LoopbackRealtimeServer", "RealtimeStep", "ScriptedRealtimeModel")


def __getattr__(name: str) -> Any:
    if name not in _REALTIME:
        if reason := absent("testing", name):
            raise ImportError(reason, name=__name__)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with needed_by(name):
        return getattr(import_module("standfast._kits.testing.realtime"), name)
