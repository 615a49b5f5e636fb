"""In-memory sessions, for tests and short-lived programs. Nothing outlives the process (A23)."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

from standfast._src.sessions.backends.memory.memory_runs import InMemoryRunStore
from standfast._src.sessions.backends.memory.memory_storage import MemoryStore
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.held_leases import StoredLease
from standfast._src.sessions.client.inline_executor import InlineExecutor
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import SessionSettings
from standfast._src.sessions.storage import run_program

__all__ = ["InMemoryLease", "InMemorySession", "InMemoryStore"]

InMemoryLease = StoredLease


class InMemoryStore(MemoryStore):
    """Histories and saved runs for several `InMemorySession` objects. They live as long as the process.

    `ttl_s`: what was not changed for so many seconds is forgotten, as a whole (A20). None keeps everything.
    """

    def run_store(self) -> InMemoryRunStore:
        """Return the run store over the same histories."""
        return InMemoryRunStore(store=self)


class InMemorySession(StoredSession):
    """Conversation kept in the memory of the process.

    Args:
        session_id: The name of the conversation.
        store: The store that several objects share; left out, the object has one of its own.
        session_settings: Settings such as the default limit of reads.
        timeout_s: The deadline of each operation.
    """

    def __init__(
        self,
        session_id: str,
        *,
        store: InMemoryStore | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        timeout_s: float = 30,
    ) -> None:
        super().__init__(session_id, session_settings=session_settings, timeout_s=timeout_s)
        self.store = InMemoryStore() if store is None else store

    def run_store(self) -> InMemoryRunStore:
        """Return the run store that shares the session's store. Does no I/O."""
        return self.store.run_store()

    def _carrier(self) -> Executor:
        return InlineExecutor(partial(run_program, self.store), self.store.lock)

    def _store_key(self) -> Hashable:
        return self.store

    def _another(self, new_id: str) -> InMemorySession:
        return InMemorySession(
            new_id, store=self.store, session_settings=self._copied_settings(), timeout_s=self.timeout_s
        )
