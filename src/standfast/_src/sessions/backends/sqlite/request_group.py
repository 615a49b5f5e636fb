"""Execution of a group's plans: in the order of arrival, with common reads and writes.

Each plan sees what those before it did (A10). What several of them need to know is read at once, and what they change
is written at once, so that a group takes few statements more than one plan. What adds to a session that is known, and
has nothing to be compared with, is done without a plan: nearly every turn.

A plan that refuses has changed nothing, and the remaining plans continue. What fails after a change ends the whole
transaction: then the caller rolls back and does each plan alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from standfast._src.base.errors import StandfastError
from standfast._src.sessions.backends.sqlite.sqlite_storage import Transaction
from standfast._src.sessions.client.requests import Request
from standfast._src.sessions.protocol import Head
from standfast._src.sessions.rules.append import Append
from standfast._src.sessions.rules.history import Add
from standfast._src.sessions.storage import Ask, Plan, run_program

TOGETHER_MAX = 32
# Plans that are begun at once. More would save few statements, and keep so many objects alive at once that collecting
# garbage costs more than the statements.


def run_group(requests: Sequence[Request[Any]], transaction: Transaction) -> None:
    """Execute the plans of the requests; each ends with its result or its refusal."""
    if len(requests) == 1:
        if not _try_fast_path(requests[0], transaction):
            _run_next(requests[0], transaction, requests[0].plan(), None)
        return
    with transaction.together():
        going: list[tuple[Request[Any], Plan[Any]]] = []
        asked: list[Ask] = []
        for request in requests:
            if not going and _try_fast_path(request, transaction):  # only then no begun plan precedes it
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
                _run_all(going, asked, transaction)
                going, asked = [], []
        _run_all(going, asked, transaction)


def _try_fast_path(request: Request[Any], transaction: Transaction) -> bool:
    """Do a plain append or add at once; return False, with nothing done, if the plan must be executed."""
    plan = request.plan
    if type(plan) is Append:
        mark = transaction.append(plan)
        if mark is None:
            return False
        request.result = Head(mark)
        return True
    return type(plan) is Add and transaction.add(plan)


def _run_all(going: Sequence[tuple[Request[Any], Plan[Any]]], asked: Sequence[Ask], transaction: Transaction) -> None:
    """Execute plans in turn, each after its first question."""
    transaction.foresee(asked)
    for (request, plan), question in zip(going, asked, strict=True):
        _run_next(request, transaction, plan, question)


def _run_next(request: Request[Any], transaction: Transaction, plan: Plan[Any], asked: Ask | None) -> None:
    before = transaction.step_count
    try:
        request.result = run_program(transaction, plan, asked)
    except StandfastError as error:
        if transaction.step_count != before:
            raise  # it refused too late: what it changed must not stay
        request.error = error
