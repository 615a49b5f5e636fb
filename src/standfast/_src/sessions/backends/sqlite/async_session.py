"""The SDK's name for what `SQLiteSession` already is: an SQLite session that never blocks the event loop."""

from __future__ import annotations

from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

__all__ = ["AsyncSQLiteSession"]


class AsyncSQLiteSession(SQLiteSession):
    """`SQLiteSession` under the name that the OpenAI Agents SDK has for its asynchronous one; files are the same."""
