"""Public path of `standfast._kits.workers.procrastinate_queue`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.workers.procrastinate_queue import CLOSING_S as CLOSING_S, RunQueue as RunQueue

__getattr__, __dir__ = forward(__name__)
