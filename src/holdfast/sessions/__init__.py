"""The public names of `holdfast.sessions`, each loaded when it is first used.

Written by `./dev names` from `_exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy

if TYPE_CHECKING:
    from ..sessions.memory import InMemorySession, InMemoryStore
    from ..sessions.openai_conversations import OpenAIConversationsSession
    from ..sessions.protocol import (
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
    from ..sessions.sqlite import SQLiteSession

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
    "InMemorySession",
    "InMemoryStore",
    "Lease",
    "OpenAIConversationsSession",
    "Page",
    "Position",
    "SQLiteSession",
    "Session",
    "SessionABC",
    "SessionInfo",
    "SessionPage",
    "SessionSettings",
    "TResponseInputItem",
    "abilities",
]
__getattr__, __dir__ = lazy(__name__)
