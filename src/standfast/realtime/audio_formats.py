"""What the OpenAI Agents SDK documents as `agents.realtime.audio_formats`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.machine.session_settings import to_realtime_audio_format as to_realtime_audio_format

__getattr__, __dir__ = lazy(__name__)
