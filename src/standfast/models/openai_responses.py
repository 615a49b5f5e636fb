"""What the OpenAI Agents SDK documents as `agents.models.openai_responses`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.providers.responses import OpenAIResponsesModel
    from standfast.providers.responses_converter import ConvertedTools, Converter
    from standfast.providers.websocket import (
        OpenAIResponsesWebSocketOptions,
        OpenAIResponsesWSModel,
        ResponsesWebSocketError,
    )

__all__ = [
    "ConvertedTools",
    "Converter",
    "OpenAIResponsesModel",
    "OpenAIResponsesWSModel",
    "OpenAIResponsesWebSocketOptions",
    "ResponsesWebSocketError",
]
__getattr__, __dir__ = lazy(__name__)
