"""Public path of `standfast._kits.testing.simulator`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from standfast._src.exports.lazy import forward

__getattr__, __dir__ = forward(__name__)
