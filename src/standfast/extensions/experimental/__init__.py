"""What the OpenAI Agents SDK documents as `agents.extensions.experimental`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from standfast._src.exports.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
