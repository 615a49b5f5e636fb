"""What the OpenAI Agents SDK documents as `agents.decorators`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ._doors.lazy import lazy

if TYPE_CHECKING:
    from .agents.guardrails import input_guardrail, output_guardrail
    from .tools.function import function_tool, tool
    from .tools.guardrails import tool_input_guardrail, tool_output_guardrail

__all__ = [
    "function_tool",
    "input_guardrail",
    "output_guardrail",
    "tool",
    "tool_input_guardrail",
    "tool_output_guardrail",
]
__getattr__, __dir__ = lazy(__name__)
