"""An executor for any store whose methods block: a file, or a server behind a client library.

A busy store (another program has its lock) raises `StoreTimeoutError` and does not wait: until then the caller can be
cancelled, and nothing is written later (A13).

One thread writes, in the order of submission: one plan after the other, or several at once, if the store takes several
questions (`Many`). A few threads read in parallel, if the store may be shared. They belong to no event loop, so loops
may come and end (A22). Each question of a plan is one call of the store, and other processes may write in between: the
plan detects that by itself. Questions and retries are in `pipeline`.

Executors of one store are shared (`get_or_create_executor`), and end some seconds after their last user: there are as
many threads as stores, not as sessions.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar
from uuid import uuid4

from standfast._src.base.at_exit import AtExit
from standfast._src.base.errors import SessionClosedError
from standfast._src.sessions.client import thread_start
from standfast._src.sessions.client.abandoned_writes import AbandonedWrites
from standfast._src.sessions.client.lingering import LINGERING, EngineUse
from standfast._src.sessions.client.pipeline import AnyRequest, Inbox, Pipeline, Reading
from standfast._src.sessions.client.requests import CompensationMessage, RequestExecutor
from standfast._src.sessions.storage import Store

T = TypeVar("T")


LANES = 16
# More writes than these share the last lane, and then wait for each other there.

LAST_WAIT_S = 5.0
# How long the end of the process waits for submitted requests without a waiting caller.


class ThreadedExecutor(RequestExecutor):
    """Executes plans on one store. `open_store` is called in the thread of its first request.

    `is_many`: the store takes several questions at once (`Many`).
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        loses_answers: bool = False,
        readers: int = 0,
        is_many: bool = False,
    ) -> None:
        self._open_store, self._loses_answers, self._reader_count = open_store, loses_answers, readers
        self._is_many = is_many
        self._begin()

    @property
    def lane(self) -> str | None:
        """Idempotency slot of the next write; None for a store that loses no answer."""
        if self._pid != os.getpid():  # a child that used its parent's would seem to repeat, or hide what the parent did
            self._begin()
        if not self._lanes:
            return None
        return self._lanes[0 if self._under_way is None else min(len(self._under_way), LANES - 1)]

    def _begin(self) -> None:
        """Initialize, also in a child after a fork: the threads, and the resources they hold, are the parent's."""
        self._pid, self._is_closed = os.getpid(), False
        self._under_way: set[int] | None = set() if self._is_many else None  # the writes that have not ended
        base = uuid4().hex
        lanes = idempotency_slots_of(base) if self._is_many else (base,)
        self._lanes = lanes if self._loses_answers else ()
        self._gate = threading.RLock()  # taken again when a request is given up by being collected as garbage in here
        self._left = AbandonedWrites()
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
            if request.kind == "write" or self._left.wait_behind(request):
                if self._under_way is not None and request.kind == "write":
                    self._under_way.add(id(request))
                self._writes.put(request)
                if request.must_be_seen:
                    self._left.add(request)
            else:
                self._reads.put(request)

    def _give_up(self, request: AnyRequest, owes_undo: bool) -> None:
        if request.kind != "write" or self._pid != os.getpid():
            return
        with self._gate:
            self._left.add(request)
            if owes_undo:
                self._writes.put(CompensationMessage(request))

    # --- life --------------------------------------------------------------------------------------------------------

    def prepare_for_end(self) -> None:
        """Do nothing: a server needs no preparation."""

    def has_lost_store(self) -> bool:
        """Return whether the store was deleted or replaced."""
        return self.is_gone is not None and self.is_gone()

    def end_lingering(self) -> None:
        """End now if the executor lingers, and wait for the end."""
        with _registry:
            if not LINGERING.take(self):
                return
        with self._gate:
            ending, threads = self._ending, self._threads
            self._begin()  # not closed: a lease that outlives its session still needs it to be released
            ending()
        for thread in threads:
            thread.join(LAST_WAIT_S)

    def _start(self) -> None:
        jobs = [Pipeline(self._open_store, self._writes, self._loses_answers, self._under_way).run]
        jobs += [Reading(self._open_store, self._reads, self._loses_answers).run for _ in range(self._reader_count)]
        started: list[threading.Thread] = []
        for job in jobs:
            thread = thread_start.start_thread(partial(_work, self._gate, self._threads, job), "standfast-carrier")
            started.append(thread)
            _running.add(thread)
        self._threads += started

    def close(self, timeout_s: float = LAST_WAIT_S) -> None:
        """End when all submitted requests are done, and wait for that; the store is closed if it has a `close`."""
        with self._gate:
            self._is_closed = True
            if self._ending.detach() is not None:  # not called: at the end of the process a finalizer may do nothing
                _end(self._writes, self._reads, self._reader_count)
        deadline = time.monotonic() + timeout_s
        for thread in self._threads:
            if thread is not threading.current_thread() and self._pid == os.getpid():
                thread.join(max(0.0, deadline - time.monotonic()))


