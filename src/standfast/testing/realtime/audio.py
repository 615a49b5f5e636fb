"""Public path of `standfast._kits.testing.realtime.audio`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.realtime.audio import (
        BYTES_PER_MS as BYTES_PER_MS,
        FORMATS as FORMATS,
        PCM as PCM,
        PCMA as PCMA,
        PCMU as PCMU,
        RATE_HZ as RATE_HZ,
        TONE_PEAK as TONE_PEAK,
        Format as Format,
        as_pcm as as_pcm,
        faster as faster,
        format_of as format_of,
        level as level,
        silence as silence,
        slower as slower,
        tone as tone,
    )

__getattr__, __dir__ = forward(__name__)
