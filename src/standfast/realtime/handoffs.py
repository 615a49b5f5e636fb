"""What the OpenAI Agents SDK documents as `agents.realtime.handoffs`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.realtime.agent import realtime_handoff as realtime_handoff

__getattr__, __dir__ = lazy(__name__)
