"""Sessions in an SQLite file: the OpenAI Agents SDK's tables, with every ability of part B on top.

`SQLiteSession` is thin. It checks and encodes in the caller's task, before anything is queued, and leaves the rest to
the engine of its file, which all session objects of the process share. Constructing one does no I/O; the first
operation opens the file. `:memory:` is a private database per object.
"""

from __future__ import annotations

import math
import os
import sqlite3
import time
import weakref
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from standfast.backends.sqlite import forks, generations, history, leases, listing, rows
from standfast.backends.sqlite.engine import MemoryStore, Store, acquire, registry_lock
from standfast.backends.sqlite.leases import SQLiteLease
from standfast.backends.sqlite.runs import SQLiteRunStore
from standfast.backends.sqlite.schema import Tables
from standfast.backends.sqlite.statements import statements
from standfast.carrying.closing import Done
from standfast.carrying.requests import Undo, Work
from standfast.ground.errors import CallerError, InvalidSessionIdError, SessionBusyError, SessionClosedError
from standfast.ground.jsonvalue import DIGEST_BYTES, Item, digest, encode
from standfast.sessions.protocol import (
    ALL_ABILITIES,
    CorruptRecord,
    Generation,
    Head,
    Lease,
    Page,
    Position,
    SessionABC,
    SessionInfo,
    SessionPage,
    SessionSettings,
    check_limit,
    check_session_id,
    coerce_settings,
    effective_limit,
)

__all__ = ["SQLiteLease", "SQLiteRunStore", "SQLiteSession"]

T = TypeVar("T")


