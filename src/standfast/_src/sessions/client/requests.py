"""One request, from the moment it is queued until its caller has the answer.

A request is queued, then claimed by a thread that begins to do it, then finished. Its caller may stop waiting at any
moment, because its task was cancelled or its time is up, and gets control back at once. What that means depends on
how far the request is, and is decided under the request's own lock:

- queued: it is withdrawn and never done;
- claimed: it goes on, and if it can be undone (a pop, an acquired lease) it is undone;
- finished, but the answer not taken: it is undone before anything else is written. A loop may also be closed without a
  word to its tasks, so the writer looks for such orphans itself.

`_needs_compensation` gives the duty of undoing to exactly one side.
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
    """How far a request is."""

    QUEUED = "queued"
    CLAIMED = "claimed"
    FINISHED = "finished"
    WITHDRAWN = "withdrawn"


QUEUED, CLAIMED, FINISHED, WITHDRAWN = Stage
OPEN = (QUEUED, CLAIMED)


class Request(msgspec.Struct, Generic[T], eq=False, weakref=True):
    """A plan to carry out, and the coroutine that waits for it.

    `where` is for the executor alone: what it needs to know besides the plan. A `detached` request is never withdrawn
    and may have nobody who waits: `then` is told what came of it. `context` is whose it is, if nobody waits.
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
    """Whether a step of it has left and its answer was lost, and nobody has seen since that it was not done."""
    stage: Stage = QUEUED
    _abandoned: bool = False
    _undo_given: bool = False
    _lock: threading.Lock = msgspec.field(default_factory=threading.Lock)
    _loop: asyncio.AbstractEventLoop | None = None
    _future: asyncio.Future[T] | None = None

    # --- the caller's side ------------------------------------------------------------------------------

    async def answer(self, submit: Callable[[Request[T]], None], give_up: Callable[[Request[T], bool], None]) -> T:
        """Submit the request and wait for its result. However the waiting ends, nothing is left half-decided.

        `give_up` is told that nobody waits any more, and whether what was done must now be undone. A detached request
        was submitted before.
        """
        loop = asyncio.get_running_loop()
        future = loop.create_future()
        if self.detached:
            self._await_in(loop, future)
        else:  # nobody else knows it yet
            self._loop, self._future = loop, future
        waiting = waiting_in(loop, self)
        try:
            if not self.detached:
                submit(self)  # last: a woken thread needs Python's lock, which this one gives up when it next waits
            result: T = await future
            waiting.pop(self, None)
            self.taken = True  # and nothing is called from here on: an interrupt would lose what was taken
        except BaseException:  # cancelled, timed out, or the coroutine was thrown away: nobody takes the answer
            try:
                give_up(self, self._abandon())
            finally:
                waiting.pop(self, None)
            raise
        finally:
            if self.retries:
                self._tell_retries()  # in the task of whoever asked, and not by the thread that does the work
        return result

    def _await_in(self, loop: asyncio.AbstractEventLoop, future: asyncio.Future[T]) -> None:
        with self._lock:
            self._loop, self._future = loop, future
            if self.stage is FINISHED:
                self.hand_over()

    def tell_unheard(self) -> None:
        """Tell of retries for which nobody waits, as if whoever asked did so; from the thread that did the work."""
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
        """Its time is up: tell its caller so; runs in the caller's loop."""
        with self._lock:
            if self.stage is FINISHED:
                self.hand_over()  # the answer is on its way to the loop, or was when somebody was interrupted
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
        """Whether there is still something to do."""
        return self.stage in OPEN

    @property
    def is_left(self) -> bool:
        """Whether it was begun, and nobody waits for it any more."""
        return self._abandoned and self.stage is CLAIMED

    @property
    def must_be_seen(self) -> bool:
        """Whether what is asked for later must see it: its caller may have gone on when it was submitted.

        Not so where nothing durable was asked for, as leases and tickets are: no history tells of them.
        """
        return self.detached and self.durable

    @property
    def is_over(self) -> bool:
        """Whether it has its outcome, and has been taken back if it had to be."""
        return not self.is_open and (self.undone or not self._undo_given)

    @property
    def is_taken(self) -> bool:
        """Whether the question of who has the answer is closed: somebody took it, or somebody has to undo it."""
        return self.taken or self._abandoned

    @property
    def is_awaited(self) -> bool:
        """Whether somebody waits for it and its time is not up."""
        return self.is_open and (self.detached or (not self._abandoned and time.monotonic() < self.deadline))

    def claim(self) -> bool:
        """Begin it, unless it was withdrawn or its time is up. Claiming again, after a rollback, is allowed."""
        return bool(claim_all((self,)))

    def unclaim(self) -> None:
        """Put it back among those not begun, because the store was busy: it can be withdrawn and claimed again.

        Not if an answer was lost before: a pop that was done then would be withdrawn, and its item gone.
        """
        with self._lock:
            if self.stage is CLAIMED and not self.in_doubt:
                self.stage = WITHDRAWN if self._abandoned and not self.detached else QUEUED

    @property
    def is_to_be_undone(self) -> bool:
        """Before the commit: whether nobody waits any more for what was done, and it can be taken back."""
        return self._abandoned and self.undo is not None and self.error is None

    def undo_plan(self) -> Plan[None]:
        """The plan that takes back what was done."""
        assert self.undo is not None
        yield from self.undo(self.result)  # type: ignore[arg-type]  # it was done, so it has its result

    def undoing(self, patience_s: float | None = None) -> Request[None]:
        """A request for that, in the time that is left or in so much more; without a patience it stands until done."""
        until = self.deadline if patience_s is None else max(self.deadline, time.monotonic() + patience_s)
        return Request(self.undo_plan, self.where, self.timeout_s, until, detached=patience_s is None)

    def end_undo(self) -> None:
        """It was taken back, or cannot be."""
        self.undone = True

    def may_try_again(self, error: Exception, pause_s: float) -> bool:
        """Whether to ask again, after so long, what a store that loses answers has not answered."""
        in_time = time.monotonic() + pause_s <= self.deadline
        if isinstance(error, StoreTimeoutError):
            self.unclaim()
            return self.is_awaited or (in_time and (self.in_doubt or self.stage is FINISHED))
        may = isinstance(error, OutcomeUnknownError | StoreUnavailableError) and not error.is_lasting
        return may and in_time

    def last_word(self, error: Exception) -> Exception:
        """What its caller is told of a store's error that stands. An earlier attempt may have been done."""
        if not self.in_doubt or isinstance(error, OutcomeUnknownError):
            return error
        return OutcomeUnknownError(
            f"an answer was lost, and whether it was done could not be found out: {error}",
            "It was done whole or not at all. Repeating an append under the same writer and number is safe.",
        )

    def forget_outcome(self) -> None:
        """Its transaction was rolled back: nothing was done, and nothing undone."""
        self.undone, self.error, self.result = False, None, None

    def finish(self) -> bool:
        """The result or refusal stands. True if it must be undone because nobody waits for it."""
        return bool(finish_all((self,)))

    def fail(self, error: BaseException) -> None:
        """End it with an error, unless it has ended."""
        with self._lock:
            if self.is_open:
                self.stage, self.error = FINISHED, error

    def loop_closed(self) -> bool:
        """Whether its loop was closed before it took the answer. True, once, if it must be undone."""
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
    """A write that nobody waits for; see `Carrier.post`."""
    until = time.monotonic() + timeout_s
    return Request(plan, where, timeout_s, until, durable=False, detached=True, then=then, context=context)


