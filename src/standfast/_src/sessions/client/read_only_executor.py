"""An executor that lets nothing be changed: whatever only looks is handed on, everything else is refused."""

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
    """Something that answers plans which only look, in the calling thread."""

    def answer(self, plan: Callable[[], Plan[T]], timeout_s: float) -> T:
        """The result of a plan, of one instant."""
        ...


class ReadOnlyExecutor:
    """Another executor, for a store that was opened to be looked at."""

    def __init__(self, inner: Executor) -> None:
        self._inner = inner

    @property
    def lane(self) -> str | None:
        """The executor's own."""
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
        """Carry out a plan that only looks."""
        return self._read(plan, timeout_s) if kind == "read" else _refuse(then)

    def _read(self, plan: MakePlan[T], timeout_s: float) -> Coroutine[Any, Any, T]:
        return self._inner.carry(plan, timeout_s, kind="read")

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Refuse it."""
        _refuse(then).close()


class InThreads(ReadOnlyExecutor):
    """An executor for what answers in the calling thread: each question goes to a thread of the event loop's."""

    lane = None

    def __init__(self, store: AnswersReads) -> None:
        self._store = store

    def _read(self, plan: MakePlan[T], timeout_s: float) -> Coroutine[Any, Any, T]:
        return asyncio.to_thread(self._store.answer, plan, timeout_s)


def open_read_only() -> StoreReadOnlyError:
    """What whoever wants to change something is told."""
    return StoreReadOnlyError(
        "this store was opened to be looked at, and nothing in it is changed", "Open it with read_only=False."
    )


def _refuse(then: Then | None) -> Coroutine[Any, Any, Any]:
    error = open_read_only()
    if then is not None:
        then(None, error)
    return Completed(error=error)
