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
"""Makes the plan, anew each time it is called: one that was rolled back with others is carried out from its start."""

UndoPlan = Callable[[T], Plan[None]]
"""Makes the plan that takes a result back, if nobody was there to receive it."""

Then = Callable[[Any, BaseException | None], None]
"""Callback for the result or the error of a posted plan, called in a thread of the executor; must return at once."""


class Executor(Protocol):
    """Carries out plans for any number of tasks, threads and event loops."""

    @property
    def lane(self) -> str | None:
        """What this executor's writes are known by when one is repeated because its answer was lost.

        Unique to this process, and it carries one write at a time. None: the store loses no answers.
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
        """Carry out a plan; awaiting gives its result, or raises what it raised.

        Raises StoreTimeoutError when it was not begun in time, OutcomeUnknownError when a write was. A caller who
        leaves gets control back at once: what was not begun is withdrawn; what was done and has an `undo` is undone
        before anything else is written. `durable=False`: may be lost if the machine loses power (leases, tickets).

        `detached`: it is submitted by this call, not by the first await, and is carried out though the awaiting task
        is cancelled, its loop is closed, or nobody ever awaits it. Then there is no `undo`; `then`, as for `post`, is
        told what came of it.
        """
        ...

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Carry out a write without anybody who waits, from any thread, with or without a loop; it need not be durable.

        Never raises: `then` is told what came of it. Leases are renewed and given back so. `context`: whose it is, so
        that what operators are told of it belongs to the run it was done for.
        """
        ...
