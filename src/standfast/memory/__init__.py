"""What the OpenAI Agents SDK documents as `agents.memory`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.agents.run_config import SessionInputCallback
    from standfast.backends.compaction.responses import OpenAIResponsesCompactionSession
    from standfast.backends.conversations import OpenAIConversationsSession
    from standfast.backends.sqlite.session import SQLiteSession
    from standfast.sessions.compaction_rules import (
        OpenAIResponsesCompactionArgs,
        OpenAIResponsesCompactionAwareSession,
        is_openai_responses_compaction_aware_session,
    )
    from standfast.sessions.protocol import Session, SessionABC, SessionSettings

__all__ = [
    "OpenAIConversationsSession",
    "OpenAIResponsesCompactionArgs",
    "OpenAIResponsesCompactionAwareSession",
    "OpenAIResponsesCompactionSession",
    "SQLiteSession",
    "Session",
    "SessionABC",
    "SessionInputCallback",
    "SessionSettings",
    "is_openai_responses_compaction_aware_session",
]
__getattr__, __dir__ = lazy(__name__)
