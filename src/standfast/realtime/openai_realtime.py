"""What the OpenAI Agents SDK documents as `agents.realtime.openai_realtime`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.wire_format import DEFAULT_MODEL_SETTINGS as DEFAULT_MODEL_SETTINGS
    from standfast._src.realtime.transports.websocket import (
        OpenAIRealtimeSIPModel as OpenAIRealtimeSIPModel,
        OpenAIRealtimeWebSocketModel as OpenAIRealtimeWebSocketModel,
        TransportConfig as TransportConfig,
        get_api_key as get_api_key,
    )

__getattr__, __dir__ = lazy(__name__)
