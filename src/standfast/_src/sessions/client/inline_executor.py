"""Execute plans at once, in the calling task: for stores in this process's own memory.

Each plan runs whole under the store's lock, so it meets no refusal; the only place where a caller can wait, be
cancelled or run out of time is before it has the lock.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

from standfast._src.base.errors import StoreTimeoutError
from standfast._src.sessions.client.completed import Completed
from standfast._src.sessions.client.executor import Kind, MakePlan, Then, UndoPlan
from standfast._src.sessions.storage import Plan

T = TypeVar("T")

LOCK_POLL_S = 0.001
# The lock is held for microseconds, by any thread or loop; asking again after a millisecond is cheaper than a queue
# of waiters that belong to loops which may end, and leaves nothing to undo when a waiter is cancelled.


class InlineExecutor:
    """Executes plans on a store that answers at once."""

    lane = None

    def __init__(self, carried_out: Callable[[Plan[Any]], Any], lock: threading.Lock) -> None:
        """Execute plans by `carried_out`, under `lock`."""
        self._carried_out, self._lock = carried_out, lock

    def carry(
        self,
        plan: MakePlan[T],
        timeout_s: float,
        *,
        kind: Kind = "write",
        undo: UndoPlan[T] | None = None,
        durable: bool = True,
        detached: bool = False,
        then: Then | None = None,
    ) -> Coroutine[Any, Any, T]:
        """Execute a plan when awaited; a detached plan now."""
        return self._now(plan, timeout_s, then) if detached else self._when_free(plan, timeout_s)

    async def _when_free(self, plan: MakePlan[T], timeout_s: float) -> T:
        deadline = time.monotonic() + timeout_s
        while not self._lock.acquire(blocking=False):
            if time.monotonic() >= deadline:
                raise _busy(timeout_s)
            await asyncio.sleep(LOCK_POLL_S)
        try:
            result: T = self._carried_out(plan())
            return result
        finally:
            self._lock.release()

    def _now(self, plan: MakePlan[T], timeout_s: float, then: Then | None) -> Coroutine[Any, Any, T]:
        result, error = None, None
        try:
            result = self._run_locked(plan, timeout_s)
        except BaseException as fault:
            error = fault
        if then is not None:
            then(result, error)
        return Completed(result, error=error)  # type: ignore[arg-type]  # without an error there is a result

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Execute a plan now."""
        try:
            result, error = self._run_locked(plan, timeout_s), None
        except Exception as fault:
            result, error = None, fault
        if then is not None:
            then(result, error)

    def _run_locked(self, plan: MakePlan[T], timeout_s: float) -> T:
        if not self._lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
            raise _busy(timeout_s)
        try:
            result: T = self._carried_out(plan())
            return result
        finally:
            self._lock.release()


def _busy(timeout_s: float) -> StoreTimeoutError:
    return StoreTimeoutError(
        f"the store was busy for {timeout_s} s; nothing was done", "Try again, or give the session a longer timeout_s."
    )
