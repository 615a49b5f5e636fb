"""One engine per database file and process, shared by every session object on that file.

Session objects come and go by the thousand; threads, connections and descriptors do not. An engine is made by the
first session that does something, and ends with the last one that is closed or merely dropped. Where many files are
open, only those used last have threads and connections: the others rest, and wake when something is asked of them.

`os.fork` is prepared for, not repaired afterwards: SQLite keeps a file's locks per process in memory that a child
inherits, so a child that opened the file while an inherited connection is still around would believe in locks it does
not have. Before a fork every connection is closed; both sides open their own when they next need one.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
import weakref
from collections.abc import Coroutine
from contextlib import ExitStack
from queue import Empty, SimpleQueue
from typing import Any, Protocol, TypeVar

from standfast.backends.sqlite import files
from standfast.backends.sqlite.commit_thread import CommitThread, Signal
from standfast.backends.sqlite.read_threads import Reader, Readers
from standfast.backends.sqlite.schema import Tables
from standfast.carrying.requests import Request, RequestCarrier, UndoMessage
from standfast.ground.endings import AtProcessEnd
from standfast.ground.errors import SessionClosedError, StoreUnavailableError
from standfast.ground.log_helpers import session_logger as log
from standfast.sessions.port import Plan

T = TypeVar("T")

CLOSE_WAIT_S = 5.0
# Closing waits for what is queued and for the connections to be gone, so that a closed file can be moved. A disk that
# hangs must not hang the caller for ever: after this the threads are left to end by themselves.

FORK_WAIT_S = 5.0

AWAKE_MAX = 16
# Files that keep their threads and connections while nothing is asked of them. Waking costs a thread and an open.


class Engine:
    """The threads and connections of one database file."""

    def __init__(self, path: str, mode: int | None = None) -> None:
        self.path = path
        self.users = 0
        self.inherited = False  # in a child of os.fork: this engine's threads exist only in the parent
        # Orders submitting, resting and stopping: nothing is queued behind a stop. One thread may take it twice: a task
        # whose loop was closed gives its request up when it is collected as garbage, and that may happen inside.
        self.submit_lock = threading.RLock()
        self.last_use = 0
        self.is_awake = False
        self._stopped = False
        self._abandoned_count = self._undone_count = 0
        self.file = files.OpenedFile(path, mode)
        self.writer = CommitThread(path, self.file, self._on_released, self._on_rest)
        self.readers = Readers(path, self.file)
        self._leaving: list[Reader] = []

    # --- requests ------------------------------------------------------------------------------

    def read(self, request: Request[T]) -> Coroutine[Any, Any, T]:
        """Do it on a connection that cannot write, beside the writer."""
        if request.where in self.writer.ready and self._undone_count == self._abandoned_count:
            return request.answer(self._submit_read, self.give_up)
        return self._read_later(request)

    async def _read_later(self, request: Request[T]) -> T:
        """The first question opens the file and brings its tables up to date; and one that follows a cancelled pop
        waits until the item is back at its place."""
        abandoned_count = self._abandoned_count
        passing = Request(_nothing, request.where, request.timeout_s, time.monotonic() + request.timeout_s, "open")
        await passing.answer(self.submit, self.give_up)
        self._undone_count = max(self._undone_count, abandoned_count)
        return await request.answer(self._submit_read, self.give_up)

    def submit(self, request: Request[Any] | UndoMessage) -> None:
        """Do it in a transaction that may be shared with others, invisibly; durable when it is answered."""
        with self.submit_lock:
            self._wake()
            self.writer.inbox.put(request)

    def _submit_read(self, request: Request[Any]) -> None:
        with self.submit_lock:
            self._wake()
            if not self.readers.submit(request):
                self.writer.inbox.put(request)  # behind what is to be written, which is better than not at all

    def give_up(self, request: Request[Any], owes_undo: bool) -> None:
        """Nobody waits for it any more; what was done and can be undone is."""
        if request.undo is None:
            return
        with self.submit_lock:
            self._abandoned_count += 1
            if not owes_undo:
                return
            if not self._stopped:
                self.submit(UndoMessage(request))
                return
        other = acquire(self.path)  # this engine ended between the answer and the moment nobody took it
        other.submit(UndoMessage(request))
        other.release()

    # --- resting ------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Be ready for a request; the caller holds the submit lock."""
        if self._stopped:
            raise SessionClosedError
        if self.inherited:
            raise SessionClosedError(
                "this belongs to the process that this one was forked from", "Use a session object in its place."
            )
        self.last_use = next(_uses)
        if not self.is_awake:
            self.is_awake = True
            try:
                self.writer.start("standfast-writer")
            except BaseException:  # no more threads: the next request must try again, not wait for nobody
                self.is_awake = False
                raise
            with _awake_lock:
                _awake.add(self)
                idle = sorted((one for one in _awake if one is not self), key=lambda one: one.last_use)
            for one in idle[: max(0, len(idle) + 1 - AWAKE_MAX)]:
                one.writer.inbox.put(Signal.REST)

    def _on_rest(self) -> bool:
        """The writer has nothing to do and has closed its connection: whether it may end."""
        with self.submit_lock:
            # In this order: a finalizer that puts its message now sees that nobody will read it, or we see the message.
            self.is_awake = False
            if self._stopped or not self.writer.inbox.empty():
                self.is_awake = True
                return False
            self.readers.stop()
            self._leaving = [one for one in self._leaving if not one.join(0)] + self.readers.all
            self.readers = Readers(self.path, self.file)
            with _awake_lock:
                if not self.is_awake:  # garbage may have been collected meanwhile, and have woken it
                    _awake.discard(self)
            return True

    # --- life ------------------------------------------------------------------------------

    def release(self) -> None:
        """One user less; the last one waits until every connection is closed."""
        if self.inherited:
            return
        with registry_lock:
            last = self._one_less()
        if last:
            # The writer closes behind the others: of two connections that close at once, each may take the other for
            # open, and neither would take the log away.
            deadline = time.monotonic() + CLOSE_WAIT_S
            for reader in (*self.readers.all, *self._leaving):
                reader.join(max(0.0, deadline - time.monotonic()))
            self.writer.inbox.put(Signal.STOP)
            self.join(max(0.0, deadline - time.monotonic()))

    def release_later(self) -> None:
        """One user less, from a finalizer: it may run anywhere, even inside this very engine, so it takes no lock."""
        if not self.inherited:
            self.writer.inbox.put(Signal.RELEASED)
            if not self.is_awake:
                _dropped_at_rest.put(self)

    def take_drops(self) -> None:
        """At rest, count users that were dropped; the caller has the registry's lock."""
        with self.submit_lock:
            if self.is_awake:
                return  # its thread does
            drops = 0
            while not self.writer.inbox.empty():
                drops += self.writer.inbox.get_nowait() is Signal.RELEASED
        for _ in range(drops):
            self._one_less()

    def _on_released(self) -> bool:
        with registry_lock:
            return self._one_less()

    def _one_less(self) -> bool:
        self.users -= 1
        if self.users:
            return False
        if _engines.get(self.path) is self:
            del _engines[self.path]
        _ending.add(self)
        self._stop()
        return True

    def _stop(self) -> None:
        with self.submit_lock:
            self._stopped = True
            self.readers.stop()
            with _awake_lock:
                _awake.discard(self)

    def stop(self) -> None:
        """End although sessions still use it: the process is about to exit."""
        self._stop()
        self.writer.inbox.put(Signal.STOP)

    def join(self, timeout_s: float) -> None:
        """Wait for the threads to end, which closes their connections."""
        deadline = time.monotonic() + timeout_s
        ended = [worker.join(max(0.0, deadline - time.monotonic())) for worker in self._workers()]
        if not all(ended):
            log.warning("%s is still busy after %s s; its threads end when the disk answers", self.path, timeout_s)

    def _workers(self) -> list[CommitThread | Reader]:
        return [self.writer, *self.readers.all, *self._leaving]

    # --- os.fork ------------------------------------------------------------------------------

    def is_paused(self, deadline: float, held: ExitStack) -> bool:
        """Close every connection and keep it so until `held` is closed; False, with nothing done, if one is in use."""
        with ExitStack() as busy:
            for worker in self._workers():
                if not worker.busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    return False
                busy.callback(worker.busy.release)
            held.push(busy.pop_all())
        for worker in self._workers():
            worker.disconnect()
        return True


