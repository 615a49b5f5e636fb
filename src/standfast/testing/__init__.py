"""Public path of `standfast._kits.testing`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing import (
        AnsweringModel as AnsweringModel,
        InvalidModelStep as InvalidModelStep,
        LeakError as LeakError,
        LoopbackRealtimeServer as LoopbackRealtimeServer,
        ModelCall as ModelCall,
        ModelScriptError as ModelScriptError,
        ModelStep as ModelStep,
        ModelStepSpec as ModelStepSpec,
        RealtimeStep as RealtimeStep,
        ScriptedModel as ScriptedModel,
        ScriptedRealtimeModel as ScriptedRealtimeModel,
        StreamPiece as StreamPiece,
        UnconsumedModelSteps as UnconsumedModelSteps,
        UnexpectedModelCall as UnexpectedModelCall,
        assistant_message as assistant_message,
        final as final,
        function_call as function_call,
        handoff_call as handoff_call,
        no_leaks as no_leaks,
        reasoning as reasoning,
        refusal as refusal,
        stream_of as stream_of,
        text_of as text_of,
    )

__getattr__, __dir__ = forward(__name__)
