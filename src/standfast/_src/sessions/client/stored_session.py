"""A session with every ability, over any store of the storage port.

It checks arguments and encodes items in the caller's task, before anything is submitted; the rules decide; an executor
does the rest. A backend's session says which executor that is, and how another session of the same store is made.
"""

from __future__ import annotations

import os
import random
import socket
import sys
import time
import weakref
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Sequence
from functools import partial
from typing import Any, ClassVar, Self, TypeVar
from uuid import uuid4

from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import CallerError, SessionBusyError, SessionClosedError, StandfastError, StoreError
from standfast._src.base.json_values import Item
from standfast._src.base.logs import session_logger as _log
from standfast._src.base.operational_events import emit
from standfast._src.sessions.client.arguments import (
    batch_of,
    check_head,
    check_ordinal,
    check_position,
    checked_timeout,
    checked_writer,
    encoded_of,
)
from standfast._src.sessions.client.completed import Completed
from standfast._src.sessions.client.executor import Executor, Then
from standfast._src.sessions.client.held_leases import (
    POLL_FIRST_S,
    POLL_MAX_S,
    RENEWER,
    WAITERS,
    WAITERS_MAX,
    StoredLease,
    Waiter,
    clock_s,
)
from standfast._src.sessions.client.inspection_methods import InspectionMethods
from standfast._src.sessions.client.message_methods import MessageMethods
from standfast._src.sessions.client.read_only_executor import ReadOnlyExecutor
from standfast._src.sessions.client.stored_runs import StoredRunStore, fence_of
from standfast._src.sessions.item_sizes import item_bytes_max
from standfast._src.sessions.protocol import (
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
    check_session_id,
    coerce_session_settings,
    effective_limit,
    page_size,
)
from standfast._src.sessions.rules import (
    append as writer_rules,
    forks,
    generations as generation_rules,
    history,
    leases,
    saved_runs,
)
from standfast._src.sessions.rules.history import LANE, IdempotencySlot
from standfast._src.sessions.rules.leases import TICKET_S, Asker, Busy, Fence, Taken, UnchangedLease
from standfast._src.sessions.rules.saved_runs import HeardMessage, NestedItems, Recorded, Recording, RunSave
from standfast._src.sessions.storage import Cell, Name, Plan, Row

T = TypeVar("T")


_reported: OrderedDict[Hashable, None] = OrderedDict()  # in the order in which they were logged
_REPORTED_MAX = 10_000
PING_S_MAX = 5.0

_tokens = random.Random()
# Not `os.urandom`: it lets other threads run meanwhile, and an executor's then begins with the first of several writes
# that are submitted at once, and leaves the rest for a second round.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tokens.seed)

UNDO = ".undo"
# Ends the slots of compensations. One is retried while later writes go out, and must still find what it wrote.


