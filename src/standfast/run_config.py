"""What the OpenAI Agents SDK documents as `agents.run_config`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.agents.run_config import (
        DEFAULT_MAX_TURNS as DEFAULT_MAX_TURNS,
        CallModelData as CallModelData,
        CallModelInputFilter as CallModelInputFilter,
        ModelInputData as ModelInputData,
        OutputGuardrailBlockedMessageArgs as OutputGuardrailBlockedMessageArgs,
        OutputGuardrailBlockedMessageFormatter as OutputGuardrailBlockedMessageFormatter,
        ReasoningItemIdPolicy as ReasoningItemIdPolicy,
        RunConfig as RunConfig,
        ToolExecutionConfig as ToolExecutionConfig,
        ToolNameCollisionPolicy as ToolNameCollisionPolicy,
        ToolNotFoundBehavior as ToolNotFoundBehavior,
    )
    from ._src.agents.run_options import RunOptions as RunOptions
    from ._src.tools.refusal_texts import (
        ToolErrorFormatter as ToolErrorFormatter,
        ToolErrorFormatterArgs as ToolErrorFormatterArgs,
    )

__getattr__, __dir__ = lazy(__name__)
