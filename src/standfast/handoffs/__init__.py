"""What the OpenAI Agents SDK documents as `agents.handoffs`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.agents.handoff_data import (
        HandoffHistoryMapper as HandoffHistoryMapper,
        HandoffInputData as HandoffInputData,
        HandoffInputFilter as HandoffInputFilter,
    )
    from standfast._src.agents.handoffs import (
        Handoff as Handoff,
        default_handoff_history_mapper as default_handoff_history_mapper,
        get_conversation_history_wrappers as get_conversation_history_wrappers,
        handoff as handoff,
        nest_handoff_history as nest_handoff_history,
        reset_conversation_history_wrappers as reset_conversation_history_wrappers,
        set_conversation_history_wrappers as set_conversation_history_wrappers,
    )

__getattr__, __dir__ = lazy(__name__)
