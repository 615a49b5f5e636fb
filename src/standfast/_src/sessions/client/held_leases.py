"""Renew this process's leases, and queue its tasks waiting for a lease (B7).

The rules of a lease are in `_src.sessions.rules.leases`. This module has the threads and the clocks. A thread of its
own renews leases, because the holder's event loop may be blocked or closed. Of the tasks that wait in this process only
the first asks the store, on behalf of all, in the order of their arrival.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from itertools import count, islice
from types import TracebackType
from typing import ClassVar, Self

from standfast._src.base.errors import LeaseLostError
from standfast._src.base.logs import session_logger as _log
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.thread_start import start_thread
from standfast._src.sessions.rules import leases
from standfast._src.sessions.rules.leases import TICKET_S, Fence, LeaseState, OpenRun
from standfast._src.sessions.storage import Name

POLL_FIRST_S, POLL_MAX_S = 0.01, 0.25
# Another process cannot wake us, so a waiter looks again, less often the longer it waits.

TICKETS_MAX = 64
# How many waiters of one process are known to other processes; the cell is rewritten with each change of it.


WAITERS_MAX = 1_000
# How many tasks of one process wait for one conversation. Each looks at the clock now and then: 3,000 are told within
# 3.3 s that a wait of 3 s has ended, 10,000 only after a minute and a half, in which the loop does nothing else.


def clock_s() -> float:
    """Return seconds of a clock which counts the sleep of the machine, if there is one, and cannot be set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class StoredLease:
    """A lease on a session. Leaving `async with` releases it."""

    def __init__(
        self,
        name: Name,
        carrier: Executor,
        fence: Fence,
        ttl_s: float,
        timeout_s: float,
        *,
        asked_at: float,
        open_runs: tuple[OpenRun, ...] = (),
        inbox: tuple[str, ...] = (),
        taken_from: str = "",
        key: Hashable = None,
        keeps: object = None,
    ) -> None:
        self._name, self._carrier, self.fence = name, carrier, fence
        self.ttl_s, self._timeout_s, self._key = ttl_s, timeout_s, key
        self.open_runs, self.inbox = open_runs, inbox
        """The runs of the session that had not ended when the lease was taken, read in the same step."""
        self.taken_from = taken_from
        """The holder before, if it never released the lease; else empty."""
        self._renewed_at = self._tried_at = asked_at
        self._is_over = self._was_away = False
        self._when_lost: Callable[[], None] | None = None
        self._when_asked: Callable[[], None] | None = None
        self._asked = ""
        self._loop = weakref.ref(asyncio.get_running_loop())
        self._context = copy_context()  # renewed by a thread, it is still the run's that took it
        self._keeps = keeps  # a session that only its lease knows must not be collected: it could never give it back

    @property
    def session_id(self) -> str:
        """The leased session."""
        return self._name.id

    @property
    def number(self) -> int:
        """Fencing token: each acquisition raises it, and a write with a lower number than the store's is refused."""
        return self.fence.number

    @property
    def is_held(self) -> bool:
        """Return whether the lease is certainly held: not released, and renewed within its time, counting sleep of the
        machine.

        False does not prove that another worker has the lease, but the holder must begin nothing more (C13).
        """
        return not self._is_over and clock_s() - self._renewed_at < self.ttl_s

    @property
    def was_away(self) -> bool:
        """Return whether this process stood still for longer than the lease lives, and the store has not answered
        since.

        A store that does not answer is a different case: the holder is alive, asks, and may decide what can wait.
        """
        return self._was_away or clock_s() - self._tried_at > self.ttl_s

    def tell_when_lost(self, tell: Callable[[], None]) -> None:
        """Call `tell` in the holder's event loop as soon as the store reports another holder."""
        self._when_lost = tell

    def tell_when_asked(self, tell: Callable[[], None]) -> None:
        """Call `tell` in the holder's event loop when a renewal finds that a run under the lease got a signal (F7)."""
        self._when_asked = tell

    async def renew(self) -> None:
        """Extend the lease by `ttl_s`; raises LeaseLostError if another holder took it."""
        asked_at = clock_s()
        held = await self._carrier.carry(partial(leases.renew, self._name, self.fence), self._timeout_s, durable=False)
        self._apply_renewal(asked_at, held, None)
        if held is None:
            raise LeaseLostError(
                f"the lease number {self.number} has been taken by another holder",
                "Another run has the session now: reload it and run again.",
            )

    async def release(self) -> None:
        """Release the lease. A second call, or a call after its loss, does nothing."""
        if self._is_over:
            return
        plan = partial(leases.release, self._name, self.fence)
        # Detached: the lease is released even if the releasing task is cancelled, or its loop is closed.
        waiting = self._carrier.carry(plan, self._timeout_s, durable=False, detached=True)
        self.note_given_back()
        await waiting

    def release_now(self) -> None:
        """Release the lease without waiting for the store, from any thread."""
        if not self._is_over:
            self._is_over = True
            plan = partial(leases.release, self._name, self.fence)
            self._carrier.post(plan, self._timeout_s, lambda *_: WAITERS.wake(self._key), self._context)

    def note_given_back(self) -> None:
        """Note that a larger step released the lease, and wake the next waiter of this process."""
        self._is_over = True
        WAITERS.wake(self._key)

    def renew_soon(self) -> float | None:
        """Ask the store for a renewal without waiting; return the seconds until the next one (None: no more)."""
        if self._is_over:
            return None
        loop = self._loop()
        if loop is None or loop.is_closed():
            # The holder ended with its loop, without a release: renewed, the lease would live as long as the process.
            self.release_now()
            return None
        asked_at, me = clock_s(), weakref.ref(self)
        self._was_away = self.was_away
        self._tried_at = asked_at

        def then(held: LeaseState | None, error: BaseException | None) -> None:
            lease = me()
            if lease is not None:
                lease._apply_renewal(asked_at, held, error)

        self._carrier.post(partial(leases.renew, self._name, self.fence), self._timeout_s, then, self._context)
        return self.ttl_s / 3

    def _apply_renewal(self, asked_at: float, held: LeaseState | None, error: BaseException | None) -> None:
        if held is not None:
            # From when it was asked for, not from when the answer came: the store may have been quicker than the wire.
            self._renewed_at = max(self._renewed_at, asked_at)
            self._tried_at = max(self._tried_at, asked_at)
            self._was_away = False
            if held.asked != self._asked:
                self._asked = held.asked
                self._tell(self._when_asked)
        elif error is None and not self._is_over:
            self._is_over = self._was_away = True
            # Another worker has it. After an error nothing is known, and time decides.
            self._tell(self._when_lost)

    def _tell(self, tell: Callable[[], None] | None) -> None:
        loop = self._loop()
        if loop is not None and tell is not None:
            with suppress(RuntimeError):  # the loop is closed, and the holder ended with it
                loop.call_soon_threadsafe(tell)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


