"""Protocol of an executor, which runs a plan against a store and returns its result.

A session knows rules and arguments; a store knows rows and cells. What lies between is the same for every plan: a
deadline, a caller who may leave at any moment, threads, event loops that end, `os.fork`. An executor handles these
(A13, A21, A22), and decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Literal, Protocol, TypeVar

from standfast._src.sessions.storage import Plan

T = TypeVar("T")

Kind = Literal["read", "write"]

MakePlan = Callable[[], Plan[T]]
"""Makes a new plan at each call: a plan rolled back with its group runs again from its start."""

UndoPlan = Callable[[T], Plan[None]]
"""Makes the plan that compensates a result which no caller received."""

Then = Callable[[Any, BaseException | None], None]
"""Callback for the result or the error of a posted plan, called in a thread of the executor; must return at once."""


class Executor(Protocol):
    """Executes plans for any number of tasks, threads and event loops."""

    @property
    def lane(self) -> str | None:
        """Idempotency slot of this executor's next write, by which a repeat after a lost answer is recognized.

        Unique to this process; a slot serves one write at a time. None: the store loses no answers.
        """
        ...

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
        """Execute a plan; awaiting returns its result or raises its error.

        Raises StoreTimeoutError if the plan had not begun in time, OutcomeUnknownError if a write had. A cancelled
        caller gets control back at once: a plan that has not begun is withdrawn; a finished one with an `undo` is
        compensated before any later write. `durable=False`: may be lost if the machine loses power (leases, tickets).

        `detached`: this call submits the plan, not the first await. The plan is executed even if the awaiting task is
        cancelled, its loop is closed, or the result is never awaited. Such a plan has no `undo`; `then` receives
        the outcome, as for `post`.
        """
        ...

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Execute a write without a waiting caller, from any thread, with or without an event loop. It need not be
        durable.

        Never raises: `then` receives the outcome. Leases are renewed and released in this way. `context`: the context
        of the run that owns the write, to which operational events are attributed.
        """
        ...
