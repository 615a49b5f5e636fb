"""What the OpenAI Agents SDK documents as `agents.realtime.openai_realtime`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.talk.wire import DEFAULT_MODEL_SETTINGS
    from standfast.transports.websocket import (
        OpenAIRealtimeSIPModel,
        OpenAIRealtimeWebSocketModel,
        TransportConfig,
        get_api_key,
    )

__all__ = [
    "DEFAULT_MODEL_SETTINGS",
    "OpenAIRealtimeSIPModel",
    "OpenAIRealtimeWebSocketModel",
    "TransportConfig",
    "get_api_key",
]
__getattr__, __dir__ = lazy(__name__)
