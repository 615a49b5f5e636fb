"""What the OpenAI Agents SDK documents as `agents.memory.util`.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._lazy import lazy

if TYPE_CHECKING:
    from holdfast.run_config import SessionInputCallback

__all__ = ["SessionInputCallback"]
__getattr__, __dir__ = lazy(__name__)
