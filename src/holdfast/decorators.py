"""Every decorator in one place, under the path the OpenAI Agents SDK documents; `tool` is `function_tool`."""

from __future__ import annotations

from .guardrails import input_guardrail, output_guardrail, tool_input_guardrail, tool_output_guardrail
from .tools.function import function_tool

tool = function_tool

__all__ = [
    "function_tool",
    "input_guardrail",
    "output_guardrail",
    "tool",
    "tool_input_guardrail",
    "tool_output_guardrail",
]
