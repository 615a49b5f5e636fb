"""What the OpenAI Agents SDK documents as `agents.util`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from ._src.exports.lazy import lazy

__getattr__, __dir__ = lazy(__name__)
