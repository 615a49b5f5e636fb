"""A request, from queueing until the caller has the answer.

A thread claims a queued request, executes it and finishes it. The caller may stop waiting at any moment, through
cancellation or a timeout, and gets control back at once. The consequence depends on the stage of the request, and is
decided under the request's own lock:

- queued: it is withdrawn and never executed;
- claimed: it continues, and is compensated if it can be (a pop, an acquired lease);
- finished, but the answer not taken: it is compensated before any other write. An event loop may also be closed without
  notice to its tasks, so the writing thread looks for such orphans itself.

`_needs_compensation` assigns the duty of compensation to exactly one side.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextvars import Context, copy_context
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec

from standfast._src.base.errors import OutcomeUnknownError, StoreTimeoutError, StoreUnavailableError
from standfast._src.base.operational_events import tell_seldom
from standfast._src.sessions.client.executor import Kind, MakePlan, Then, UndoPlan
from standfast._src.sessions.storage import Plan

T = TypeVar("T")


class Stage(Enum):
    """Progress of a request."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"


QUEUED, CLAIMED, FINISHED, WITHDRAWN = Stage
OPEN = (QUEUED, CLAIMED)


class Request(msgspec.Struct, Generic[T], eq=False, weakref=True):
    """A plan to execute, and the coroutine that waits for it.

    `where` belongs to the executor alone: what it needs besides the plan. A `detached` request is never withdrawn and
    may have no waiting caller: `then` receives its outcome. `context` is the owner's context, if no caller waits.
    """

    plan: MakePlan[T]
    where: Any
    timeout_s: float
    deadline: float
    kind: Kind = "write"
    undo: UndoPlan[T] | None = None
    durable: bool = True
    detached: bool = False
    then: Then | None = None
    context: Context | None = None
    result: T | None = None
    error: BaseException | None = None
    undone: bool = False
    taken: bool = False
    retries: int = 0
    """How often the store was asked again, because it was away or its answer was lost."""
    retried: tuple[str, str, str] = ("a store", "", "")
    """Which store that was, what it was asked for, and why it was asked again, of the last time."""
    in_doubt: bool = False
    """Whether the answer to a sent step was lost, and no later read has shown that the step was not committed."""
    stage: Stage = QUEUED
    _abandoned: bool = False
    _undo_given: bool = False
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    _loop: asyncio.AbstractEventLoop | None = None
    _future: asyncio.Future[T] | None = None

    # --- the caller's side ------------------------------------------------------------------------------

    async def answer(self, submit: Callable[[Request[T]], None], give_up: Callable[[Request[T], bool], None]) -> T:
        """Submit the request and wait for its result. However the wait ends, nothing is left half-decided.

        `give_up` is called when the caller stops waiting, and receives whether a finished write must now be
        compensated. A detached request was submitted before.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self.detached:
            self._await_in(loop, future)
        else:  # not shared with a thread yet
            self._loop, self._future = loop, future
        waiting = waiting_in(loop, self)
        try:
            if not self.detached:
                submit(self)  # last: a woken thread needs Python's lock, which this one gives up when it next waits
            result: T = await future
            waiting.pop(self, None)
            self.taken = True  # and nothing is called from here on: an interrupt would lose what was taken
        except BaseException:  # cancelled, timed out, or the coroutine was thrown away: the answer is not taken
            try:
                give_up(self, self._abandon())
            finally:
                waiting.pop(self, None)
            raise
        finally:
            if self.retries:
                self._tell_retries()  # in the caller's task, not in the executing thread
        return result

    def _await_in(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
        with self._lock:
            self._loop, self._future = loop, future
            if self.stage is FINISHED:
                self.hand_over()

    def tell_unheard(self) -> None:
        """Emit the retries of a request without a waiting caller, in its owner's context; from the executing thread."""
        if self._loop is None:
            (self.context or copy_context()).copy().run(self._tell_retries)

    def _tell_retries(self) -> None:
        store, what, reason = self.retried
        seconds = time.monotonic() + self.timeout_s - self.deadline
        tell_seldom("store_retried", store, store=store, count=self.retries, seconds=seconds, what=what, reason=reason)

    def _abandon(self) -> bool:
        with self._lock:
            self._abandoned = True
            if self.stage is QUEUED and not self.detached:
                self.stage = WITHDRAWN
            return self._needs_compensation()

    def expire(self) -> None:
        """Time out: fail the caller's future. Runs in the caller's loop."""
        with self._lock:
            if self.stage is FINISHED:
                self.hand_over()  # the answer is on its way to the loop, or was when the loop was interrupted
                return
            begun = self.stage is CLAIMED or self.detached
            self._abandoned = True
            if not begun:
                self.stage = WITHDRAWN
        assert self._future is not None
        if not self._future.done():
            self._future.set_exception(self._late(begun))

    def _late(self, begun: bool) -> StoreTimeoutError | OutcomeUnknownError:
        if begun and self.kind == "write":
            return OutcomeUnknownError(
                f"the store was still committing after {self.timeout_s} s",
                "It will be there whole or not at all; repeating an append under the same writer and number is safe.",
            )
        return StoreTimeoutError(
            f"the store did not get to it within {self.timeout_s} s; nothing was done and nothing will be",
            "Look whether the store is there and answers, and for what keeps it locked or busy; or give the session a "
            "longer timeout_s.",
        )

    # --- the side of the thread that does it ------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Return whether the request is queued or claimed."""
        return self.stage in OPEN

    @property
    def is_left(self) -> bool:
        """Return whether the request was claimed and its caller has stopped waiting."""
        return self._abandoned and self.stage is CLAIMED

    @property
    def must_be_seen(self) -> bool:
        """Return whether later requests must see the effect: the caller may have continued right after submitting.

        Not for requests that are not durable, such as leases and tickets: no history shows them.
        """
        return self.detached and self.durable

    @property
    def is_over(self) -> bool:
        """Return whether the request has its outcome and any owed compensation is done."""
        return not self.is_open and (self.undone or not self._undo_given)

    @property
    def is_taken(self) -> bool:
        """Return whether the answer is settled: taken by the caller, or left to a thread to compensate."""
        return self.taken or self._abandoned

    @property
    def is_awaited(self) -> bool:
        """Return whether a caller still waits within its deadline, or the request is detached."""
        return self.is_open and (self.detached or (not self._abandoned and time.monotonic() < self.deadline))

    def claim(self) -> bool:
        """Claim the request, unless withdrawn or late. A second claim after a rollback is allowed."""
        return bool(claim_all((self,)))

    def unclaim(self) -> None:
        """Return a request to the queue because the store was busy: it can be withdrawn and claimed again.

        Not if an answer was lost before: a pop that was committed then would be withdrawn, and its item lost.
        """
        with self._lock:
            if self.stage is CLAIMED and not self.in_doubt:
                self.stage = WITHDRAWN if self._abandoned and not self.detached else QUEUED

    @property
    def is_to_be_undone(self) -> bool:
        """Return whether, before the commit, the caller has stopped waiting and the result can be compensated."""
        return self._abandoned and self.undo is not None and self.error is None

    def undo_plan(self) -> Plan[None]:
        """Yield from the plan that compensates the result."""
        assert self.undo is not None
        yield from self.undo(self.result)  # type: ignore[arg-type]  # it was done, so it has its result

    def undoing(self, patience_s: float | None = None) -> Request[None]:
        """Build the compensating request, with at least `patience_s` of time; without a patience it is detached."""
        until = self.deadline if patience_s is None else max(self.deadline, time.monotonic() + patience_s)
        return Request(self.undo_plan, self.where, self.timeout_s, until, detached=patience_s is None)

    def end_undo(self) -> None:
        """Note that the compensation is done, or impossible."""
        self.undone = True

    def may_try_again(self, error: Exception, pause_s: float) -> bool:
        """Return whether to retry, after a pause, a question that a store has not answered."""
        in_time = time.monotonic() + pause_s <= self.deadline
        if isinstance(error, StoreTimeoutError):
            self.unclaim()
            return self.is_awaited or (in_time and (self.in_doubt or self.stage is FINISHED))
        may = isinstance(error, OutcomeUnknownError | StoreUnavailableError) and not error.is_lasting
        return may and in_time

    def last_word(self, error: Exception) -> Exception:
        """Return the error to raise in the caller: after a lost answer an earlier attempt may have been committed."""
        if not self.in_doubt or isinstance(error, OutcomeUnknownError):
            return error
        return OutcomeUnknownError(
            f"an answer was lost, and whether it was done could not be found out: {error}",
            "It was done whole or not at all. Repeating an append under the same writer and number is safe.",
        )

    def forget_outcome(self) -> None:
        """Reset the outcome after a rollback of the transaction: nothing was done or undone."""
        self.undone, self.error, self.result = False, None, None

    def finish(self) -> bool:
        """Finish with the result or the refusal; return True if it must be compensated because the caller stopped
        waiting.
        """
        return bool(finish_all((self,)))

    def fail(self, error: BaseException) -> None:
        """End the request with an error, unless it has ended."""
        with self._lock:
            if self.is_open:
                self.stage, self.error = FINISHED, error

    def loop_closed(self) -> bool:
        """Return True, once, if the caller's loop was closed before taking the answer and the result must be
        compensated.
        """
        with self._lock:
            if self.taken or self._loop is None or not self._loop.is_closed():
                return False
            self._abandoned = True
            return self._needs_compensation()

    def _needs_compensation(self) -> bool:
        is_owed = (
            self._abandoned
            and self.stage is FINISHED
            and self.undo is not None
            and self.error is None
            and not self.undone
            and not self._undo_given
        )
        self._undo_given = self._undo_given or is_owed
        return is_owed

    def hand_over(self) -> None:
        """Give the answer to the waiting coroutine; runs in its loop."""
        future = self._future
        if future is None or future.done():
            return
        if self.error is not None:
            future.set_exception(self.error)
        else:
            future.set_result(self.result)  # type: ignore[arg-type]  # finished without an error: it has its result


