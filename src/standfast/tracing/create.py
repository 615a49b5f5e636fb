"""What the OpenAI Agents SDK documents as `agents.tracing.create`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.tracing.spans import (
        agent_span as agent_span,
        custom_span as custom_span,
        function_span as function_span,
        generation_span as generation_span,
        get_current_span as get_current_span,
        get_current_trace as get_current_trace,
        guardrail_span as guardrail_span,
        handoff_span as handoff_span,
        mcp_tools_span as mcp_tools_span,
        response_span as response_span,
        speech_group_span as speech_group_span,
        speech_span as speech_span,
        task_span as task_span,
        trace as trace,
        transcription_span as transcription_span,
        turn_span as turn_span,
    )

__getattr__, __dir__ = lazy(__name__)
