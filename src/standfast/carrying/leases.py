"""A lease while it is held, and those who wait for one (B7).

What a lease is, is decided in `sessions.lease_rules`. Here is what needs threads and clocks: a lease is renewed by a
thread of its own, because the loop of whoever holds it may be blocked or closed; and of those who wait in this process
only the first asks the store, on behalf of all, in the order they came.
"""

from __future__ import annotations

import asyncio
import heapq
import os
import threading
import time
import weakref
from collections.abc import Hashable
from functools import partial
from itertools import count
from types import TracebackType
from typing import Any, ClassVar, Self

from standfast.carrying.carrier import Carrier
from standfast.ground.errors import LeaseLostError, StandfastError
from standfast.sessions import lease_rules
from standfast.sessions.lease_rules import Fence, OpenRun
from standfast.sessions.port import Name

POLL_FIRST_S, POLL_MAX_S = 0.01, 0.25
# Another process cannot wake us, so a waiter looks again, less often the longer it waits.

TICKETS_MAX = 64
# How many who wait in one process are known to other processes; the cell is rewritten with each change of it.


def clock_s() -> float:
    """Seconds by a clock that counts the time a machine sleeps, where there is one, and that nobody can set."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class StoredLease:
    """A lease on a session. Leaving `async with` gives it up."""

    def __init__(
        self,
        name: Name,
        carrier: Carrier,
        fence: Fence,
        ttl_s: float,
        timeout_s: float,
        *,
        asked_at: float,
        open_runs: tuple[OpenRun, ...] = (),
        key: Hashable = None,
    ) -> None:
        self._name, self._carrier, self.fence = name, carrier, fence
        self.ttl_s, self._timeout_s, self._key = ttl_s, timeout_s, key
        self.open_runs = open_runs
        """The runs of the session that had not ended when the lease was taken, read in the same step."""
        self._renewed_at = asked_at
        self._is_over = False
        self._loop = weakref.ref(asyncio.get_running_loop())

    @property
    def number(self) -> int:
        """Raised by every acquisition; a write that carries a lower one than the store's is refused."""
        return self.fence.number

    @property
    def is_held(self) -> bool:
        """Whether it is certainly still held: not released, and renewed within its time, sleep of the machine counted.

        False is not proof that somebody else has it, but whoever holds it must begin nothing more (C13).
        """
        return not self._is_over and clock_s() - self._renewed_at < self.ttl_s

    async def renew(self) -> None:
        """Hold it for another `ttl_s`; raises LeaseLostError if another holder took it."""
        asked_at = clock_s()
        held = await self._carrier.carry(
            partial(lease_rules.renew, self._name, self.fence), self._timeout_s, durable=False
        )
        self._told(asked_at, held, None)
        if not held:
            raise LeaseLostError(
                f"the lease number {self.number} has been taken by another holder",
                "Another run has the session now: reload it and run again.",
            )

    async def release(self) -> None:
        """Give it up. Doing so twice, or after it was lost, does nothing."""
        if self._is_over:
            return
        plan = partial(lease_rules.release, self._name, self.fence)
        # Detached: a lease is given back though whoever gives it back is cancelled, or its loop is closed.
        waiting = self._carrier.carry(plan, self._timeout_s, durable=False, detached=True)
        self.is_given_back()
        await waiting

    def release_now(self) -> None:
        """Give it up without waiting for the store, from any thread."""
        if not self._is_over:
            self._is_over = True
            plan = partial(lease_rules.release, self._name, self.fence)
            self._carrier.post(plan, self._timeout_s, lambda *_: WAITERS.wake(self._key))

    def is_given_back(self) -> None:
        """Note that it was given up in a step that did more, and let the next in this process look."""
        self._is_over = True
        WAITERS.wake(self._key)

    def renew_soon(self) -> float | None:
        """Ask the store to renew it, without waiting; in how many seconds to do so again (None: no more)."""
        if self._is_over:
            return None
        loop = self._loop()
        if loop is None or loop.is_closed():
            # Whoever held it ended with its loop, without a word: renewed, it would be held for this process's life.
            self.release_now()
            return None
        asked_at, me = clock_s(), weakref.ref(self)

        def then(held: Any, error: BaseException | None) -> None:
            lease = me()
            if lease is not None:
                lease._told(asked_at, held, error)

        self._carrier.post(partial(lease_rules.renew, self._name, self.fence), self._timeout_s, then)
        return self.ttl_s / 3

    def _told(self, asked_at: float, held: bool | None, error: BaseException | None) -> None:
        if held:
            # From when it was asked for, not from when the answer came: the store may have been quicker than the wire.
            self._renewed_at = max(self._renewed_at, asked_at)
        elif error is None:
            self._is_over = True  # somebody else has it. After an error nothing is known, and time decides.

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()


