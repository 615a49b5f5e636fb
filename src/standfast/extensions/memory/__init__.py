"""What the OpenAI Agents SDK documents as `agents.extensions.memory`.

Written by `./dev names` from `_doors/exports.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._doors.lazy import lazy

if TYPE_CHECKING:
    from standfast.backends.advanced.session import AdvancedSQLiteSession
    from standfast.backends.redis.session import RedisSession
    from standfast.backends.sealed.session import EncryptedSession
    from standfast.backends.sqlalchemy.session import SQLAlchemySession
    from standfast.backends.sqlite.async_session import AsyncSQLiteSession

__all__ = ["AdvancedSQLiteSession", "AsyncSQLiteSession", "EncryptedSession", "RedisSession", "SQLAlchemySession"]
__getattr__, __dir__ = lazy(__name__)
