"""A carrier that lets nothing be changed: whatever only looks is handed on, everything else is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Protocol, TypeVar

from standfast.carrying.already_done import AlreadyDone
from standfast.carrying.carrier import Carrier, Kind, MakePlan, Then, UndoPlan
from standfast.ground.errors import StoreReadOnlyError
from standfast.sessions.port import Plan

T = TypeVar("T")


class AnswersLooks(Protocol):
    """Something that answers plans which only look, in the calling thread."""

    def answer(self, plan: Callable[[], Plan[T]], timeout_s: float) -> T:
        """The result of a plan, of one instant."""
        ...


class InThreads:
    """A carrier for what answers in the calling thread: each question goes to a thread of the event loop's."""

    lane = None

    def __init__(self, store: AnswersLooks) -> None:
        self._store = store

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
        if kind != "read":
            return _refused(then)
        return asyncio.to_thread(self._store.answer, plan, timeout_s)

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Refuse it."""
        _refused(then).close()


class ReadingOnly:
    """Another carrier, for a store that was opened to be looked at."""

    def __init__(self, inner: Carrier) -> None:
        self._inner = inner

    @property
    def lane(self) -> str | None:
        """The carrier's own."""
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
        return self._inner.carry(plan, timeout_s, kind="read") if kind == "read" else _refused(then)

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Refuse it."""
        _refused(then).close()


def opened_to_look() -> StoreReadOnlyError:
    """What whoever wants to change something is told."""
    return StoreReadOnlyError(
        "this store was opened to be looked at, and nothing in it is changed", "Open it with read_only=False."
    )


def _refused(then: Then | None) -> Coroutine[Any, Any, Any]:
    error = opened_to_look()
    if then is not None:
        then(None, error)
    return AlreadyDone(error=error)
