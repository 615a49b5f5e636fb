"""What the OpenAI Agents SDK documents as `agents.realtime.items`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.call_items import (
        AssistantAudio as AssistantAudio,
        AssistantMessageItem as AssistantMessageItem,
        AssistantText as AssistantText,
        InputAudio as InputAudio,
        InputImage as InputImage,
        InputText as InputText,
        RealtimeItem as RealtimeItem,
        RealtimeMessageItem as RealtimeMessageItem,
        RealtimeResponse as RealtimeResponse,
        RealtimeToolCallItem as RealtimeToolCallItem,
        SystemMessageItem as SystemMessageItem,
        UserMessageItem as UserMessageItem,
    )

__getattr__, __dir__ = lazy(__name__)
