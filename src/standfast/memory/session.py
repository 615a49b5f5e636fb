"""What the OpenAI Agents SDK documents as `agents.memory.session`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.sessions.protocol import Session as Session, SessionABC as SessionABC
    from standfast._src.sessions.rules.compaction import (
        OpenAIResponsesCompactionArgs as OpenAIResponsesCompactionArgs,
        OpenAIResponsesCompactionAwareSession as OpenAIResponsesCompactionAwareSession,
        is_openai_responses_compaction_aware_session as is_openai_responses_compaction_aware_session,
    )

__getattr__, __dir__ = lazy(__name__)