def post_request(
    plan: MakePlan[T], where: object, timeout_s: float, then: Then | None, context: Context | None
) -> Request[T]:
    """Build a write request without a waiting caller; see `Executor.post`."""
    until = time.monotonic() + timeout_s
    return Request(plan, where, timeout_s, until, durable=False, detached=True, then=then, context=context)


def claim_all(requests: Sequence[Request[Any]]) -> list[Request[Any]]:
    """Claim requests; return the claimed ones, without withdrawn and late requests."""
    now, found = time.monotonic(), []
    for request in requests:
        with request._lock:
            stage = request.stage
            if stage is QUEUED:
                if request.detached or now < request.deadline:
                    stage = request.stage = CLAIMED
                else:  # its loop is too busy to say so itself
                    request.stage = WITHDRAWN
                    request.error = request._late(begun=False)
            if stage is CLAIMED:
                found.append(request)
    return found


def finish_all(requests: Sequence[Request[Any]]) -> list[Request[Any]]:
    """Finish requests with their results or refusals; return those to compensate because their callers stopped
    waiting.
    """
    to_undo = []
    for request in requests:
        with request._lock:
            request.stage = FINISHED
            if request._abandoned and request._needs_compensation():
                to_undo.append(request)
    return to_undo


class CompensationMessage:
    """Asks the writing thread to compensate a request whose answer was never taken."""

    def __init__(self, request: Request[Any]) -> None:
        self.request = request


