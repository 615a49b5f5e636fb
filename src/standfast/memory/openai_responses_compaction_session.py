"""What the OpenAI Agents SDK documents as `agents.memory.openai_responses_compaction_session`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.base.logs import logger
    from standfast._src.sessions.rules.compaction import (
        DEFAULT_COMPACTION_THRESHOLD,
        default_should_trigger_compaction,
        is_openai_model_name,
        select_compaction_candidate_items,
    )
    from standfast._src.sessions.wrappers.compaction.responses import OpenAIResponsesCompactionSession

__all__ = [
    "DEFAULT_COMPACTION_THRESHOLD",
    "OpenAIResponsesCompactionSession",
    "default_should_trigger_compaction",
    "is_openai_model_name",
    "logger",
    "select_compaction_candidate_items",
]
__getattr__, __dir__ = lazy(__name__)
