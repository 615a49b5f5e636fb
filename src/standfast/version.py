"""What the OpenAI Agents SDK documents as `agents.version`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from ._src.exports.lazy import lazy

__version__ = "0.2.0"
__getattr__, __dir__ = lazy(__name__)
