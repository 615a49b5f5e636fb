"""Read-only session in a database file."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from standfast._src.sessions.backends.sqlite.read_only import ReadOnlyFile
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.read_only_executor import InThreads
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import SessionSettings


class ReadOnlySQLiteSession(StoredSession):
    """Conversation in an SQLite file of any layout, current, older or the SDK's, read without changes."""

    read_only = True

    def __init__(
        self,
        session_id: str,
        file: ReadOnlyFile,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        super().__init__(session_id, session_settings=session_settings, timeout_s=timeout_s)
        self._file = file
        self.db_path = file.path

    def _carrier(self) -> Executor:
        return InThreads(self._file)

    def _store_key(self) -> Hashable:
        return self._file.key

    def _another(self, new_id: str) -> ReadOnlySQLiteSession:
        return ReadOnlySQLiteSession(
            new_id, self._file, session_settings=self._copied_settings(), timeout_s=self.timeout_s
        )