def claim_all(requests: Sequence[Request[Any]]) -> list[Request[Any]]:
    """Begin requests; gives those that were not withdrawn before, and whose time is not up."""
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
    """End requests: their results and refusals stand. Gives those that must be undone because nobody waits for them."""
    to_undo = []
    for request in requests:
        with request._lock:
            request.stage = FINISHED
            if request._abandoned and request._needs_compensation():
                to_undo.append(request)
    return to_undo


class CompensationMessage:
    """Tells whoever writes to undo this request: it was done, and its answer never taken."""

    def __init__(self, request: Request[Any]) -> None:
        self.request = request


class Compensator:
    """Whoever writes, and undoes first what was done for callers who are gone."""

    def __init__(self) -> None:
        self._to_undo: list[Request[Any]] = []
        self._untaken: list[weakref.ref[Request[Any]]] = []  # answered, can be undone, and not known to be taken

    def _remember(self, requests: Iterable[Request[Any]]) -> None:
        self._untaken += [weakref.ref(request) for request in requests if request.undo is not None]

    def _look_for_orphans(self) -> None:
        """A loop may be closed without a word to its tasks: what they did not take is undone as well."""
        if not self._untaken:
            return
        waiting = [request for ref in self._untaken if (request := ref()) is not None and not request.is_taken]
        if not waiting:  # nearly always
            self._untaken = []
            return
        self._to_undo += [request for request in waiting if request.loop_closed()]
        self._untaken = [weakref.ref(request) for request in waiting if not request.is_taken]


class RequestExecutor:
    """Makes a request of each plan. A backend says how one is submitted, and what giving one up means."""

    _where: Any = None

    is_gone: Callable[[], bool] | None = None
    """Says whether the store it leads to is gone for good: then sessions that are opened later get another executor."""

    @property
    def lane(self) -> str | None:
        """See `Carrier.lane`: None, unless the store loses answers."""
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
        """Carry out a plan; see `Carrier.carry`."""
        context = copy_context() if detached else None  # else whoever asks waits, and hears of it where it waits
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
        """Carry out a write without anybody who waits; see `Carrier.post`."""
        try:
            self._submit(post_request(plan, self._where, timeout_s, then, context))
        except Exception as error:  # closed, or no thread can be started
            if then is not None:
                then(None, error)

    def _submit(self, request: Request[Any]) -> None:
        """Queue it; raises if nobody will do it."""
        raise NotImplementedError

    def _give_up(self, request: Request[Any], owes_undo: bool) -> None:
        """Nobody waits for it any more; see `Request.answer`."""
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
    except BaseException:  # interrupted, by Ctrl-C say: nobody else would hand over the others
        for request in requests:
            request.hand_over()
        raise


class _Deadlines:
    """The deadlines of all requests that wait in one event loop, with one timer for them.

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
        """Look at that time."""
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
# By the identity of a loop, which is nobody else's as long as what is found here lives: it refers to the loop. No
# WeakValueDictionary: that is written in Python, and this is asked by every request.


def _forget(loop_id: int, gone: weakref.ref[_Deadlines]) -> None:
    if _deadlines.get(loop_id) is gone:
        del _deadlines[loop_id]


def idle_timers() -> set[asyncio.TimerHandle]:
    """The timers that are left running while no request waits in their loop."""
    found = [ref() for ref in list(_deadlines.values())]
    return {one.timer for one in found if one is not None and one.timer is not None and not one.waiting}


def waiting_in(loop: asyncio.AbstractEventLoop, request: Request[Any]) -> dict[Request[Any], None]:
    """The requests that wait in this loop, with one more; each is expired when its time is up, unless taken out.

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
