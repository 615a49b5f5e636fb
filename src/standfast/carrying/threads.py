"""Carrying plans to any store whose methods block: a file, a server behind a client library.

A store that is busy (another program has its lock) says so with `StoreTimeoutError` and does not wait: until it is not,
whoever asked can leave, and nothing is done later (A13).

One thread writes, one plan after the other, in the order they were asked for; a few read beside it, if the store may
be shared. They belong to no event loop, so loops may come and end (A22). Each thing a plan yields is one call of the
store, and others may write in between: the plan notices by itself. If an answer is lost, the same question is asked
again until the deadline: whatever a plan asks for carries what a repeat is known by (A6, A8).

Carriers of one store are shared (`shared`), and end with their last user: threads are as many as stores, not sessions.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any, TypeVar
from uuid import uuid4

from standfast.carrying import thread_start
from standfast.carrying.requests import FINISHED, Request, RequestCarrier, Undoer, UndoMessage, deliver
from standfast.ground.endings import AtProcessEnd
from standfast.ground.errors import OutcomeUnknownError, SessionClosedError, StoreTimeoutError, StoreUnavailableError
from standfast.ground.log_helpers import session_logger as _log
from standfast.sessions.port import Answer, Ask, Count, Listing, Look, Plan, Refused, Store, ask

T = TypeVar("T")


AnyRequest = Request[Any]

RETRY_FIRST_S, RETRY_MAX_S = 0.005, 0.5
# A busy store is mostly free again in a moment; one that is away is asked twice a second, until the deadline.

LAST_WAIT_S = 5.0
# How long the end of the process waits for what was submitted and nobody awaits.


DOUBTFUL = (OutcomeUnknownError, StoreUnavailableError, StoreTimeoutError)
"""What is said where nobody can ask: anything else is a store's answer, by which others can be asked for."""

LOOK_AGAIN = Refused(0, "mark")
"""For a step that the store refuses to repeat after an answer was lost (it is full now, or lets nobody write): whether
it was done, its plan can still see."""

Inbox = SimpleQueue["AnyRequest | UndoMessage | None"]
"""None: end when all that came before is done."""


class ThreadCarrier(RequestCarrier):
    """Carries plans to one store. `open_store` is called in the thread that will use it, when it is first needed."""

    _under_way: set[int] | None = None
    """The writes that have not ended, for a carrier that has several lanes for them."""

    def __init__(self, open_store: Callable[[], Store], *, loses_answers: bool = False, readers: int = 0) -> None:
        self._open_store, self._loses_answers, self._reader_count = open_store, loses_answers, readers
        self._begin()

    @property
    def lane(self) -> str | None:
        """What this carrier's writes are known by."""
        if self._pid != os.getpid():  # a child that used its parent's would seem to repeat, or hide what the parent did
            self._begin()
        return self._base

    def _begin(self) -> None:
        """Begin, also anew in a child: the threads, and whatever they hold, are the parent's."""
        self._pid, self._is_closed = os.getpid(), False
        self._base = uuid4().hex if self._loses_answers else None
        self._gate = threading.RLock()  # taken again when a request is given up by being collected as garbage in here
        self._left: list[AnyRequest] = []  # writes that nobody waits for any more, and that may still have to end
        self._writes: Inbox = SimpleQueue()
        self._reads: Inbox = SimpleQueue() if self._reader_count else self._writes
        self._threads: list[threading.Thread] = []
        self._ending = weakref.finalize(self, _end, self._writes, self._reads, self._reader_count)
        self._ending.atexit = False

    # --- requests ----------------------------------------------------------------------------------------------------

    def _submit(self, request: AnyRequest) -> None:
        if self._pid != os.getpid():
            self._begin()
        with self._gate:
            if self._is_closed:
                raise SessionClosedError
            if not self._threads:
                self._start()
            has_left = self._has_left()
            if request.kind == "write" or has_left:
                if self._under_way is not None and request.kind == "write":
                    self._under_way.add(id(request))
                self._writes.put(request)
            else:
                self._reads.put(request)

    def _has_left(self) -> bool:
        """Whether cancelled writes are neither done nor taken back: what follows waits for them (A13)."""
        if self._left:
            self._left = [left for left in self._left if not left.is_over]
        return bool(self._left)

    def _give_up(self, request: AnyRequest, owes_undo: bool) -> None:
        if request.kind != "write" or self._pid != os.getpid():
            return
        with self._gate:
            self._left.append(request)
            if owes_undo:
                self._writes.put(UndoMessage(request))

    # --- life --------------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        jobs = [self._writing().run]
        jobs += [_Reading(self._open_store, self._reads, self._loses_answers).run for _ in range(self._reader_count)]
        started: list[threading.Thread] = []
        try:
            for job in jobs:
                thread = thread_start.started(job, "standfast-carrier")
                started.append(thread)
                _running.add(thread)
        except BaseException:  # no more threads: end those there are, so that the next request begins anew
            if started:
                _end(self._writes, self._reads, len(started) - 1)
            raise
        self._threads = started

    def _writing(self) -> Writing:
        return Writing(self._open_store, self._writes, self._loses_answers)

    def close(self, timeout_s: float = LAST_WAIT_S) -> None:
        """End when all that was submitted is done, and wait for that; the store is closed if it has a `close`."""
        with self._gate:
            self._is_closed = True
            if self._ending.detach() is not None:  # not called: at the end of the process a finalizer may do nothing
                _end(self._writes, self._reads, self._reader_count)
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread() and self._pid == os.getpid():
                thread.join(max(0.0, deadline - time.monotonic()))


def _end(writes: Inbox, reads: Inbox, reader_count: int) -> None:
    writes.put(None)
    for _ in range(reader_count):
        reads.put(None)