class Renewer:
    """The thread that renews every lease of this process; it ends when there is none."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, weakref.ref[StoredLease]]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None

    def add(self, lease: StoredLease) -> None:
        """Renew it from a third of its time on, until it is over or garbage."""
        self._add(weakref.ref(lease), lease.ttl_s / 3)

    def _add(self, lease: weakref.ref[StoredLease], delay_s: float) -> None:
        with self._changed:
            heapq.heappush(self._due, (time.monotonic() + delay_s, next(self._numbers), lease))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="standfast-leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            lease = due()
            try:
                again = None if lease is None else lease.renew_soon()
            except StandfastError:
                again = None  # closed in between: it lapses by itself
            del lease  # it must be able to become garbage while this thread waits
            if again is not None:
                self._add(due, again)

    def _next(self) -> weakref.ref[StoredLease] | None:
        with self._changed:
            while self._due:
                at, _, lease = self._due[0]
                if lease() is None:
                    heapq.heappop(self._due)
                elif at <= time.monotonic():
                    return heapq.heappop(self._due)[2]
                else:
                    self._changed.wait(at - time.monotonic())
            self._thread = None
            return None


class Waiter:
    """A task that waits for a lease."""

    _ids: ClassVar[count[int]] = count(1)

    def __init__(self, prefix: str) -> None:
        self.ticket = f"{prefix}.{next(self._ids)}"
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()

    async def sleep(self, timeout_s: float) -> None:
        """Wait until woken, or for that long."""
        try:
            await asyncio.wait_for(self._event.wait(), timeout_s)
        except TimeoutError:
            pass
        self._event.clear()

    def wake(self) -> None:
        """Let it look again; from any thread."""
        try:
            self._loop.call_soon_threadsafe(self._event.set)
        except RuntimeError:
            return  # its loop has ended, and it with it


class Waiters:
    """Those in this process who wait for leases, for each conversation in the order they came."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, list[Waiter]] = {}

    def join(self, key: Hashable, waiter: Waiter) -> None:
        """Wait behind those who are there; the first learns of it, to tell the store."""
        with self._lock:
            queue = self._waiting.setdefault(key, [])
            queue[:] = [one for one in queue if not one._loop.is_closed()]
            queue.append(waiter)
            first = queue[0]
        if first is not waiter:
            first.wake()

    def leave(self, key: Hashable, waiter: Waiter) -> None:
        """Wait no longer, however that came."""
        with self._lock:
            queue = self._waiting.get(key, [])
            if waiter in queue:
                queue.remove(waiter)
            first = queue[0] if queue else None
            if not queue:
                self._waiting.pop(key, None)
        if first is not None:
            first.wake()

    def behind(self, key: Hashable, waiter: Waiter) -> tuple[str, ...]:
        """The tickets of a waiter and of those behind it, if it is the first; else none."""
        with self._lock:
            queue = self._waiting.get(key, [])
            while queue and queue[0] is not waiter and queue[0]._loop.is_closed():
                queue.pop(0)
            if not queue or queue[0] is not waiter:
                return ()
            return tuple(one.ticket for one in queue[:TICKETS_MAX])

    def wake(self, key: Hashable) -> None:
        """Let the first look again."""
        with self._lock:
            queue = self._waiting.get(key, [])
            first = queue[0] if queue else None
        if first is not None:
            first.wake()


RENEWER = Renewer()
WAITERS = Waiters()


def _begin_anew() -> None:
    # The parent goes on renewing and waiting; the child has neither its threads nor its tasks, and no lock is held.
    RENEWER.__init__()  # type: ignore[misc]
    WAITERS.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_begin_anew)
