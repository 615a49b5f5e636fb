"""Carrying out the plans of a group together: what several of them ask at once is asked of the database once.

Plans about different names go in step: all that look are answered with a few statements, then all that change. Plans
about the same name go one after the other, in the order they came, so that each sees what the one before it did (A10).

A plan that refuses has changed nothing, and the others go on. What fails after a change ends the whole transaction:
then whoever began it takes it back and does each plan alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from standfast.backends.sqlite.store import Transaction
from standfast.carrying.requests import Request
from standfast.ground.errors import StandfastError
from standfast.sessions.port import Ask, Done, Look, Name, Refused, Step, ask, carried_out, one_more_refusal


class _Going:
    """A request's plan, and what it asks now."""

    __slots__ = ("asks", "has_changed", "refusals", "request", "send")

    def __init__(self, request: Request[Any]) -> None:
        self.request, self.send = request, request.plan().send
        self.asks: Ask | None = None
        self.has_changed, self.refusals = False, 0
        self.answered(None)

    def answered(self, answer: Any) -> None:
        """Go on with an answer, up to the next question or the end."""
        kind = type(answer)
        if kind is Done:
            self.has_changed = True
        try:
            if kind is Refused:
                self.refusals = one_more_refusal(self.refusals)
            self.asks = self.send(answer)
        except StopIteration as end:
            self.asks, self.request.result = None, end.value
        except StandfastError as error:
            if self.has_changed:
                raise  # it refused too late: what it changed must not stay
            self.asks, self.request.error = None, error

    def names(self) -> Iterable[Name]:
        """What the question is about."""
        asks = self.asks
        if type(asks) is Look:
            return (asks.name,)
        if type(asks) is list:
            return [change.name for change in asks]
        return ()


TOGETHER_MAX = 32
# Plans in step. More would save few statements, and keep so many objects alive at once that collecting garbage costs
# more than the statements.


def carry_out(requests: Sequence[Request[Any]], transaction: Transaction) -> None:
    """Carry out the plans of these requests; each ends with its result or its refusal."""
    if len(requests) == 1:
        request, before = requests[0], transaction.db.total_changes
        try:
            request.result = carried_out(transaction, request.plan())
        except StandfastError as error:
            if transaction.db.total_changes != before:
                raise  # it refused too late: what it changed must not stay
            request.error = error
        return
    queue = deque(requests)
    waiting: list[_Going] = []
    while waiting or queue:
        while queue and len(waiting) < TOGETHER_MAX:
            going = _Going(queue.popleft())
            if going.asks is not None:
                waiting.append(going)
        together, waiting = _apart(waiting)
        while together:
            _round(together, transaction)
            together = [one for one in together if one.asks is not None]


def _apart(waiting: Sequence[_Going]) -> tuple[list[_Going], list[_Going]]:
    """Those that have no name in common with one that came before them, and the others."""
    first: list[_Going] = []
    later: list[_Going] = []
    taken: set[Name] = set()
    for one in waiting:
        names = one.names()
        (first if taken.isdisjoint(names) else later).append(one)
        taken.update(names)
    return first, later


def _round(together: Sequence[_Going], transaction: Transaction) -> None:
    """Answer what each of them asks now."""
    looking: list[_Going] = []
    changing: list[_Going] = []
    for one in together:
        if type(one.asks) is Look:
            looking.append(one)
        elif type(one.asks) is list:
            changing.append(one)
        else:
            assert one.asks is not None
            one.answered(ask(transaction, one.asks))
    if looking:
        looks: list[Look] = [one.asks for one in looking]  # type: ignore[misc]  # that is what they ask
        for one, sight in zip(looking, transaction.look_all(looks), strict=True):
            one.answered(sight)
    # Two of them may come to the same name only now (a fork into another's session): then one after the other.
    colliding: list[_Going] = []
    names = [change.name for one in changing for change in one.asks]  # type: ignore[union-attr]  # a step
    if len(set(names)) < len(names):
        changing, colliding = _apart(changing)
    if changing:
        steps: list[Step] = [one.asks for one in changing]  # type: ignore[misc]  # that is what they ask
        for one, done in zip(changing, transaction.commit_all(steps), strict=True):
            one.answered(done)
    for one in colliding:
        one.answered(transaction.commit(one.asks))  # type: ignore[arg-type]  # a step
