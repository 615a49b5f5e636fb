"""What the OpenAI Agents SDK documents as `agents.memory.session_settings`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.sessions.protocol import (
        SessionSettings as SessionSettings,
        coerce_session_settings as coerce_session_settings,
        resolve_session_limit as resolve_session_limit,
    )

__getattr__, __dir__ = lazy(__name__)
