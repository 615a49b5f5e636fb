"""Help for tests of programs that use standfast: ship what we test with.

`ScriptedModel` plays a script instead of asking a provider, `AnsweringModel` answers from what it is asked;
`assistant_message`, `function_call` and the others write the items of both. The simulator is in `testing.simulate`.
Everything works without any provider's library.
"""

from __future__ import annotations

from standfast.testing.answering_model import AnsweringModel
from standfast.testing.script import (
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
from standfast.testing.scripted_model import ScriptedModel, text_of
from standfast.testing.stream import StreamPiece, stream_of

__all__ = [
    "AnsweringModel",
    "InvalidModelStep",
    "ModelCall",
    "ModelScriptError",
    "ModelStep",
    "ModelStepSpec",
    "ScriptedModel",
    "StreamPiece",
    "UnconsumedModelSteps",
    "UnexpectedModelCall",
    "assistant_message",
    "final",
    "function_call",
    "handoff_call",
    "reasoning",
    "refusal",
    "stream_of",
    "text_of",
]
