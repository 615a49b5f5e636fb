"""What the OpenAI Agents SDK documents as `agents.run`.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._lazy import lazy

if TYPE_CHECKING:
    from .context import RunContextWrapper
    from .run_config import (
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
    from .run_state import RunState
    from .runner import Runner
    from .tools.texts import ToolErrorFormatter, ToolErrorFormatterArgs

__all__ = [
    "CallModelData",
    "CallModelInputFilter",
    "ModelInputData",
    "OutputGuardrailBlockedMessageArgs",
    "OutputGuardrailBlockedMessageFormatter",
    "ReasoningItemIdPolicy",
    "RunConfig",
    "RunContextWrapper",
    "RunState",
    "Runner",
    "ToolErrorFormatter",
    "ToolErrorFormatterArgs",
    "ToolExecutionConfig",
    "ToolNameCollisionPolicy",
    "ToolNotFoundBehavior",
]
__getattr__, __dir__ = lazy(__name__)
