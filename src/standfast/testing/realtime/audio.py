"""Public path of `standfast._kits.testing.realtime.audio`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.realtime.audio import (
        BYTES_PER_MS,
        FORMATS,
        PCM,
        PCMA,
        PCMU,
        RATE_HZ,
        TONE_PEAK,
        Format,
        as_pcm,
        faster,
        format_of,
        level,
        silence,
        slower,
        tone,
    )

__all__ = [
    "BYTES_PER_MS",
    "FORMATS",
    "Format",
    "PCM",
    "PCMA",
    "PCMU",
    "RATE_HZ",
    "TONE_PEAK",
    "as_pcm",
    "faster",
    "format_of",
    "level",
    "silence",
    "slower",
    "tone",
]
__getattr__, __dir__ = forward(__name__)
