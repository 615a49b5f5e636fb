"""Carrying out the plans of a group: one after the other, in the order they came, and written together.

Each plan sees what those before it did (A10). What several of them need to know is read at once, and what they change
is written at once, so that a group takes few statements more than one plan. What adds to a session that is known, and
has nothing to be compared with, is done without a plan: nearly every turn.

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
from standfast.sessions.protocol import Head
from standfast.sessions.rules import Add
from standfast.sessions.writer_rules import Append

TOGETHER_MAX = 32
# Plans that are begun at once. More would save few statements, and keep so many objects alive at once that collecting
# garbage costs more than the statements.


def carry_out(requests: Sequence[Request[Any]], transaction: Transaction) -> None:
    """Carry out the plans of these requests; each ends with its result or its refusal."""
    if len(requests) == 1:
        if not _is_done(requests[0], transaction):
            _carry_on(requests[0], transaction, requests[0].plan(), None)
        return
    with transaction.together():
        going: list[tuple[Request[Any], Plan[Any]]] = []
        asked: list[Ask] = []
        for request in requests:
            if not going and _is_done(request, transaction):  # only then it stands before all that are begun
                continue
            plan = request.plan()
            try:
                asked.append(next(plan))
                going.append((request, plan))
            except StopIteration as end:
                request.result = end.value
            except StandfastError as error:
                request.error = error
            if len(going) == TOGETHER_MAX:
                _carry_all(going, asked, transaction)
                going, asked = [], []
        _carry_all(going, asked, transaction)


def _is_done(request: Request[Any], transaction: Transaction) -> bool:
    """Do an append or add at once, if it takes no plan; False, with nothing done, if one has to be carried out."""
    plan = request.plan
    if type(plan) is Append:
        mark = transaction.append(plan)
        if mark is None:
            return False
        request.result = Head(mark)
        return True
    return type(plan) is Add and transaction.add(plan)


def _carry_all(going: Sequence[tuple[Request[Any], Plan[Any]]], asked: Sequence[Ask], transaction: Transaction) -> None:
    """Carry on these plans, one after the other, each of which has asked its first question."""
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