class SQLiteSession(SessionABC):
    """A conversation in an SQLite file, or in memory. Any number of objects, threads, loops and processes may share it.

    `timeout_s` is the deadline of each operation, waiting for locks included.
    """

    declared_abilities: ClassVar[frozenset[str]] = ALL_ABILITIES | {"runs"}

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        *,
        timeout_s: float = 30.0,
    ) -> None:
        self.session_id = _checked_id(session_id)
        self.session_settings: SessionSettings | None = coerce_settings(session_settings)
        self.db_path = db_path
        self.sessions_table, self.messages_table = sessions_table, messages_table
        self.timeout_s = _checked_timeout(timeout_s)
        self._tables = Tables.of(sessions_table, messages_table)
        self._sql = statements(self._tables)
        # Where a relative path leads is decided now, as with the SDK, and not by where the process has gone since.
        self._path = None if str(db_path) == ":memory:" else os.path.abspath(db_path)
        self._store: Store | None = None
        self._finalizer: weakref.finalize[..., Any] | None = None
        self._closed = False

    # --- the five methods ------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The whole history, or the latest `limit` items; oldest first."""
        found = effective_limit(limit, self.session_settings)
        wanted = None if found is None else _within_sqlite(found)
        return await self._read(lambda db: history.get_items(db, self._sql, self.session_id, wanted))

    async def add_items(self, items: list[Item]) -> None:
        """Append one batch, in order, whole or not at all."""
        texts = [encode(item).decode() for item in items]
        self._check_open()
        if texts:
            await self._write(lambda db: history.add(db, self._sql, self.session_id, texts))

    async def pop_item(self) -> Item | None:
        """Remove and return the newest valid item; None when there is none. Corrupt records stay."""
        popped = await self._write(
            lambda db: history.pop(db, self._sql, self.session_id),
            undo=lambda db, done: history.put_back(db, self._sql, self.session_id, done),
        )
        return None if popped is None else popped.item

    async def clear_session(self) -> None:
        """Remove everything stored for this id, except how much each writer wrote and the lease's number."""
        await self._write(lambda db: history.clear(db, self._sql, self.session_id))

    def close(self) -> Coroutine[Any, Any, None]:
        """Close this session object, now; awaiting the result is allowed and not needed."""
        with registry_lock:
            self._closed = True
            store, self._store = self._store, None
            finalizer, self._finalizer = self._finalizer, None
        if store is not None and finalizer is not None and finalizer.detach() is not None:
            store.release()
        return Done()

    # --- append ------------------------------------------------------------------------------

    async def head(self) -> Head:
        """Where the history ends now."""
        return await self._read(lambda db: rows.read_head(db, self._sql, self.session_id))

    async def append(
        self,
        items: Sequence[Item],
        *,
        writer: str,
        start: int,
        expect: Head | None = None,
        lease: Lease | None = None,
        digests: Sequence[bytes] | None = None,
    ) -> Head:
        """Store `items` as this writer's items number `start` and on, once, however often it is asked (B1)."""
        encoded = [encode(item) for item in items]
        known_by = [digest(data) for data in encoded] if digests is None else [_digest(given) for given in digests]
        if len(known_by) != len(encoded):
            raise CallerError(
                f"{len(encoded)} items came with {len(known_by)} digests", "Give one digest for each item, or none."
            )
        _check_ordinal(start)
        texts = [data.decode() for data in encoded]
        batch = history.Batch(_checked_writer(writer), start, texts, known_by, expect, _number(lease))
        return await self._write(lambda db: history.append(db, self._sql, self.session_id, batch))

    async def accepted(self, writer: str) -> int:
        """How many items this writer has written; popping, replacing and clearing do not lower it (B1)."""
        name = _checked_writer(writer)
        return await self._read(lambda db: history.accepted(db, self._sql, self.session_id, name))

    async def written(self, writer: str) -> list[Item]:
        """This writer's items that are still kept, in order, those moved into a kept generation included (B1)."""
        name = _checked_writer(writer)
        return await self._look(lambda db: generations.written(db, self._sql, self.session_id, name))

    # --- replace, rewind, fork ------------------------------------------------------------------------------

    async def replace(self, items: Sequence[Item], *, upto: Head, lease: Lease | None = None) -> Head:
        """Put `items` in place of the history up to `upto`; what was appended since stays behind them (B3)."""
        texts, fence = [encode(item).decode() for item in items], _number(lease)
        return await self._write(lambda db: generations.replace(db, self._sql, self.session_id, texts, upto, fence))

    async def generations(self) -> list[Generation]:
        """The kept generations, newest first."""
        return await self._look(lambda db: generations.listed(db, self._sql, self.session_id))

    async def read_generation(self, generation_id: str) -> list[Item]:
        """The items of a kept generation."""
        return await self._look(lambda db: generations.read(db, self._sql, self.session_id, generation_id))

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        """Put a generation back where its replacement stands; what it displaces becomes one itself (B4)."""
        return await self._write(lambda db: generations.restore(db, self._sql, self.session_id, generation_id, expect))

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        """Remove this writer's items from number `to` on, if they are the whole tail (B5)."""
        name = _checked_writer(writer)
        _check_ordinal(to)
        return await self._write(lambda db: generations.rewind(db, self._sql, self.session_id, name, to, expect))

    async def fork(self, new_id: str, *, at: Position | None = None) -> SQLiteSession:
        """Make session `new_id` in the same file continue from that position; the two never meet again (B6)."""
        _checked_id(new_id)
        await self._write(lambda db: forks.fork(db, self._sql, self.session_id, new_id, at))
        settings = self.session_settings
        made = SQLiteSession(
            new_id,
            self.db_path if self._path is None else self._path,
            self.sessions_table,
            self.messages_table,
            None if settings is None else settings.to_dict(),
            timeout_s=self.timeout_s,
        )
        if self._path is None:
            made._share(self._opened())
        return made

    # --- lease ------------------------------------------------------------------------------

    async def lease(self, *, ttl_s: float, wait_s: float) -> SQLiteLease:
        """Acquire, waiting at most `wait_s` for the holder to give it up; raises SessionBusyError after that (B7)."""
        if not (math.isfinite(ttl_s) and ttl_s > 0):
            raise CallerError(f"a lease of {ttl_s} s cannot be held", "Give ttl_s as a positive number of seconds.")
        deadline = time.monotonic() + wait_s
        pause = leases.POLL_FIRST_S
        while True:
            number = await self._acquire_lease(ttl_s)
            if number is not None:
                return SQLiteLease(number, ttl_s, self._hold_lease)
            left = deadline - time.monotonic()
            if left <= 0:
                raise SessionBusyError(
                    f"session {self.session_id!r} is held by another run and was not given up within {wait_s} s",
                    "Wait longer, or choose another concurrency policy for the run.",
                )
            await leases.WAITERS.wait(self._lease_key, min(pause, left))
            pause = min(pause * 1.5, leases.POLL_MAX_S)

    async def _acquire_lease(self, ttl_s: float) -> int | None:
        def give_up(db: sqlite3.Connection, number: int | None) -> None:
            if number is not None:
                leases.hold(db, self._sql, self.session_id, number, 0.0)

        return await self._write(
            lambda db: leases.acquire(db, self._sql, self.session_id, ttl_s), undo=give_up, relaxed=True
        )

    async def _hold_lease(self, number: int, ttl_s: float) -> bool:
        if self._closed and not ttl_s:
            return False  # nothing is left to give it up through; it expires
        held = await self._write(lambda db: leases.hold(db, self._sql, self.session_id, number, ttl_s), relaxed=True)
        if not ttl_s:
            leases.WAITERS.wake(self._lease_key)
        return held

    @property
    def _lease_key(self) -> tuple[Any, ...]:
        return (self._path or id(self._store), self._tables, self.session_id)

    # --- page, list, times, corrupt records, runs --------------------------------------------------------------------

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        """The `limit` items before that cursor (None: the latest), in time proportional to the page (B8)."""
        check_limit(limit)
        wanted = _within_sqlite(limit)
        return await self._read(lambda db: history.page(db, self._sql, self.session_id, before, wanted))

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        """Sessions of this session's tables, newest change first (B9)."""
        check_limit(limit)
        wanted = _within_sqlite(limit)
        return await self._read(lambda db: listing.list_sessions(db, self._sql, after, wanted))

    async def count_sessions(self) -> int:
        """How many sessions these tables have."""
        return await self._read(lambda db: listing.count_sessions(db, self._sql))

    async def info(self) -> SessionInfo | None:
        """This session's times; None if nothing is stored for it (A16)."""
        return await self._read(lambda db: listing.info(db, self._sql, self.session_id))

    async def corrupt_records(self) -> list[CorruptRecord]:
        """Every corrupt record of this session, oldest first (A14)."""
        return await self._read(lambda db: history.corrupt_records(db, self._sql, self.session_id))

    async def repair(self) -> list[CorruptRecord]:
        """Remove the corrupt records of this session and give them back. Nothing else ever removes one but a clear."""
        return await self._write(lambda db: history.repair(db, self._sql, self.session_id))

    def run_store(self) -> SQLiteRunStore:
        """The run store beside this session's history. Does no I/O."""
        return SQLiteRunStore(self._sql, self._write, self._read)

    # --- inside ------------------------------------------------------------------------------

    # Not coroutines of their own: in a group of many turns, passing through one more frame each is measurable.

    def _write(self, work: Work[T], *, undo: Undo[T] | None = None, relaxed: bool = False) -> Coroutine[Any, Any, T]:
        return self._opened().write(work, self._tables, self.timeout_s, undo=undo, relaxed=relaxed)

    def _read(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        return self._opened().read(work, self._tables, self.timeout_s)

    async def _look(self, work: Work[T]) -> T:
        """Read with several statements that must see one state."""

        def together(db: sqlite3.Connection) -> T:
            with rows.snapshot(db):
                return work(db)

        return await self._read(together)

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError(f"session {self.session_id!r} is closed", "Open a new session object for this id.")

    def _opened(self) -> Store:
        """The engine behind this object, of this process."""
        store = self._store
        if store is not None and not store.inherited:
            return store
        with registry_lock:
            self._check_open()
            if self._store is None or self._store.inherited:
                found: Store = MemoryStore() if self._path is None else acquire(os.path.realpath(self._path))
                self._adopt(found)
            assert self._store is not None
            return self._store

    def _share(self, store: Store) -> None:
        """Use the private store of the session this one was forked from."""
        with registry_lock:
            store.add_user()
            self._adopt(store)

    def _adopt(self, store: Store) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
        self._store = store
        self._finalizer = weakref.finalize(self, store.release_later)
        self._finalizer.atexit = False  # at exit every engine is ended anyway


def _checked_id(session_id: Any) -> str:
    """The id, if SQLite can hold it exactly (A18)."""
    found = check_session_id(session_id)
    try:
        found.encode()
    except UnicodeEncodeError:
        raise InvalidSessionIdError(
            f"{session_id!r} holds half of a surrogate pair, which SQLite cannot store",
            "Use an id that is valid Unicode.",
        ) from None
    return found


def _checked_writer(writer: Any) -> str:
    try:
        if isinstance(writer, str) and writer.encode():
            return writer
    except UnicodeEncodeError:
        pass
    raise CallerError(
        f"{writer!r} is not the name of a writer", "Use a non-empty string of valid Unicode, for example the run's id."
    )


def _check_ordinal(number: Any) -> None:
    if isinstance(number, bool) or not isinstance(number, int):
        raise CallerError(f"{number!r} does not number an item", "Give how many items the writer wrote before it.")


def _checked_timeout(timeout_s: Any) -> float:
    if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not timeout_s > 0:
        raise CallerError(f"a timeout_s of {timeout_s!r} leaves no time", "Give a positive number of seconds.")
    return float(timeout_s)


def _within_sqlite(limit: int) -> int:
    """A limit that SQLite can count to; no history is longer."""
    return min(limit, 2**62)


def _number(lease: Lease | None) -> int | None:
    return None if lease is None else lease.number


def _digest(given: bytes) -> bytes:
    """A digest as it is stored: of one length, whatever the caller's are."""
    return given if len(given) == DIGEST_BYTES else digest(given)
