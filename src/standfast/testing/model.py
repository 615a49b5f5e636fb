"""What the OpenAI Agents SDK documents as `agents.testing.model`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._kits.testing.script import (
        InvalidModelStep,
        ModelCall,
        ModelScriptError,
        ModelStep,
        ModelStepSpec,
        UnconsumedModelSteps,
        UnexpectedModelCall,
        assistant_message,
        function_call,
    )
    from standfast._kits.testing.scripted_model import ScriptedModel

__all__ = [
    "InvalidModelStep",
    "ModelCall",
    "ModelScriptError",
    "ModelStep",
    "ModelStepSpec",
    "ScriptedModel",
    "UnconsumedModelSteps",
    "UnexpectedModelCall",
    "assistant_message",
    "function_call",
]
__getattr__, __dir__ = lazy(__name__)
