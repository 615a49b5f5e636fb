"""What the OpenAI Agents SDK documents as `agents.memory.openai_conversations_session`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.sessions.backends.openai_conversations import (
        OpenAIConversationsSession as OpenAIConversationsSession,
        start_openai_conversations_session as start_openai_conversations_session,
    )

__getattr__, __dir__ = lazy(__name__)
