"""What the OpenAI Agents SDK documents as `agents.testing.model`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._kits.testing.script import (
        InvalidModelStep as InvalidModelStep,
        ModelCall as ModelCall,
        ModelScriptError as ModelScriptError,
        ModelStep as ModelStep,
        ModelStepSpec as ModelStepSpec,
        UnconsumedModelSteps as UnconsumedModelSteps,
        UnexpectedModelCall as UnexpectedModelCall,
        assistant_message as assistant_message,
        function_call as function_call,
    )
    from standfast._kits.testing.scripted_model import ScriptedModel as ScriptedModel

__getattr__, __dir__ = lazy(__name__)
