"""An executor passing changed plans on to an inner one: sealed, or led to another name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from standfast._src.sessions.client.executor import Executor, Kind, MakePlan, Then, UndoPlan
from standfast._src.sessions.storage import Plan

T = TypeVar("T")

ChangePlan = Callable[[MakePlan[Any]], Plan[Any]]
"""Makes a plan and carries it out in another way."""


class ExecutorWrapper:
    """Passes every plan, and its compensation, through `changing` to another executor."""

    def __init__(self, carrier: Executor) -> None:
        self.carrier = carrier

    def changing(self) -> ChangePlan:
        """Return the function that changes the plans executed from now on.

        A function of what it needs and not of this object: what a thread of the executor works on must not keep the
        executor alive.
        """
        raise NotImplementedError

    @property
    def lane(self) -> str | None:
        """Idempotency slot of the wrapped executor."""
        return self.carrier.lane

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
        """Execute a changed plan."""
        change = self.changing()
        undone = None if undo is None else partial(_undo_through, change, undo)
        return self.carrier.carry(
            partial(change, plan), timeout_s, kind=kind, undo=undone, durable=durable, detached=detached, then=then
        )

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Execute a changed plan without a waiting caller."""
        self.carrier.post(partial(self.changing(), plan), timeout_s, then, context)


def _undo_through(change: ChangePlan, undo: UndoPlan[T], result: T) -> Plan[None]:
    return change(partial(undo, result))
