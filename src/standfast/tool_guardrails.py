"""What the OpenAI Agents SDK documents as `agents.tool_guardrails`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.tools.tool_guardrails import (
        AllowBehavior,
        RaiseExceptionBehavior,
        RejectContentBehavior,
        ToolGuardrailFunctionOutput,
        ToolInputGuardrail,
        ToolInputGuardrailData,
        ToolInputGuardrailResult,
        ToolOutputGuardrail,
        ToolOutputGuardrailData,
        ToolOutputGuardrailResult,
        tool_input_guardrail,
        tool_output_guardrail,
    )

__all__ = [
    "AllowBehavior",
    "RaiseExceptionBehavior",
    "RejectContentBehavior",
    "ToolGuardrailFunctionOutput",
    "ToolInputGuardrail",
    "ToolInputGuardrailData",
    "ToolInputGuardrailResult",
    "ToolOutputGuardrail",
    "ToolOutputGuardrailData",
    "ToolOutputGuardrailResult",
    "tool_input_guardrail",
    "tool_output_guardrail",
]
__getattr__, __dir__ = lazy(__name__)
