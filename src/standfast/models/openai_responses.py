"""What the OpenAI Agents SDK documents as `agents.models.openai_responses`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.models.providers.headers import _HEADERS_OVERRIDE
    from standfast._src.models.providers.responses_converter import ConvertedTools, Converter
    from standfast._src.models.providers.responses_model import OpenAIResponsesModel
    from standfast._src.models.providers.websocket_names import (
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
    "_HEADERS_OVERRIDE",
]
__getattr__, __dir__ = lazy(__name__)