class Renewer:
    """The thread renewing all leases of this process. Ends with the last lease."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, weakref.ref[StoredLease]]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._is_renewing = False

    @property
    def idle_thread(self) -> threading.Thread | None:
        """The thread, if no lease is left to renew: it ends when the last of them would have been due."""
        with self._changed:
            held = (lease for _, _, due in self._due if (lease := due()) is not None and not lease._is_over)
            return None if self._is_renewing or any(held) else self._thread

    def add(self, lease: StoredLease) -> None:
        """Renew a lease from a third of its time on, until its end or its garbage collection."""
        self._add(weakref.ref(lease), lease.ttl_s / 3)

    def _add(self, lease: weakref.ref[StoredLease], delay_s: float) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._numbers), lease))
            if self._thread is None:
                self._thread = start_thread(
                    self._run, "standfast-leases"
                )  # where that is not possible the next lease tries
            self._changed.notify()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            lease = due()
            try:
                again = None if lease is None else lease.renew_soon()
            except Exception:
                # Whatever it was, this thread must outlive it: every other lease of the process depends on it.
                _log.exception("a lease could not be renewed; it is tried again")
                again = lease.ttl_s / 3 if lease is not None else None
            del lease  # it must be able to become garbage while this thread waits
            if again is not None:
                self._add(due, again)

    def _next(self) -> weakref.ref[StoredLease] | None:
        with self._changed:
            self._is_renewing = False
            while self._due:
                at, _, lease = self._due[0]
                if lease() is None:
                    heapq.heappop(self._due)
                elif at <= time.monotonic():
                    self._is_renewing = True
                    return heapq.heappop(self._due)[2]
                else:
                    self._changed.wait(min(at - time.monotonic(), threading.TIMEOUT_MAX))
            self._thread = None
            return None


class Waiter:
    """A task that waits for a lease."""

    _ids: ClassVar[count[int]] = count(1)

    def __init__(self, prefix: str) -> None:
        self.ticket = f"{prefix}.{next(self._ids)}"
        self.is_told = False
        """Whether its ticket may be in the store: the first waiter of this process writes the tickets of all."""
        self.has_left = False
        self.seen_at = time.monotonic()
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()

    @property
    def is_gone(self) -> bool:
        """Return whether the waiter has ended."""
        return self.has_left or self._loop.is_closed()

    @property
    def is_silent(self) -> bool:
        """Return whether the waiter is overdue: its event loop is blocked. Later waiters are served meanwhile."""
        return time.monotonic() - self.seen_at > TICKET_S

    async def sleep(self, timeout_s: float) -> None:
        """Wait until woken, or for `timeout_s`."""
        # Not `wait_for`: on Python 3.11 it loses a cancellation that comes together with the event.
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        self._event.clear()

    def wake(self) -> None:
        """Wake the waiter, from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return  # its loop has ended, and it with it


