"""The SDK's name for `SQLiteSession`, which never blocks the event loop."""

from __future__ import annotations

from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

__all__ = ["AsyncSQLiteSession"]


class AsyncSQLiteSession(SQLiteSession):
    """`SQLiteSession` under the name of the OpenAI Agents SDK's asynchronous session; files are the same."""
