"""What the OpenAI Agents SDK documents as `agents.extensions.memory.advanced_sqlite_session`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.backends.advanced.session import AdvancedSQLiteSession

__all__ = ["AdvancedSQLiteSession"]
__getattr__, __dir__ = lazy(__name__)
