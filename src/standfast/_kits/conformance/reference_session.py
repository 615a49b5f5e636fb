"""Sessions in memory: the obviously right reference, also for tests and short-lived programs.

`ReferenceSession` has every ability of part B. Each operation is a plain change of plain structures under one lock, so
it happens whole or not at all; the only place where an operation can wait, be cancelled or run out of time is before
it has the lock. What is promised by a store that outlives the process (A23) is not promised here.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self, TypeVar

from standfast._kits.conformance.reference_runs import ReferenceRunStore
from standfast._kits.conformance.reference_store import ReferenceStore, StoredConversation
from standfast._src.base.errors import (
    CallerError,
    LeaseLostError,
    SessionBusyError,
    SessionClosedError,
    StoreTimeoutError,
)
from standfast._src.base.json_values import Item, decode, digest, encode
from standfast._src.base.logs import session_logger as _log
from standfast._src.sessions.client.completed import Completed
from standfast._src.sessions.protocol import (
    ALL_ABILITIES,
    LOOKING_ABILITIES,
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
    coerce_session_settings,
    effective_limit,
)

__all__ = ["ReferenceLease", "ReferenceSession", "ReferenceStore"]

T = TypeVar("T")

LOCK_POLL_S = 0.001
# The lock is held for microseconds, by any thread or loop; asking again after a millisecond is cheaper than a queue
# of waiters that belong to loops which may end, and leaves nothing to undo when a waiter is cancelled.

LEASE_POLL_S = 0.01


class ReferenceSession(SessionABC):
    """A conversation kept in this process. Sessions with the same `store` share it."""

    declared_abilities: ClassVar[frozenset[str]] = ALL_ABILITIES - LOOKING_ABILITIES - {"record"}

    def __init__(
        self,
        session_id: str,
        *,
        store: ReferenceStore | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        timeout_s: float = 30,
    ) -> None:
        self.session_id = check_session_id(session_id)
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings)
        self.timeout_s = timeout_s
        self.store = ReferenceStore() if store is None else store
        self._closed = False

    # --- the five methods ------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """The whole history, or the latest `limit` items; oldest first."""
        wanted = effective_limit(limit, self.session_settings)
        found = await self._do(lambda talk: (talk.items(wanted), talk.report_corrupt()))
        return _decode_items(*found)

    async def add_items(self, items: list[Item]) -> None:
        """Append a batch, in order, whole or not at all."""
        encoded = [encode(item) for item in items]
        await self._do(lambda talk: talk.add(encoded) if encoded else None)

    async def pop_item(self) -> Item | None:
        """Remove and return the newest valid item, or None. Corrupt records stay."""
        data, unreported = await self._do(lambda talk: (talk.pop(), talk.report_corrupt()))
        found = _decode_items([] if data is None else [data], unreported)
        return found[0] if found else None

    async def clear_session(self) -> None:
        """Remove everything stored for this id, except how much each writer wrote and the lease's number."""
        runs = self.store.run_store()

        def change(talk: StoredConversation) -> None:
            talk.clear()
            runs.forget(self.session_id, keep_running=talk.fence.held_until > time.monotonic())

        await self._do(change)

    def close(self) -> Coroutine[Any, Any, None]:
        """Close this session object, now; awaiting the result is allowed and not needed."""
        self._closed = True
        return Completed()

    # --- append ------------------------------------------------------------------------------

    async def head(self) -> Head:
        """Return the present head of the history."""
        return await self._do(StoredConversation.head)

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
        """Store `items` as this writer's items number `start` and on, once, however often repeated (B1)."""
        encoded = [encode(item) for item in items]
        known_by = [digest(data) for data in encoded] if digests is None else list(digests)
        _check(writer, str)
        _check(start, int)
        if len(known_by) != len(encoded):
            raise CallerError(
                f"{len(encoded)} items came with {len(known_by)} digests", "Give one digest for each item, or none."
            )
        number = _number(lease)

        def change(talk: StoredConversation) -> Head:
            talk.check_lease(number)
            return talk.append(encoded, known_by, writer, start, expect)

        return await self._do(change)

    async def accepted(self, writer: str) -> int:
        """Return the number of items written by a writer; popping, replacing and clearing do not lower it (B1)."""
        _check(writer, str)
        return await self._do(lambda talk: talk.writers[writer].count if writer in talk.writers else 0)

    async def written(self, writer: str) -> list[Item]:
        """Return a writer's items that are still kept, in order, including those in kept generations."""
        _check(writer, str)
        return _decode_items(await self._do(lambda talk: talk.written(writer)))

    # --- replace, rewind, fork ------------------------------------------------------------------------------

    async def replace(self, items: Sequence[Item], *, upto: Head, lease: Lease | None = None) -> Head:
        """Put `items` in place of the history up to `upto`; later items stay behind them (B3)."""
        encoded = [encode(item) for item in items]
        number = _number(lease)

        def change(talk: StoredConversation) -> Head:
            talk.check_lease(number)
            return talk.replace(encoded, upto)

        return await self._do(change)

    async def generations(self) -> list[Generation]:
        """The kept generations, newest first."""
        return await self._do(StoredConversation.listed_generations)

    async def read_generation(self, generation_id: str) -> list[Item]:
        """The items of a kept generation."""
        rows = await self._do(lambda talk: talk.generation_rows(generation_id))
        return _decode_items([row.data for row in rows])

    async def restore(self, generation_id: str, *, expect: Head | None = None) -> Head:
        """Put a generation back in place of its replacement; the displaced items become a generation (B4)."""
        return await self._do(lambda talk: talk.restore(generation_id, expect))

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        """Remove a writer's items from number `to` on, if they are the whole tail (B5)."""
        return await self._do(lambda talk: talk.rewind(writer, to, expect))

    async def fork(self, new_id: str, *, at: Position | None = None) -> ReferenceSession:
        """Make session `new_id` in the same store continue from that position; the two never meet again (B6)."""
        check_session_id(new_id)
        await self._do(lambda talk: talk.fork_into(self.store.conversation(new_id), at))
        settings = self.session_settings
        return ReferenceSession(
            new_id,
            store=self.store,
            session_settings=None if settings is None else settings.to_dict(),
            timeout_s=self.timeout_s,
        )

    # --- lease ------------------------------------------------------------------------------

    async def lease(self, *, ttl_s: float, wait_s: float) -> ReferenceLease:
        """Acquire the lease, waiting at most `wait_s` for its holder; raise SessionBusyError after that (B7)."""
        if not (math.isfinite(ttl_s) and ttl_s > 0):
            raise CallerError(f"a lease of {ttl_s} s cannot be held", "Give ttl_s as a positive number of seconds.")
        deadline = time.monotonic() + wait_s
        while True:
            number = await self._do(lambda talk: _acquire(talk, ttl_s))
            if number is not None:
                return ReferenceLease(self, number, ttl_s)
            if time.monotonic() >= deadline:
                raise SessionBusyError(
                    f"session {self.session_id!r} is held by another run and was not given up within {wait_s} s",
                    "Wait longer, or choose another concurrency policy for the run.",
                )
            await asyncio.sleep(LEASE_POLL_S)

    # --- page, list, times, runs ------------------------------------------------------------------------------

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        """Return the `limit` items before a cursor (None: the latest) (B8)."""
        check_limit(limit)
        found, cursor = await self._do(lambda talk: talk.page(before, limit))
        return Page(_decode_items(found), cursor)

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        """List the store's sessions, newest change first (B9)."""
        check_limit(limit)

        def read(_: StoredConversation) -> SessionPage:
            alive = self.store.list_conversations()
            if after is not None:
                alive = [pair for pair in alive if pair[1].change < int(after)]
            shown = [info for name, talk in alive[:limit] if (info := talk.info(name)) is not None]
            return SessionPage(shown, str(alive[limit - 1][1].change) if 0 < limit < len(alive) else None)

        return await self._do(read)

    async def count_sessions(self) -> int:
        """Count the sessions of the store."""
        return await self._do(lambda _: len(self.store.list_conversations()))

    async def corrupt_records(self) -> list[CorruptRecord]:
        """Return every corrupt record of this session, oldest first (A14)."""
        return await self._do(StoredConversation.corrupt)

    async def info(self) -> SessionInfo | None:
        """Return this session's times, or None if nothing is stored (A16)."""
        return await self._do(lambda talk: talk.info(self.session_id))

    def run_store(self) -> ReferenceRunStore:
        """Return the run store of the same store. Does no I/O."""
        return self.store.run_store()

    # --- inside ------------------------------------------------------------------------------

    async def _do(self, action: Callable[[StoredConversation], T]) -> T:
        """Run an action on this session's conversation under the lock; the only await is for the lock, before the
        action.
        """
        deadline = time.monotonic() + self.timeout_s
        lock = self.store.lock
        self._check_open()
        while not lock.acquire(blocking=False):
            if time.monotonic() >= deadline:
                raise StoreTimeoutError(
                    f"the store was busy for {self.timeout_s} s; nothing was done",
                    "Try again, or give the session a longer timeout_s.",
                )
            await asyncio.sleep(LOCK_POLL_S)
        try:
            self._check_open()  # it may have been closed while this operation waited
            return action(self.store.conversation(self.session_id))
        finally:
            lock.release()

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError(f"session {self.session_id!r} is closed")


