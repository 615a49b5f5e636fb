"""What the OpenAI Agents SDK documents as `agents.extensions.handoff_filters`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.agents.handoffs import (
        default_handoff_history_mapper as default_handoff_history_mapper,
        nest_handoff_history as nest_handoff_history,
        remove_all_tools as remove_all_tools,
    )

__getattr__, __dir__ = lazy(__name__)
