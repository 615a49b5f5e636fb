"""What the OpenAI Agents SDK documents as `agents.extensions.memory`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import lazy

if TYPE_CHECKING:
    from standfast._src.sessions.backends.redis.redis_session import RedisSession as RedisSession
    from standfast._src.sessions.backends.sqlalchemy.sqlalchemy_session import SQLAlchemySession as SQLAlchemySession
    from standfast._src.sessions.backends.sqlite.async_session import AsyncSQLiteSession as AsyncSQLiteSession
    from standfast._src.sessions.wrappers.branches.advanced_session import (
        AdvancedSQLiteSession as AdvancedSQLiteSession,
    )
    from standfast._src.sessions.wrappers.encrypted.encrypted_session import EncryptedSession as EncryptedSession

__getattr__, __dir__ = lazy(__name__)
