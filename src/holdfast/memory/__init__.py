"""What the OpenAI Agents SDK documents as `agents.memory`.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._lazy import lazy

if TYPE_CHECKING:
    from holdfast.run_config import SessionInputCallback
    from holdfast.sessions.compaction import OpenAIResponsesCompactionSession
    from holdfast.sessions.compaction_rules import (
        OpenAIResponsesCompactionArgs,
        OpenAIResponsesCompactionAwareSession,
        is_openai_responses_compaction_aware_session,
    )
    from holdfast.sessions.openai_conversations import OpenAIConversationsSession
    from holdfast.sessions.protocol import Session, SessionABC, SessionSettings
    from holdfast.sessions.sqlite import SQLiteSession

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
