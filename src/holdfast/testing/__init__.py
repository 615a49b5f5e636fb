"""Help for tests of programs that use holdfast: ship what we test with.

`ScriptedModel` plays a script instead of asking a provider, `AnsweringModel` answers from what it is asked;
`assistant_message`, `function_call` and the others write the items of both. The simulator is in `testing.simulate`.
Everything works without any provider's library.
"""

from __future__ import annotations

from .answering_model import AnsweringModel
from .script import (
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
from .scripted_model import ScriptedModel, text_of
from .stream import StreamPiece, stream_of

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
