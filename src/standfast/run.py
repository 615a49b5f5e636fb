"""What the OpenAI Agents SDK documents as `agents.run`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.context import RunContextWrapper
    from ._src.agents.run_config import (
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
    from ._src.agents.run_options import RunOptions
    from ._src.runs.api.agent_runner import AgentRunner, get_default_agent_runner, set_default_agent_runner
    from ._src.runs.api.run_state import RunState
    from ._src.runs.api.runner import Runner
    from ._src.tools.refusal_texts import ToolErrorFormatter, ToolErrorFormatterArgs

__all__ = [
    "AgentRunner",
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
    "get_default_agent_runner",
    "set_default_agent_runner",
]
__getattr__, __dir__ = lazy(__name__)
