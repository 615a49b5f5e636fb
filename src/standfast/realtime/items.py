"""What the OpenAI Agents SDK documents as `agents.realtime.items`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.call_items import (
        AssistantAudio,
        AssistantMessageItem,
        AssistantText,
        InputAudio,
        InputImage,
        InputText,
        RealtimeItem,
        RealtimeMessageItem,
        RealtimeResponse,
        RealtimeToolCallItem,
        SystemMessageItem,
        UserMessageItem,
    )

__all__ = [
    "AssistantAudio",
    "AssistantMessageItem",
    "AssistantText",
    "InputAudio",
    "InputImage",
    "InputText",
    "RealtimeItem",
    "RealtimeMessageItem",
    "RealtimeResponse",
    "RealtimeToolCallItem",
    "SystemMessageItem",
    "UserMessageItem",
]
__getattr__, __dir__ = lazy(__name__)
