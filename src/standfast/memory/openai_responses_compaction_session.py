"""What the OpenAI Agents SDK documents as `agents.memory.openai_responses_compaction_session`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.base.logs import logger as logger
    from standfast._src.sessions.rules.compaction import (
        DEFAULT_COMPACTION_THRESHOLD as DEFAULT_COMPACTION_THRESHOLD,
        default_should_trigger_compaction as default_should_trigger_compaction,
        is_openai_model_name as is_openai_model_name,
        select_compaction_candidate_items as select_compaction_candidate_items,
    )
    from standfast._src.sessions.wrappers.compaction.responses import (
        OpenAIResponsesCompactionSession as OpenAIResponsesCompactionSession,
    )

__getattr__, __dir__ = lazy(__name__)