class StoredSession(InspectionMethods, MessageMethods, SessionABC):
    """One conversation in a store. Any number of objects, threads, loops and processes may share it."""

    declared_abilities: ClassVar[frozenset[str]] = ALL_ABILITIES

    read_only: bool = False
    """Whether whatever would change something is refused with StoreReadOnlyError."""

    def __init__(
        self,
        session_id: str,
        *,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        timeout_s: float = 30.0,
    ) -> None:
        self.session_id = self._check_id(session_id)
        self.session_settings: SessionSettings | None = coerce_session_settings(session_settings)
        self.timeout_s = checked_timeout(timeout_s)
        self._name = Name("session", self.session_id)
        self._closed = False
        self._leases: weakref.WeakSet[StoredLease] = weakref.WeakSet()
        self._asking: set[_Asking] = set()

    def __repr__(self) -> str:
        place = getattr(self, "db_path", None)
        where = "" if place is None else f" in {str(place)!r}"
        return f"<{type(self).__name__} {self.session_id!r}{where}{', closed' if self._closed else ''}>"

    # --- what a backend says -----------------------------------------------------------------------------------------

    @abstractmethod
    def _carrier(self) -> Executor:
        """Return the executor of this session; called for every operation, and only while the session is open."""

    @abstractmethod
    def _store_key(self) -> Hashable:
        """Return the identity of the store in this process, however its address was spelled. Does no I/O."""

    @abstractmethod
    def _another(self, new_id: str) -> Self:
        """Return a session object of that id in the same store."""

    def _end_lingering(self) -> None:
        """End a lingering engine of the store, and wait for the end (A19)."""

    def _check_id(self, session_id: str) -> str:
        """Return the id, if the store can hold it (A18)."""
        return check_session_id(session_id)

    def _process(self) -> str:
        """Return the name of the current process for liveness checks by other processes; "" if the backend has none."""
        return ""

    def _is_gone(self, process: str) -> bool:
        """Return whether the process of that name has certainly ended."""
        return False

    # --- the five methods --------------------------------------------------------------------------------------------

    async def get_items(self, limit: int | None = None) -> list[Item]:
        """Return the whole history, or the latest `limit` items; oldest first."""
        wanted = effective_limit(limit, self.session_settings)
        return await self._read(partial(history.get_items, self._name, wanted, self._report))

    async def add_items(self, items: list[Item]) -> None:
        """Append one batch, in order, whole or not at all."""
        encoded = encoded_of(items, item_bytes_max(self.session_settings))
        if not encoded:
            return self._check_open()
        carrier = self._get_executor()
        await carrier.carry(history.Add(self._name, encoded, _idempotency_slot_of(carrier)), self.timeout_s)

    async def pop_item(self) -> Item | None:
        """Remove and return the newest valid item; None if there is none. Corrupt records stay."""
        carrier = self._get_executor()
        lane = _idempotency_slot_of(carrier)
        undo_lane = None if lane is None else _idempotency_slot_of(carrier, UNDO)
        popped = await carrier.carry(
            partial(history.pop, self._name, self._report, lane),
            self.timeout_s,
            undo=partial(writer_rules.put_back, self._name, undo_lane),
        )
        return None if popped is None else popped.item

    async def clear_session(self) -> None:
        """Remove everything stored for this id, except each writer's count and the lease's number."""
        await self._clear(writer_rules.count_alone)

    async def _clear(self, count_alone: Callable[[Cell], bytes] | None) -> None:
        await self._write(partial(history.clear, self._name, leases.is_under_way, count_alone, self._lane()))

    def close(self) -> Coroutine[Any, Any, None]:
        """Close this session object, now; awaiting the result is allowed and not needed."""
        if not self._closed:
            for lease in list(self._leases):
                lease.release_now()
            for asking in list(self._asking):
                asking.withdraw()
            self._closed = True
        return Completed()

    # --- append ------------------------------------------------------------------------------------------------------

    async def head(self) -> Head:
        """Return the head: where the history ends now."""
        return await self._read(partial(history.head, self._name))

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
        """Store `items` as this writer's items from number `start` on, once, however often the call is repeated
        (B1).
        """
        fence = None if lease is None else self._fence(lease)
        batch = batch_of(items, writer, start, expect, digests, item_bytes_max(self.session_settings))
        if fence is None:
            return await self._get_executor().carry(writer_rules.Append(self._name, batch), self.timeout_s)
        return (await self._write(partial(saved_runs.record, Recording(self._name, [batch], None, fence)))).head

    def _fence(self, lease: Lease | None) -> Fence | None:
        """Return the fence of a write under a lease; a lease on another session is refused, as it would protect nothing
        here.
        """
        if isinstance(lease, StoredLease) and lease.session_id != self.session_id:
            raise CallerError(
                f"the lease is on session {lease.session_id!r}, and this is session {self.session_id!r}",
                "Take a lease on the session that is written to.",
            )
        return fence_of(lease)

    async def accepted(self, writer: str) -> int:
        """Return how many items this writer has written; popping, replacing and clearing do not lower it (B1)."""
        return await self._read(partial(writer_rules.accepted, self._name, checked_writer(writer)))

    async def written(self, writer: str) -> list[Item]:
        """Return this writer's stored items in order, including those moved into a kept generation (B1)."""
        return await self._read(partial(writer_rules.written, self._name, checked_writer(writer), self._report))

    def record(
        self,
        *,
        items: Sequence[Item] = (),
        writer: str = "",
        start: int = 0,
        digests: Sequence[bytes] | None = None,
        run: RunSave | None = None,
        lease: Lease | None = None,
        release: bool = False,
        detached: bool = False,
        costs: tuple[int, Sequence[Item]] | None = None,
        nested: Sequence[NestedItems] = (),
        heard: Sequence[HeardMessage] = (),
    ) -> Coroutine[Any, Any, Recorded]:
        """Append items, save a run, and release the lease (`release`), in one step or not at all.

        `costs` is what replies of `writer` cost, and how many of them were kept before (B15). `nested` are items of
        other writers, the runs inside tool calls of this one, which are stored before its own. `heard`: messages that
        end here. Refused as `append` and `save_run` refuse; a repeat after a lost acknowledgement succeeds. `detached`:
        this call submits the step, which is executed even if the awaiting task is cancelled or its loop closed; the
        lease is then released even if the rest was refused.
        """
        gives_back = lease if release and isinstance(lease, StoredLease) else None
        try:
            fence = self._fence(lease)
            batches = [batch_of(one.items, one.writer, one.start, None, None) for one in nested]
            batches += [batch_of(items, writer, start, None, digests)] if items else []
            kept = {} if costs is None else {history.usage_cell(costs[0], checked_writer(writer)): costs[1]}
            plan = partial(saved_runs.record, Recording(self._name, batches, run, fence, release, kept, heard))
            then = None if gives_back is None or not detached else partial(_settle_release, gives_back)
            waiting = self._write(plan, detached=detached, then=then)
        except StandfastError as error:  # like every other method, it raises when it is awaited
            return Completed(error=error)
        return self._release_after(waiting, gives_back) if gives_back is not None and not detached else waiting

    async def _release_after(self, waiting: Coroutine[Any, Any, Recorded], lease: StoredLease) -> Recorded:
        done = await waiting
        if done.signals is None:  # else the run goes on with them, under its lease
            lease.note_given_back()
        return done

    # --- replace, rewind, fork ---------------------------------------------------------------------------------------

    async def replace(self, items: Sequence[Item], *, upto: Head, lease: Lease | None = None) -> Head:
        """Put `items` in place of the history up to `upto`; items appended since stay behind them (B3)."""
        encoded = encoded_of(items, item_bytes_max(self.session_settings))
        check_head(upto)
        return await self._write(
            partial(generation_rules.replace, self._name, encoded, upto, self._fence(lease), self._lane())
        )

    async def generations(self) -> list[Generation]:
        """Return the kept generations, newest first."""
        return await self._read(partial(generation_rules.generations, self._name))

    async def read_generation(self, generation_id: str) -> list[Item]:
        """Return the items of a kept generation."""
        return await self._read(partial(generation_rules.read_generation, self._name, generation_id, self._report))

    async def restore(self, generation_id: str, *, expect: Head | None = None, by: str | None = None) -> Head:
        """Put a generation back in place of its replacement, which becomes a generation itself (B4).

        `by` is for people: who did it. It is kept with what is displaced.
        """
        check_head(expect, or_none=True)
        plan = partial(generation_rules.restore, self._name, generation_id, expect, self._lane(), by)
        return await self._write(plan)

    async def rewind(self, *, writer: str, to: int, expect: Head | None = None) -> Head:
        """Remove this writer's items from number `to` on, if they are the whole tail (B5)."""
        check_ordinal(to)
        check_head(expect, or_none=True)
        plan = partial(writer_rules.rewind, self._name, checked_writer(writer), to, expect, self._lane())
        return await self._write(plan)

    async def fork(
        self,
        new_id: str,
        *,
        at: Position | None = None,
        recode: Callable[[Item], Item] | None = None,
        by: str | None = None,
    ) -> Self:
        """Make session `new_id` in the same store continue from that position; the two never meet again (B6).

        `recode` encodes each item again on the way, as a wrapper that seals items needs it; counts are kept. `by` is
        for people: who made the fork, as `origin()` returns it.
        """
        check_position(at)
        made = self._another(new_id)
        await self._write(partial(forks.fork, self._name, Name("session", new_id), at, recode, self._lane(), by))
        return made

    # --- lease -------------------------------------------------------------------------------------------------------

    async def lease(
        self,
        *,
        ttl_s: float,
        wait_s: float,
        holder: str = "",
        renewed: bool = True,
    ) -> StoredLease:
        """Acquire the lease, waiting at most `wait_s` for the holder to release it; raises SessionBusyError after that
        (B7).

        It is renewed off the caller's loop until it is released or forgotten (`renewed=False`: only by `renew`).
        `holder` is for people: who this is.
        """
        check_seconds("ttl_s of a lease", ttl_s, is_ttl=True)
        check_seconds("wait_s of a lease", wait_s)
        self._check_open()
        asking = _Asking(self, ttl_s, _describe_holder(holder))
        self._asking.add(asking)
        try:
            lease = await asking.until(time.monotonic() + wait_s, wait_s)
        finally:
            self._asking.discard(asking)
            asking.end()
        try:
            if not lease.is_held:  # the store was so busy that its time has passed since it was asked for
                await lease.renew()
            if renewed:
                RENEWER.add(lease)
        except BaseException:
            lease.release_now()
            raise
        return lease

    async def revoke_lease(self) -> int:
        """Take the lease from its holder; return the number below which writes are now refused (B7)."""
        return await self._write(partial(leases.revoke, self._name, uuid4().hex, self._lane()))

    def conversation_key(self) -> Hashable:
        """Return a key equal for all session objects of one conversation in this process."""
        return (self._store_key(), self.session_id)

    # --- page, list, times, corrupt records, runs --------------------------------------------------------------------

    async def page(self, *, before: str | None = None, limit: int) -> Page:
        """Return the `limit` items before a cursor (None: the latest), in time proportional to the page (B8)."""
        size = page_size(limit)
        return await self._read(partial(history.page, self._name, before, size, self._report))

    async def list_sessions(self, *, after: str | None = None, limit: int) -> SessionPage:
        """Return the sessions of this session's store, newest change first (B9)."""
        return await self._read(partial(history.list_sessions, after, page_size(limit)))

    async def count_sessions(self) -> int:
        """Return the number of sessions in the store."""
        return await self._read(history.count_sessions)

    async def info(self) -> SessionInfo | None:
        """Return the session's times; None if nothing is stored for the id (A16)."""
        return await self._read(partial(history.info, self._name))

    async def corrupt_records(self) -> list[CorruptRecord]:
        """Return every corrupt record of this session, oldest first (A14)."""
        return await self._read(partial(history.corrupt_records, self._name))

    async def repair(self) -> list[CorruptRecord]:
        """Remove the corrupt records of the session and return them. Apart from a clear, no other method removes
        one.
        """
        removed = await self._write(partial(history.repair, self._name, self._lane()))
        if removed:
            emit("session_repaired", session=self.session_id, count=len(removed))
        return removed

    def run_store(self) -> StoredRunStore:
        """Return the run store of the same database. Does no I/O."""
        return StoredRunStore(
            self._get_executor, self.timeout_s, key=self._store_key(), process=self._process(), is_gone=self._is_gone,
            no_budgets=self._no_budgets(),
        )  # fmt: skip

    def _no_budgets(self) -> str:
        """Return the reason for the absence of budgets; empty if a step may change any names together (F10)."""
        return ""

    def changed(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        """Return the result of a plan that writes; for tools whose change has no method."""
        return self._write(plan)

    # --- inside ------------------------------------------------------------------------------------------------------

    # Not coroutines of their own: in a group of many turns, passing through one more frame each is measurable.

    def _write(
        self,
        plan: Callable[[], Plan[T]],
        *,
        undo: Callable[[T], Plan[None]] | None = None,
        durable: bool = True,
        detached: bool = False,
        then: Then | None = None,
    ) -> Coroutine[Any, Any, T]:
        return self._get_executor().carry(
            plan, self.timeout_s, undo=undo, durable=durable, detached=detached, then=then
        )

    def _read(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        return self._get_executor().carry(plan, self.timeout_s, kind="read")

    async def _answers(self) -> bool:
        """Return whether the store answers now, within `PING_S_MAX` at most, whatever the timeout of other
        operations.
        """
        try:
            await self._get_executor().carry(
                lambda: history.info(self._name), min(self.timeout_s, PING_S_MAX), kind="read"
            )
        except StoreError:
            return False
        return True

    def _get_executor(self) -> Executor:
        if self._closed:
            self._check_open()
        return self._carrier() if not self.read_only else ReadOnlyExecutor(self._carrier())

    def _check_open(self) -> None:
        if self._closed:
            raise SessionClosedError(f"session {self.session_id!r} is closed")

    def _copied_settings(self) -> dict[str, Any] | None:
        return None if self.session_settings is None else self.session_settings.to_dict()

    def _lane(self, own: str = "") -> IdempotencySlot | None:
        """Return the idempotency slot of the next write, on stores that can lose an answer."""
        return _idempotency_slot_of(self._get_executor(), own)

    def _report(self, row: Row, fault: str) -> None:
        """Log a corrupt record, once, without its content (A14)."""
        key = (self.conversation_key(), row.ref)
        if key not in _reported:
            _reported[key] = None
            if len(_reported) > _REPORTED_MAX:  # the oldest would be logged a second time
                _reported.popitem(last=False)
            _log.warning(
                "record %d of session %r is %s; it stays where it is: see corrupt_records()",
                row.ref,
                self.session_id,
                fault,
            )


class _Asking:
    """One task's attempt to acquire a lease: asks while first in this process, and waits in between."""

    def __init__(self, session: StoredSession, ttl_s: float, holder: str) -> None:
        self._session, self._ttl_s, self._nonce, self._holder = session, ttl_s, uuid4().hex, holder
        self._seen: tuple[int, int, float] | None = None
        self._busy: Busy | None = None
        self._key = session.conversation_key()
        self._waiter = Waiter(self._nonce)
        self._has_asked = False
        self._asked: Executor | None = None
        """The executor it has asked, while the lease may be acquired and no object exists that would release it."""
        if WAITERS.is_full(self._key):
            raise SessionBusyError(
                f"{WAITERS_MAX} tasks of this process wait for session {session.session_id!r} already",
                "Try again later, and bound how many runs of one conversation are started at once.",
                holder="tasks that wait for it",
            )
        WAITERS.join(self._key, self._waiter)

    async def until(self, deadline: float, wait_s: float) -> StoredLease:
        pause = POLL_FIRST_S
        while True:
            tickets = WAITERS.tickets_behind(self._key, self._waiter)
            left = deadline - time.monotonic()
            if tickets:
                # The last time it asks for itself only; and one that never waited leaves no ticket at all.
                lease = await self._ask(tickets if left > 0 else tickets[: self._has_asked])
                if lease is not None:
                    return lease
            left = deadline - time.monotonic()
            if left <= 0:
                raise self._refusal(wait_s)
            # Not longer than a ticket lives: the waiter before this one may have fallen silent.
            await self._waiter.sleep(min(pause, left) if tickets else min(TICKET_S, left))
            pause = min(pause * 1.5, POLL_MAX_S)

    def end(self) -> None:
        """Stop waiting, and withdraw the ticket if there is one."""
        WAITERS.leave(self._key, self._waiter)
        if isinstance(sys.exc_info()[1], GeneratorExit):
            return  # collected as garbage it does nothing: that may happen anywhere, and the ticket lapses by itself
        if self._asked is not None:  # its answer was lost, or the session was closed before it came
            self._post(self._asked, leases.withdraw, self._waiter.ticket, self._nonce)
        elif self._waiter.is_told and not self._session._closed:
            self._post(self._session._carrier(), leases.withdraw, self._waiter.ticket)

    def withdraw(self) -> None:
        """Release the lease if it was acquired without the task's knowledge: the session is being closed."""
        self._post(self._session._carrier(), leases.withdraw, self._waiter.ticket, self._nonce)

    def _post(self, carrier: Executor, rule: Callable[..., Plan[None]], *values: str) -> None:
        carrier.post(partial(rule, self._session._name, *values), self._session.timeout_s)

    async def _ask(self, tickets: tuple[str, ...]) -> StoredLease | None:
        session, asked_at = self._session, clock_s()
        asker = Asker(self._ttl_s, self._nonce, self._holder, session._process(), tickets)
        self._has_asked = self._has_asked or bool(tickets)
        self._asked = session._get_executor()
        got = await session._write(partial(self._acquire, asker, self._watch()), undo=self._give_back, durable=False)
        if isinstance(got, Taken):
            lease = self._lease(got, asked_at)
            self._waiter.is_told, self._asked = False, None
            return lease
        self._busy, self._asked = got, None
        seen = (got.held.number, got.held.renewals)
        if self._seen is None or self._seen[:2] != seen:
            self._seen = (*seen, clock_s())
        return None

    def _acquire(self, asker: Asker, watch: UnchangedLease | None) -> Plan[Taken | Busy]:
        session = self._session
        session._check_open()  # closed since it was submitted: a lease acquired now would never be released
        return (yield from leases.acquire(session._name, asker, watch, session._is_gone))

    def _lease(self, taken: Taken, asked_at: float) -> StoredLease:
        session = self._session
        lease = StoredLease(
            session._name,
            session._get_executor(),
            Fence(taken.number, self._nonce),
            self._ttl_s,
            session.timeout_s,
            asked_at=asked_at,
            open_runs=taken.open_runs,
            inbox=taken.inbox,
            taken_from=taken.taken_from,
            key=self._key,
            keeps=session,
        )
        session._leases.add(lease)
        return lease

    def _watch(self) -> UnchangedLease | None:
        return None if self._seen is None else UnchangedLease(*self._seen[:2], clock_s() - self._seen[2])

    def _give_back(self, got: Taken | Busy) -> Plan[None]:
        """Compensate: the asking task has ended, and the lease would never be released."""
        if isinstance(got, Taken):
            yield from leases.release(self._session._name, Fence(got.number, self._nonce))

    def _refusal(self, wait_s: float) -> SessionBusyError:
        by, since = "tasks that wait for it", None
        if self._busy is not None and not self._busy.is_ahead:
            held = self._busy.held
            by, since = held.holder or "another run", history.as_time(held.taken or held.since)
        shown = "" if since is None else f" since {since.isoformat(timespec='seconds')}"
        return SessionBusyError(
            f"session {self._session.session_id!r} is held by {by}{shown} and was not given up within {wait_s} s",
            "Wait longer, or choose another concurrency policy for the run.",
            holder=by,
            since=since,
        )


def _idempotency_slot_of(carrier: Executor, own: str = "") -> IdempotencySlot | None:
    """Return the idempotency slot of a write, where the executor can lose an answer."""
    lane = carrier.lane
    if lane is None:
        return None
    return IdempotencySlot(LANE + lane + own, (time.time_ns() << 64 | _tokens.getrandbits(64)).to_bytes(16))


def _settle_release(lease: StoredLease, result: object, error: BaseException | None) -> None:
    """Finish a step that was to release the lease: release the lease alone if the step did not."""
    if error is None and getattr(result, "signals", None) is None:
        lease.note_given_back()
    else:
        lease.release_now()


def _describe_holder(holder: str) -> str:
    """Describe the holder of a lease for people: host, process and purpose."""
    text = f"{socket.gethostname()} process {os.getpid()}" + (f" ({holder})" if holder else "")
    return text.encode(errors="replace").decode()
