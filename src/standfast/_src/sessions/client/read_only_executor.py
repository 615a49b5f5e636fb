"""An executor that passes reads on and refuses everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, TypeVar

from standfast._src.base.errors import StoreReadOnlyError
from standfast._src.sessions.client.completed import Completed
from standfast._src.sessions.client.executor import Executor, Kind, MakePlan, Then, UndoPlan
from standfast._src.sessions.storage import Plan

T = TypeVar("T")


class AnswersReads(Protocol):
    """An object that answers read plans in the calling thread."""

    def answer(self, plan: Callable[[], Plan[T]], timeout_s: float) -> T:
        """Return the result of a plan, all of one instant."""
        ...


class ReadOnlyExecutor:
    """Wraps the executor of a store that was opened for reading only."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner

    @property
    def lane(self) -> str | None:
        """Idempotency slot of the wrapped executor."""
        return self._inner.lane

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
        """Execute a plan that only reads; refuse any other."""
        return self._read(plan, timeout_s) if kind == "read" else _refuse(then)

    def _read(self, plan: MakePlan[T], timeout_s: float) -> Coroutine[Any, Any, T]:
        return self._inner.carry(plan, timeout_s, kind="read")

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Refuse the write."""
        _refuse(then).close()


class InThreads(ReadOnlyExecutor):
    """Executor for a store that answers in the calling thread: each question goes to a thread of the event loop."""

    lane = None

    def __init__(self, store: AnswersReads) -> None:
        self._store = store

    def _read(self, plan: MakePlan[T], timeout_s: float) -> Coroutine[Any, Any, T]:
        return asyncio.to_thread(self._store.answer, plan, timeout_s)


def open_read_only() -> StoreReadOnlyError:
    """Build the error raised in a caller that tries to write."""
    return StoreReadOnlyError(
        "this store was opened to be looked at, and nothing in it is changed", "Open it with read_only=False."
    )


def _refuse(then: Then | None) -> Coroutine[Any, Any, Any]:
    error = open_read_only()
    if then is not None:
        then(None, error)
    return Completed(error=error)
