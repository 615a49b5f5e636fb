"""The contract, through a wrapper: what it hands on, it hands on whole. The store below makes no difference to that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from standfast._kits.operators.store import store_of
from standfast._src.sessions.wrappers.compaction.responses import OpenAIResponsesCompactionSession
from standfast.conformance import suite
from tests.conformance.kit_backends import Memory
from tests.conformance.narrowed import without
from tests.conformance.sealed_backends import SealedMemory


class CompactingMemory(Memory):
    name = "OpenAIResponsesCompactionSession over InMemorySession"

    def open(self, session_id: str, **options: Any) -> Any:
        return OpenAIResponsesCompactionSession(session_id, super().open(session_id, **options))

    def handed_in(self, session_id: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
        session, still_works = super().handed_in(session_id)
        return OpenAIResponsesCompactionSession(session_id, session), still_works

    def whole_store(self, *, read_only: bool = False) -> Any:
        """A store is opened below what is put around its sessions."""
        return store_of(super().open, self.name, read_only=read_only)


class CompactingSealedMemory(SealedMemory):
    """The only order of the two: what is sealed is a store's own session (EncryptedSession refuses another)."""

    name = "OpenAIResponsesCompactionSession over EncryptedSession over InMemorySession"

    def open(self, session_id: str, **options: Any) -> Any:
        return OpenAIResponsesCompactionSession(session_id, super().open(session_id, **options))

    def expiring(self, session_id: str, seconds: int) -> Any:
        return OpenAIResponsesCompactionSession(session_id, super().expiring(session_id, seconds))

    def handed_in(self, session_id: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
        session, still_works = super().handed_in(session_id)
        return OpenAIResponsesCompactionSession(session_id, session), still_works

    def whole_store(self, *, read_only: bool = False) -> Any:
        """A store is opened below what is put around its sessions."""
        return store_of(super().open, self.name, read_only=read_only)


TestCompactingMemory = suite(CompactingMemory())
TestCompactingSealedMemory = without(("A1_any", "A17_any", "A21", "B1_any"), suite(CompactingSealedMemory()))
# What is left out is shown on each of the two alone, and takes the longest.
