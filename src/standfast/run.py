"""What the OpenAI Agents SDK documents as `agents.run`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .agents.context import RunContextWrapper
    from .agents.run_config import (
        DEFAULT_MAX_TURNS,
        CallModelData,
        CallModelInputFilter,
        ModelInputData,
        OutputGuardrailBlockedMessageArgs,
        OutputGuardrailBlockedMessageFormatter,
        ReasoningItemIdPolicy,
        RunConfig,
        ToolExecutionConfig,
        ToolNameCollisionPolicy,
        ToolNotFoundBehavior,
    )
    from .agents.run_options import RunOptions
    from .face.run_state import RunState
    from .face.runner import Runner
    from .tools.texts import ToolErrorFormatter, ToolErrorFormatterArgs

__all__ = [
    "CallModelData",
    "CallModelInputFilter",
    "DEFAULT_MAX_TURNS",
    "ModelInputData",
    "OutputGuardrailBlockedMessageArgs",
    "OutputGuardrailBlockedMessageFormatter",
    "ReasoningItemIdPolicy",
    "RunConfig",
    "RunContextWrapper",
    "RunOptions",
    "RunState",
    "Runner",
    "ToolErrorFormatter",
    "ToolErrorFormatterArgs",
    "ToolExecutionConfig",
    "ToolNameCollisionPolicy",
    "ToolNotFoundBehavior",
]
__getattr__, __dir__ = lazy(__name__)
