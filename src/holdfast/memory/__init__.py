"""What the OpenAI Agents SDK documents as `agents.memory`.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from ..run_config import SessionInputCallback
    from ..sessions.compaction import OpenAIResponsesCompactionSession
    from ..sessions.compaction_rules import (
        OpenAIResponsesCompactionArgs,
        OpenAIResponsesCompactionAwareSession,
        is_openai_responses_compaction_aware_session,
    )
    from ..sessions.openai_conversations import OpenAIConversationsSession
    from ..sessions.protocol import Session, SessionABC, SessionSettings
    from ..sessions.sqlite import SQLiteSession

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