class ReferenceLease:
    """A lease on an in-memory session. Leaving `async with` gives it up."""

    def __init__(self, session: ReferenceSession, number: int, ttl_s: float) -> None:
        self._session, self._number, self._ttl_s = session, number, ttl_s

    @property
    def number(self) -> int:
        """Number raised by every acquisition; a write with a lower number than the store's is refused."""
        return self._number

    async def renew(self) -> None:
        """Extend the lease by `ttl_s`; raise LeaseLostError if another holder took it."""
        if not await self._session._do(lambda talk: _hold(talk, self._number, time.monotonic() + self._ttl_s)):
            raise LeaseLostError(
                f"the lease number {self._number} has been taken by another holder",
                "Another run has the session now: reload it and run again.",
            )

    async def release(self) -> None:
        """Release the lease. Releasing twice, or a lost lease, does nothing."""
        if not self._session._closed:
            await self._session._do(lambda talk: _hold(talk, self._number, 0.0))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


def _acquire(talk: StoredConversation, ttl_s: float) -> int | None:
    """Return the number of a new lease, or None while it is held."""
    now = time.monotonic()  # the store's clock is this process's own, and no step of the wall clock moves it
    if talk.fence.held_until > now:
        return None
    talk.fence.number += 1
    talk.fence.held_until = now + ttl_s
    return talk.fence.number


def _hold(talk: StoredConversation, number: int, until: float) -> bool:
    """Move the end of a lease, if it is still the newest."""
    if talk.fence.number != number:
        return False
    talk.fence.held_until = until
    return True


def _check(value: object, kind: type) -> None:
    if type(value) is not kind or value == "":
        raise CallerError(f"{value!r} names no writer and numbers no item", "Give a non-empty string, or a number.")


def _number(lease: Lease | None) -> int | None:
    return None if lease is None else lease.number


def _decode_items(encoded: Sequence[bytes], unreported: Sequence[str] = ()) -> list[Item]:
    """Decode items outside the lock; log corrupt records, without their content (A14)."""
    for place in unreported:
        _log.warning("corrupt record %s was left where it is and left out of the history; see corrupt_records()", place)
    return [decode(data) for data in encoded]