class _Worker:
    """A thread with a store of its own."""

    def __init__(self, open_store: Callable[[], Store], inbox: Inbox, loses_answers: bool) -> None:
        self._open_store, self._inbox, self._loses_answers = open_store, inbox, loses_answers
        self._store: Store | None = None

    def run(self) -> None:
        """Do what is asked for until told to end."""
        try:
            while (message := self._inbox.get()) is not None:
                self._do(message)
                del message  # or, while this waits for the next, it would keep alive whatever its plan refers to
            self._end()
        finally:
            self._close_store()

    def _end(self) -> None:
        """Do what is left to do when the thread ends: nothing, unless a subclass says so."""

    def _close_store(self) -> None:
        close = getattr(self._store, "close", None)
        if callable(close):
            close()

    def _do(self, message: AnyRequest | UndoMessage) -> None:
        raise NotImplementedError

    def _carry_out(self, request: AnyRequest) -> bool:
        """Do a request; whether it was done. Its outcome is in it."""
        try:
            request.result = self._through(request.plan(), request)
        except _WithdrawnError:
            return False
        except Exception as error:
            request.error = error
        return request.claim()

    def _through(self, plan: Plan[T], request: AnyRequest) -> T:
        try:
            question = next(plan)
            while True:
                question = plan.send(self._asked(question, request))
        except StopIteration as end:
            result: T = end.value
            return result

    def _asked(self, question: Ask, request: AnyRequest) -> Answer:
        """What the store answers; asked again while it is busy, and, if it can lose answers, while they are lost."""
        is_step = not isinstance(question, Look | Listing | Count)
        is_undo = request.stage is FINISHED
        pause = RETRY_FIRST_S
        if is_step:
            request.in_doubt = False  # whoever asks for another step has seen that the one before was not done
        while True:
            if is_step and not is_undo and not request.claim():
                raise _WithdrawnError
            try:
                if self._store is None:
                    self._store = thread_start.opened(self._open_store)
                return ask(self._store, question)
            except Exception as error:
                is_busy = isinstance(error, StoreTimeoutError)
                request.in_doubt |= is_step and isinstance(error, OutcomeUnknownError)
                if not (self._loses_answers or is_busy) or not request.may_try_again(error, pause):
                    if is_step and request.in_doubt and not isinstance(error, DOUBTFUL):
                        return LOOK_AGAIN
                    if request.in_doubt:
                        raise request.last_word(error) from error
                    raise
                request.retries += not is_busy
            time.sleep(pause)
            pause = min(pause * 2, RETRY_MAX_S)


class _WithdrawnError(Exception):
    """Nobody waits for it any more, and it was not begun."""


class _Reading(_Worker):
    def _do(self, message: AnyRequest | UndoMessage) -> None:
        if isinstance(message, Request):
            if message.claim() and self._carry_out(message):  # claiming says, too, that it is late
                message.finish()
            deliver([message])


class Writing(_Worker, Undoer):
    """The thread that writes."""

    def __init__(self, open_store: Callable[[], Store], inbox: Inbox, loses_answers: bool) -> None:
        _Worker.__init__(self, open_store, inbox, loses_answers)
        Undoer.__init__(self)

    def _do(self, message: AnyRequest | UndoMessage) -> None:
        if isinstance(message, UndoMessage):
            self._to_undo.append(message.request)
            self._undo_what_is_owed()
            return
        self._look_for_orphans()
        self._undo_what_is_owed()
        if self._carry_out(message) and message.finish():
            self._to_undo.append(message)
            self._undo_what_is_owed()
        self._remember([message])
        deliver([message])

    def _end(self) -> None:
        """Undo what is to be undone: there is no next write before which it would be done."""
        while not self._inbox.empty():  # given up since the end was asked for
            message = self._inbox.get()
            if isinstance(message, UndoMessage):
                self._to_undo.append(message.request)
        self._look_for_orphans()
        self._undo_what_is_owed()

    def _undo_what_is_owed(self) -> None:
        """Undo what was done for callers who are gone; what cannot be undone now is tried before the next write."""
        while self._to_undo:
            request = self._to_undo[0]
            try:
                request.run_undo(lambda plan, request=request: self._through(plan, request))  # type: ignore[misc]
            except (OutcomeUnknownError, StoreTimeoutError, StoreUnavailableError):
                return
            except Exception:  # it would fail for ever; and this thread must outlive whatever happens
                _log.exception("a cancelled operation cannot be undone")
            self._to_undo.pop(0).end_undo()


# --- sharing ---------------------------------------------------------------------------------------------------------

_running: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_carriers: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_left_behind: weakref.WeakSet[RequestCarrier] = weakref.WeakSet()
_registry = threading.Lock()


def shared(key: Hashable, make: Callable[[], T]) -> T:
    """The carrier of the store with that key, made if nobody uses one. It ends when nobody refers to it any more.

    One whose store is gone for good is left to those who have it.
    """
    with _registry:
        found: T | None = _carriers.get(key)
        if isinstance(found, RequestCarrier) and found.is_gone is not None and found.is_gone():
            _left_behind.add(found)
            found = None
        if found is None:
            found = _carriers[key] = make()
            _process_end.ensure()
        return found


def _at_exit() -> None:
    for carrier in [*_carriers.values(), *_left_behind]:
        if isinstance(carrier, ThreadCarrier):
            carrier.close(0)
    deadline = time.monotonic() + LAST_WAIT_S
    for thread in list(_running):
        thread.join(max(0.0, deadline - time.monotonic()))


def _after_fork_in_child() -> None:
    global _registry
    _registry = threading.Lock()
    _running.clear()


_process_end = AtProcessEnd(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
