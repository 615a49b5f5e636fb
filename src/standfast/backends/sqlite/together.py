"""Carrying out the plans of a group: one after the other, in the order they came, and written together.

Each plan sees what those before it did (A10). What several of them need to know is read at once, and what they change
is written at once, so that a group takes few statements more than one plan.

A plan that refuses has changed nothing, and the others go on. What fails after a change ends the whole transaction:
then whoever began it takes it back and does each plan alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from standfast.backends.sqlite.store import Transaction
from standfast.carrying.requests import Request
from standfast.ground.errors import StandfastError
from standfast.sessions.port import Ask, Plan, carried_out

TOGETHER_MAX = 32
# Plans that are begun at once. More would save few statements, and keep so many objects alive at once that collecting
# garbage costs more than the statements.


def carry_out(requests: Sequence[Request[Any]], transaction: Transaction) -> None:
    """Carry out the plans of these requests; each ends with its result or its refusal."""
    if len(requests) == 1:
        _carry_on(requests[0], transaction, requests[0].plan(), None)
        return
    with transaction.together():
        for start in range(0, len(requests), TOGETHER_MAX):
            going: list[tuple[Request[Any], Plan[Any]]] = []
            asked: list[Ask] = []
            for request in requests[start : start + TOGETHER_MAX]:
                plan = request.plan()
                try:
                    asked.append(next(plan))
                    going.append((request, plan))
                except StopIteration as end:
                    request.result = end.value
                except StandfastError as error:
                    request.error = error
            transaction.foresee(asked)
            for (request, plan), question in zip(going, asked, strict=True):
                _carry_on(request, transaction, plan, question)


def _carry_on(request: Request[Any], transaction: Transaction, plan: Plan[Any], asked: Ask | None) -> None:
    before = transaction.step_count
    try:
        request.result = carried_out(transaction, plan, asked)
    except StandfastError as error:
        if transaction.step_count != before:
            raise  # it refused too late: what it changed must not stay
        request.error = error