class Waiters:
    """Tasks of this process that wait for leases, queued for each conversation in the order of arrival.

    No step looks at all of them: thousands may wait for one conversation, and each must be notified in time.
    """

    def __init__(self) -> None:
        # One thread may take it twice: a waiter whose loop was closed leaves when it is collected as garbage, and that
        # may happen in here. So what is walked is a copy.
        self._lock = threading.RLock()
        self._waiting: dict[Hashable, dict[Waiter, None]] = {}

    def join(self, key: Hashable, waiter: Waiter) -> None:
        """Queue a waiter, and wake the first in turn, to write the new ticket to the store."""
        with self._lock:
            self._waiting.setdefault(key, {})[waiter] = None
            turn = self._turn(key)
        if turn is not None and turn is not waiter:
            turn.wake()

    def is_full(self, key: Hashable) -> bool:
        """Return whether as many wait for a conversation as may."""
        with self._lock:
            queue = self._waiting.get(key, {})
            if len(queue) < WAITERS_MAX:
                return False
            return sum(not one.is_gone for one in list(queue)) >= WAITERS_MAX

    def leave(self, key: Hashable, waiter: Waiter) -> None:
        """Remove a waiter, whatever ended its wait."""
        with self._lock:
            was_next = self._turn(key) is waiter
            waiter.has_left = True
            self._remove(key, waiter)
        if was_next:
            self.wake(key)

    def tickets_behind(self, key: Hashable, waiter: Waiter) -> tuple[str, ...]:
        """Return the tickets of a waiter and of those behind it if it is the waiter's turn; otherwise an empty
        tuple.
        """
        with self._lock:
            waiter.seen_at = time.monotonic()
            if self._turn(key) is not waiter:
                return ()
            queue = list(self._waiting[key])
            behind = islice(queue, queue.index(waiter), None)
            told = list(islice((one for one in behind if not one.is_gone and not one.is_silent), TICKETS_MAX))
            for one in told:
                one.is_told = True
            return tuple(one.ticket for one in told)

    def wake(self, key: Hashable) -> None:
        """Wake the waiter whose turn it is."""
        with self._lock:
            turn = self._turn(key)
        if turn is not None:
            turn.wake()

    def _turn(self, key: Hashable) -> Waiter | None:
        """Return the first waiter with a running event loop. A silent waiter keeps its place until its return."""
        first: Waiter | None = None
        for one in list(self._waiting.get(key, ())):
            if one.is_gone:
                self._remove(key, one)
            elif not one.is_silent:
                return one
            else:
                first = first or one
        return first

    def _remove(self, key: Hashable, waiter: Waiter) -> None:
        queue = self._waiting.get(key)
        if queue is not None:
            queue.pop(waiter, None)
            if not queue:
                self._waiting.pop(key, None)


RENEWER = Renewer()
WAITERS = Waiters()


def _begin_anew() -> None:
    # The parent goes on renewing and waiting; the child has neither its threads nor its tasks, and no lock is held.
    RENEWER.__init__()  # type: ignore[misc]
    WAITERS.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