class Compensator:
    """Base of the writing threads: compensates first the results that cancelled callers did not take."""

    def __init__(self) -> None:
        self._to_undo: list[Request[Any]] = []
        self._untaken: list[weakref.ref[Request[Any]]] = []  # answered, can be undone, and not known to be taken

    def _remember(self, requests: Iterable[Request[Any]]) -> None:
        self._untaken += [weakref.ref(request) for request in requests if request.undo is not None]

    def _look_for_orphans(self) -> None:
        """Find results whose event loop was closed before the caller took them, and queue their compensation."""
        if not self._untaken:
            return
        waiting = [request for ref in self._untaken if (request := ref()) is not None and not request.is_taken]
        if not waiting:  # nearly always
            self._untaken = []
            return
        self._to_undo += [request for request in waiting if request.loop_closed()]
        self._untaken = [weakref.ref(request) for request in waiting if not request.is_taken]


class RequestExecutor:
    """Makes a request of each plan. A backend defines how one is submitted and abandoned."""

    _where: Any = None

    is_gone: Callable[[], bool] | None = None
    """Says whether its store was deleted or replaced: then sessions that are opened later get another executor."""

    @property
    def lane(self) -> str | None:
        """See `Executor.lane`: None, unless the store loses answers."""
        return None

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
        """Execute a plan; see `Executor.carry`."""
        context = copy_context() if detached else None  # otherwise retries are reported in the waiting caller's task
        until = time.monotonic() + timeout_s
        return self._send_request(
            Request(plan, self._where, timeout_s, until, kind, undo, durable, detached, then, context)
        )

    # Not a coroutine of its own: in a group of many turns, passing through one more frame each is measurable.
    def _send_request(self, request: Request[T]) -> Coroutine[Any, Any, T]:
        if request.detached:
            self._submit(request)
        return request.answer(self._submit, self._give_up)

    def post(
        self, plan: MakePlan[T], timeout_s: float, then: Then | None = None, context: Context | None = None
    ) -> None:
        """Execute a write without a waiting caller; see `Executor.post`."""
        try:
            self._submit(post_request(plan, self._where, timeout_s, then, context))
        except Exception as error:  # closed, or no thread can be started
            if then is not None:
                then(None, error)

    def _submit(self, request: Request[Any]) -> None:
        """Queue a request; raises if no thread will execute it."""
        raise NotImplementedError

    def _give_up(self, request: Request[Any], owes_undo: bool) -> None:
        """Note that the caller stopped waiting; see `Request.answer`."""
        raise NotImplementedError


