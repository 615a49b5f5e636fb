"""Encrypted sessions over each store, for the kit. Faults are staged in the store, so they meet sealed records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from standfast._kits.operators.store import store_of
from standfast._src.sessions.wrappers.encrypted.encrypted_session import EncryptedSession
from standfast.conformance import Backend
from tests.conformance.kit_backends import Memory, StandfastSQLite
from tests.conformance.server_backends import StandfastPostgres, StandfastRedis

KEYS = {"2026-11": "a key for the kit alone", "2026-05": "an older one"}
NO_PEER = "what is sealed means nothing to another program, and what it writes is no record of an encrypted session"


class Sealing(Backend):
    """Puts encryption around the sessions of the backend it is mixed into."""

    not_applicable: Mapping[str, str] = {}

    def open(self, session_id: str, **options: Any) -> Any:
        # Ten seconds in place of thirty: checks that lose every answer last as long as an operation may.
        return around(super().open(session_id, **{"timeout_s": 10, **options}))

    def whole_store(self, *, read_only: bool = False) -> Any:
        """The store below, with encryption around each of its sessions."""
        if isinstance(self, Memory):  # made of sessions of `open`, which are sealed already
            return super().whole_store(read_only=read_only)
        store = super().whole_store(read_only=read_only)
        return store_of(lambda session_id: around(store.session(session_id)), self.name, read_only=read_only)


def around(session: Any) -> EncryptedSession:
    return EncryptedSession(session.session_id, session, keys=KEYS, current="2026-11", tenant="kit")


class SealedMemory(Sealing, Memory):
    name = "EncryptedSession over InMemorySession"
    not_applicable: Mapping[str, str] = {**Memory.not_applicable}

    def expiring(self, session_id: str, seconds: int) -> Any:
        return around(super().expiring(session_id, seconds))

    def handed_in(self, session_id: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
        session, still_works = super().handed_in(session_id)
        return around(session), still_works


class SealedSQLite(Sealing, StandfastSQLite):
    name = "EncryptedSession over SQLiteSession"
    not_applicable: Mapping[str, str] = {**StandfastSQLite.not_applicable, "B10": NO_PEER}


class SealedRedis(Sealing, StandfastRedis):
    name = "EncryptedSession over RedisSession"
    not_applicable: Mapping[str, str] = {**StandfastRedis.not_applicable, "B10": NO_PEER}

    def handed_in(self, session_id: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
        session, still_works = super().handed_in(session_id)
        return around(session), still_works


class SealedPostgres(Sealing, StandfastPostgres):
    name = "EncryptedSession over PostgresSession"
    not_applicable: Mapping[str, str] = {**StandfastPostgres.not_applicable, "B10": NO_PEER}