def _nothing() -> Plan[None]:
    """Open the file and its tables; there is nothing else to do."""
    return
    yield  # makes it a plan


class FileCarrier(RequestCarrier):
    """Carries plans about one pair of tables to the engine of their file."""

    def __init__(self, engine: Engine, tables: Tables) -> None:
        self.shared, self._where = engine, tables

    def _answered(self, request: Request[T]) -> Coroutine[Any, Any, T]:
        engine = self.shared
        if request.kind == "read":
            return engine.read(request)
        if request.detached:
            engine.submit(request)
        return request.answer(engine.submit, engine.give_up)

    def _submit(self, request: Request[Any]) -> None:
        self.shared.submit(request)


# --- the engines of this process ------------------------------------------------------------------------------

registry_lock = threading.RLock()  # also orders how session objects find their engine; os.fork waits for it
_engines: dict[str, Engine] = {}
_ending: weakref.WeakSet[Engine] = weakref.WeakSet()
_unsafe_after_fork: set[str] = set()

_uses = itertools.count(1)
_awake: set[Engine] = set()
_awake_lock = threading.RLock()
_dropped_at_rest: SimpleQueue[Engine] = SimpleQueue()

memory_databases: weakref.WeakSet[_HasLock] = weakref.WeakSet()
"""Private stores in memory: a fork must not happen in the middle of an operation on one."""


