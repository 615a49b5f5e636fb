"""The backends that the kit is run on: ours, and the OpenAI Agents SDK's."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import cached_property
from importlib.metadata import version
from typing import Any

import agents

from standfast._kits.conformance.backends.sqlite import BAD_TABLES, TABLES, SQLiteBackend
from standfast._kits.conformance.reference_session import ReferenceSession, ReferenceStore
from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.storage import KeyUpdate, Name, ReadRequest, Rows, Tag
from standfast.conformance import Backend, message
from standfast.conformance.sqlite_file import SQLiteFile


class Memory(Backend):
    name = "InMemorySession"
    closes_when_called = True
    not_applicable: Mapping[str, str] = {
        "A15": "memory has no tables or keys to name",
        "A23": "nothing in memory outlives its process",
        "B10": "no other program can open this process's memory",
    }

    @cached_property
    def store(self) -> InMemoryStore:
        return InMemoryStore()

    def open(self, session_id: str, **options: Any) -> InMemorySession:
        return InMemorySession(session_id, store=self.store, **options)

    def setup(self) -> None:
        vars(self).pop("store", None)

    def inject_record(self, session_id: str, data: bytes) -> None:
        self.store.inject_record(session_id, data)

    def damage_newest(self, session_id: str, data: bytes) -> None:
        name = Name("session", session_id)
        (newest,) = self.store.look(ReadRequest(name, rows=(Rows(limit=1),))).rows[0]
        self.store.commit([KeyUpdate(name, drop=[newest.ref], push=[(data, newest.tag or Tag())])])

    def shift_times(self, session_id: str, seconds: float) -> None:
        self.store.shift_times(session_id, seconds)

    def expiring(self, session_id: str, seconds: int) -> InMemorySession:
        return InMemorySession(session_id, store=InMemoryStore(ttl_s=seconds))

    @contextmanager
    def stall(self) -> Iterator[None]:
        with self.store.lock:
            yield

    def handed_in(self, session_id: str) -> tuple[InMemorySession, Callable[[], Awaitable[Any]]]:
        store = InMemoryStore()

        async def still_works() -> None:
            again = InMemorySession(session_id, store=store)
            await again.add_items([message("again")])
            assert len(await again.get_items()) == 3

        return InMemorySession(session_id, store=store), still_works


class Reference(Memory):
    """The kit's own oracle, which shares no line with the rules."""

    name = "ReferenceSession"
    not_applicable: Mapping[str, str] = {
        **Memory.not_applicable,
        "A20": "no expiry can be configured",
        **dict.fromkeys([f"B{n}" for n in range(11, 18)], "an oracle for histories shows nothing to people"),
    }

    @cached_property
    def store(self) -> ReferenceStore:  # type: ignore[override]
        return ReferenceStore()

    def open(self, session_id: str, **options: Any) -> ReferenceSession:  # type: ignore[override]
        return ReferenceSession(session_id, store=self.store, **options)

    def damage_newest(self, session_id: str, data: bytes) -> None:
        rows = self.store.conversation(session_id).rows
        rows[-1] = replace(rows[-1], data=data, fault="not a JSON object")

    def shift_times(self, session_id: str, seconds: float) -> None:
        talk, change = self.store.conversation(session_id), timedelta(seconds=seconds)
        assert talk.created_at is not None
        assert talk.updated_at is not None
        talk.created_at, talk.updated_at = talk.created_at + change, talk.updated_at + change

    def handed_in(self, session_id: str) -> tuple[Any, Callable[[], Awaitable[Any]]]:
        store = ReferenceStore()

        async def still_works() -> None:
            again = ReferenceSession(session_id, store=store)
            await again.add_items([message("again")])
            assert len(await again.get_items()) == 3

        return ReferenceSession(session_id, store=store), still_works


class AgentsSQLite(SQLiteFile):
    name = "openai-agents SQLiteSession"
    about = f"openai-agents {version('openai-agents')} on SQLite {sqlite3.sqlite_version}"
    deadlines = False
    names = TABLES
    bad_names = BAD_TABLES
    not_applicable: Mapping[str, str] = {"A20": "no expiry can be configured"}

    def open(self, session_id: str, **options: Any) -> agents.SQLiteSession:
        return agents.SQLiteSession(session_id, self.path, **options)


class StandfastSQLite(SQLiteBackend):
    def peer(self, session_id: str) -> agents.SQLiteSession:
        return agents.SQLiteSession(session_id, self.path)


class StandfastAdvanced(StandfastSQLite):
    name = "AdvancedSQLiteSession"
    names = ()
    bad_names = ()
    not_applicable: Mapping[str, str] = {
        **StandfastSQLite.not_applicable,
        "A15": "the SDK's tables of branches and turns belong to one pair of tables in a file",
    }

    def open(self, session_id: str, **options: Any) -> Any:
        from standfast._src.sessions.wrappers.branches.advanced_session import AdvancedSQLiteSession

        return AdvancedSQLiteSession(session_id=session_id, db_path=self.path, create_tables=True, **options)

    def peer(self, session_id: str) -> agents.SQLiteSession:
        from agents.extensions.memory import AdvancedSQLiteSession

        return AdvancedSQLiteSession(session_id=session_id, db_path=self.path, create_tables=True)