def _work(gate: threading.RLock, crew: list[threading.Thread], job: Callable[[], None]) -> None:
    """Execute a thread's job, if the thread is one of the crew.

    It is not if its start was interrupted, by Ctrl-C say, or another thread of the crew could not be started. The next
    request then starts all of them again, and two writing threads would execute requests in any order.
    """
    with gate:  # until the starting thread has finished
        is_awaited = threading.current_thread() in crew
    if is_awaited:
        job()


def _end(writes: Inbox, reads: Inbox, reader_count: int) -> None:
    writes.put(None)
    for _ in range(reader_count):
        reads.put(None)


def idempotency_slots_of(base: str, count: int = LANES) -> tuple[str, ...]:
    """Return an executor's idempotency slots. Concurrent writes use several, so as not to collide."""
    return tuple(f"{base}.{number}" for number in range(count))


# --- sharing ---------------------------------------------------------------------------------------------------------

_running: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
_carriers: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_left_behind: weakref.WeakSet[RequestExecutor] = weakref.WeakSet()
_registry = threading.Lock()


def get_or_create_executor(key: Hashable, make: Callable[[], T]) -> T:
    """Return the shared executor of a store, making one if necessary. The executor ends with its last reference.

    An executor whose store was deleted or replaced is not reused; existing sessions keep it.
    """
    with _registry:
        return _get_or_create(key, make)


def use_executor(key: Hashable, make: Callable[[], T], linger_s: float) -> tuple[T, EngineUse[ThreadedExecutor] | None]:
    """Return the shared executor of a store, and the use by a session object: after the last use the executor lingers.

    Over a client of the caller an executor has no threads, and does not linger.
    """
    with _registry:
        found = _get_or_create(key, make)
        return found, LINGERING.use(found, linger_s) if isinstance(found, ThreadedExecutor) else None


def _get_or_create(key: Hashable, make: Callable[[], T]) -> T:
    found: T | None = _carriers.get(key)
    if isinstance(found, RequestExecutor) and found.is_gone is not None and found.is_gone():
        _left_behind.add(found)
        found = None
    if found is None:
        found = _carriers[key] = make()
        _process_end.ensure()
    return found


def end_lingering(key: Hashable) -> None:
    """End the executor of a store now if it lingers."""
    with _registry:
        found = _carriers.get(key)
    if isinstance(found, ThreadedExecutor):
        found.end_lingering()


def _at_exit() -> None:
    for carrier in [*_carriers.values(), *_left_behind]:
        if isinstance(carrier, ThreadedExecutor):
            carrier.close(0)
    deadline = time.monotonic() + LAST_WAIT_S
    for thread in list(_running):
        thread.join(max(0.0, deadline - time.monotonic()))


def _after_fork_in_child() -> None:
    global _registry
    _registry = threading.Lock()
    _running.clear()


_process_end = AtExit(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
