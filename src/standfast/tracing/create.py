"""What the OpenAI Agents SDK documents as `agents.tracing.create`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.spans import (
        agent_span,
        custom_span,
        function_span,
        generation_span,
        get_current_span,
        get_current_trace,
        guardrail_span,
        handoff_span,
        mcp_tools_span,
        response_span,
        speech_group_span,
        speech_span,
        task_span,
        trace,
        transcription_span,
        turn_span,
    )

__all__ = [
    "agent_span",
    "custom_span",
    "function_span",
    "generation_span",
    "get_current_span",
    "get_current_trace",
    "guardrail_span",
    "handoff_span",
    "mcp_tools_span",
    "response_span",
    "speech_group_span",
    "speech_span",
    "task_span",
    "trace",
    "transcription_span",
    "turn_span",
]
__getattr__, __dir__ = lazy(__name__)
