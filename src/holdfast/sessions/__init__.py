"""The public names of `holdfast.sessions`, each loaded when it is first used.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._lazy import lazy

if TYPE_CHECKING:
    from holdfast.sessions.compaction import OpenAIResponsesCompactionSession
    from holdfast.sessions.compaction_rules import (
        OpenAIResponsesCompactionArgs,
        OpenAIResponsesCompactionAwareSession,
        is_openai_responses_compaction_aware_session,
    )
    from holdfast.sessions.memory import InMemorySession, InMemoryStore
    from holdfast.sessions.memory_runs import InMemoryRunStore
    from holdfast.sessions.openai_conversations import OpenAIConversationsSession, start_openai_conversations_session
    from holdfast.sessions.protocol import (
        Ability,
        CanAppend,
        CanFork,
        CanLease,
        CanList,
        CanPage,
        CanReplace,
        CanReportCorrupt,
        CanRewind,
        CorruptRecord,
        Generation,
        HasTimes,
        Head,
        Lease,
        Page,
        Position,
        Session,
        SessionABC,
        SessionInfo,
        SessionPage,
        SessionSettings,
        TResponseInputItem,
        abilities,
    )
    from holdfast.sessions.sqlite import SQLiteSession
    from holdfast.sessions.summarise import SummarisingSession

__all__ = [
    "Ability",
    "CanAppend",
    "CanFork",
    "CanLease",
    "CanList",
    "CanPage",
    "CanReplace",
    "CanReportCorrupt",
    "CanRewind",
    "CorruptRecord",
    "Generation",
    "HasTimes",
    "Head",
    "InMemoryRunStore",
    "InMemorySession",
    "InMemoryStore",
    "Lease",
    "OpenAIConversationsSession",
    "OpenAIResponsesCompactionArgs",
    "OpenAIResponsesCompactionAwareSession",
    "OpenAIResponsesCompactionSession",
    "Page",
    "Position",
    "SQLiteSession",
    "Session",
    "SessionABC",
    "SessionInfo",
    "SessionPage",
    "SessionSettings",
    "SummarisingSession",
    "TResponseInputItem",
    "abilities",
    "is_openai_responses_compaction_aware_session",
    "start_openai_conversations_session",
]
__getattr__, __dir__ = lazy(__name__)
