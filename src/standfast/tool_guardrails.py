"""What the OpenAI Agents SDK documents as `agents.tool_guardrails`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._src.exports.lazy import lazy

if TYPE_CHECKING:
    from ._src.tools.tool_guardrails import (
        AllowBehavior as AllowBehavior,
        RaiseExceptionBehavior as RaiseExceptionBehavior,
        RejectContentBehavior as RejectContentBehavior,
        ToolGuardrailFunctionOutput as ToolGuardrailFunctionOutput,
        ToolInputGuardrail as ToolInputGuardrail,
        ToolInputGuardrailData as ToolInputGuardrailData,
        ToolInputGuardrailResult as ToolInputGuardrailResult,
        ToolOutputGuardrail as ToolOutputGuardrail,
        ToolOutputGuardrailData as ToolOutputGuardrailData,
        ToolOutputGuardrailResult as ToolOutputGuardrailResult,
        tool_input_guardrail as tool_input_guardrail,
        tool_output_guardrail as tool_output_guardrail,
    )

__getattr__, __dir__ = lazy(__name__)
