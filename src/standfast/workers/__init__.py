"""Public path of `standfast._kits.workers`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.workers import (
        JobEnd as JobEnd,
        RunJob as RunJob,
        RunJobs as RunJobs,
        again_after_s as again_after_s,
    )

__getattr__, __dir__ = forward(__name__)