def deliver(requests: Iterable[Request[Any]]) -> None:
    """Wake every waiting caller, with one call per event loop.

    One call per loop and not per request: each wakes the loop by writing to a pipe, and with many sessions on one
    loop that was a good part of the cost of a group.
    """
    by_loop: dict[asyncio.AbstractEventLoop, list[Request[Any]]] = {}
    last: asyncio.AbstractEventLoop | None = None
    ready: list[Request[Any]] = []
    for request in requests:
        if request.retries:
            request.tell_unheard()
        if request.then is not None:
            request.then(request.result, request.error)
        loop = request._loop
        if loop is not None:
            if loop is not last:  # nearly always all wait in one
                last, ready = loop, by_loop.setdefault(loop, [])
            ready.append(request)
    for loop, ready in by_loop.items():
        try:
            loop.call_soon_threadsafe(_hand_over_all, ready)
        except RuntimeError:
            continue  # the loop was closed: these are orphans now


def _hand_over_all(requests: list[Request[Any]]) -> None:
    try:
        for request in requests:
            request.hand_over()
    except BaseException:  # interrupted, by Ctrl-C say: no other call would hand over the rest
        for request in requests:
            request.hand_over()
        raise


class _Deadlines:
    """The deadlines of all requests waiting in one event loop, served by one timer.

    A timer per request cost as much as the rest of its bookkeeping. The timer alone keeps this alive, and is left
    running when nothing waits any more: the next request nearly always ends later than it. A loop that is closed
    forgets its timers, so nothing of it stays behind.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.waiting: dict[Request[Any], None] = {}
        self.timer: asyncio.TimerHandle | None = None
        self.due = math.inf

    def arm(self, due: float) -> None:
        """Set the timer to a time."""
        before = self.timer
        self.timer = self._loop.call_later(max(0.0, due - time.monotonic()), self._look)
        self.due = due  # only now: who is interrupted leaves a timer too many, and none that is believed in
        if before is not None:
            before.cancel()

    def _look(self) -> None:
        now, self.due = time.monotonic(), math.inf
        for request in list(self.waiting):
            if request.deadline <= now:
                request.expire()
        later = [request.deadline for request in self.waiting if request.deadline > now]
        if later:
            self.arm(min(later))


_deadlines: dict[int, weakref.ref[_Deadlines]] = {}
# By the identity of a loop, which stays unique as long as the value found here lives: it refers to the loop. No
# WeakValueDictionary: that is written in Python, and this is asked by every request.


def _forget(loop_id: int, gone: weakref.ref[_Deadlines]) -> None:
    if _deadlines.get(loop_id) is gone:
        del _deadlines[loop_id]


def idle_timers() -> set[asyncio.TimerHandle]:
    """Return the timers left running while no request waits in their loop."""
    found = [ref() for ref in list(_deadlines.values())]
    return {one.timer for one in found if one is not None and one.timer is not None and not one.waiting}


def waiting_in(loop: asyncio.AbstractEventLoop, request: Request[Any]) -> dict[Request[Any], None]:
    """Return the requests waiting in this loop, with one added. Each expires at its deadline unless removed.

    Call it in the loop's own thread.
    """
    known = _deadlines.get(id(loop))
    found = None if known is None else known()
    if found is None:
        found = _Deadlines(loop)
        _deadlines[id(loop)] = weakref.ref(found, partial(_forget, id(loop)))
    found.waiting[request] = None
    if request.deadline < found.due:
        found.arm(request.deadline)
    return found.waiting