def acquire(path: str, mode: int | None = None) -> Engine:
    """The engine of that file, with one user more. Made if there is none, or if the file was replaced under the old."""
    with registry_lock:
        _take_drops_at_rest()
        if path in _unsafe_after_fork:
            raise StoreUnavailableError(
                f"this process was forked while {path!r} was being written and cannot open it safely",
                "Start workers with the spawn method, or fork before the database is used.",
            )
        engine = _engines.get(path)
        if engine is not None and engine.file.was_replaced():
            _ending.add(engine)  # it serves its own sessions, which refuse, until the last of them is closed
            engine = None
        if engine is None:
            engine = _engines[path] = Engine(path, mode)
            _process_end.ensure()
        engine.users += 1
        return engine


def _take_drops_at_rest() -> None:
    while True:
        try:
            engine = _dropped_at_rest.get_nowait()
        except Empty:
            return
        engine.take_drops()


def _all_engines() -> list[Engine]:
    return [*_engines.values(), *_ending]


def _at_exit() -> None:
    engines = _all_engines()
    for engine in engines:
        engine.stop()
    for engine in engines:
        engine.join(CLOSE_WAIT_S)


class _HasLock(Protocol):
    lock: threading.Lock


_held_for_fork = ExitStack()
_busy_at_fork: list[str] = []


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_WAIT_S
    registry_lock.acquire()
    _held_for_fork.callback(registry_lock.release)
    for database in list(memory_databases):
        if database.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _held_for_fork.callback(database.lock.release)
    for engine in _all_engines():
        engine.submit_lock.acquire()
        _held_for_fork.callback(engine.submit_lock.release)
        if not engine.is_paused(deadline, _held_for_fork):
            _busy_at_fork.append(engine.path)
    _awake_lock.acquire()
    _held_for_fork.callback(_awake_lock.release)


def _give_back() -> None:
    # Emptied first: when the last of them is free, another thread may begin a fork and put its own there.
    _held_for_fork.pop_all().close()


def _after_fork_in_parent() -> None:
    _give_back()
    _busy_at_fork.clear()


def _after_fork_in_child() -> None:
    for engine in _all_engines():
        engine.inherited = True
        _kept_for_ever.append(engine)
    _engines.clear()
    _ending.clear()
    _awake.clear()
    _unsafe_after_fork.update(_busy_at_fork)
    _busy_at_fork.clear()
    _give_back()


_kept_for_ever: list[Engine] = []
# A connection that could not be closed before the fork must never be closed by the child: SQLite would take that for
# the end of the parent's use of the file.

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
_process_end = AtProcessEnd(_at_exit)
