"""One engine per database file and process, shared by every session object on that file.

Session objects come and go by the thousand; threads, connections and descriptors do not. An engine is made by the
first session that does something, and ends with the last one that is closed or merely dropped.

`os.fork` is prepared for, not repaired afterwards: SQLite keeps a file's locks per process in memory that a child
inherits, so a child that opened the file while an inherited connection is still around would believe in locks it does
not have. Before a fork every connection is closed; both sides open their own when they next need one.
"""

from __future__ import annotations

import atexit
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from standfast.backends.sqlite import files
from standfast.backends.sqlite.commit_thread import PutBack, Released, Stop, Writer
from standfast.backends.sqlite.faults import translated
from standfast.backends.sqlite.read_threads import Reader, Readers
from standfast.backends.sqlite.schema import Tables, migrate
from standfast.carrying.requests import Request, Undo, Work
from standfast.ground.errors import SessionClosedError, StoreTimeoutError, StoreUnavailableError

T = TypeVar("T")

log = logging.getLogger("standfast.sessions")

CLOSE_WAIT_S = 5.0
# Closing waits for what is queued and for the connections to be gone, so that a closed file can be moved. A disk that
# hangs must not hang the caller for ever: after this the threads are left to end by themselves.

FORK_WAIT_S = 5.0


class Store(Protocol):
    """What a session needs of an engine, on a file or in memory."""

    inherited: bool

    def add_user(self) -> None:
        """One user more."""
        ...

    def write(
        self, work: Work[T], tables: Tables, timeout_s: float, *, undo: Undo[T] | None = None, relaxed: bool = False
    ) -> Coroutine[Any, Any, T]:
        """Do it in a transaction of its own; durable when awaiting this returns."""
        ...

    async def read(self, work: Work[T], tables: Tables, timeout_s: float) -> T:
        """Do it on a connection that cannot write."""
        ...

    def release(self) -> None:
        """One user less; the last one closes it."""
        ...

    def release_later(self) -> None:
        """As `release`, from a place that must not wait or take a lock: a finalizer."""
        ...


class Engine:
    """The threads and connections of one database file."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.users = 0
        self.inherited = False  # in a child of os.fork: this engine's threads exist only in the parent
        self.gate = threading.Lock()  # orders submitting and stopping: nothing is queued behind a stop
        self._stopped = False
        self._given_up = self._made_up_for = 0
        self.writer = Writer(path, self._on_released)
        self.readers = Readers(path, self._file_is_same)
        self.writer.start()

    # --- requests ------------------------------------------------------------------------------

    def write(
        self, work: Work[T], tables: Tables, timeout_s: float, *, undo: Undo[T] | None = None, relaxed: bool = False
    ) -> Coroutine[Any, Any, T]:
        """Do it in a transaction that may be shared with others, invisibly; durable when awaiting this returns."""
        request = Request(work, tables, timeout_s, undo=undo, relaxed=relaxed)
        return request.answer(self._submit_write, self._give_up)

    async def read(self, work: Work[T], tables: Tables, timeout_s: float) -> T:
        """Do it on a connection that cannot write, beside the writer."""
        given_up = self._given_up
        if tables not in self.writer.ready or self._made_up_for < given_up:
            # The first question opens the file and brings its tables up to date; and one that follows a cancelled pop
            # waits until the item is back at its place.
            passing = Request(_nothing, tables, timeout_s, kind="open")
            await passing.answer(self._submit_write, self._give_up)
            self._made_up_for = max(self._made_up_for, given_up)
        request = Request(work, tables, timeout_s, kind="read")
        return await request.answer(self._submit_read, self._give_up)

    def _submit_write(self, request: Request[Any]) -> None:
        with self.gate:
            self._check_going()
            self.writer.inbox.put(request)

    def _submit_read(self, request: Request[Any]) -> None:
        with self.gate:
            self._check_going()
            self.readers.submit(request)

    def _check_going(self) -> None:
        if self._stopped:
            raise SessionClosedError("the session was closed", "Open a new session object for this id.")

    def _give_up(self, request: Request[Any], owes_undo: bool) -> None:
        if request.undo is None:
            return
        with self.gate:
            self._given_up += 1
            if not owes_undo:
                return
            if not self._stopped:
                self.writer.inbox.put(PutBack(request))
                return
        other = acquire(self.path)  # this engine ended between the answer and the moment nobody took it
        other.writer.inbox.put(PutBack(request))
        other.release()

    def _file_is_same(self) -> bool:
        if files.identity(self.path) != self.writer.file:
            self.writer.replaced = True
        return not self.writer.replaced

    # --- life ------------------------------------------------------------------------------

    def add_user(self) -> None:
        """One user more."""
        with registry_lock:
            self.users += 1

    def release(self) -> None:
        """One user less; the last one waits until every connection is closed."""
        if self.inherited:
            return
        with registry_lock:
            last = self._one_less()
        if last:
            self.writer.inbox.put(Stop())
            self.join(CLOSE_WAIT_S)

    def release_later(self) -> None:
        """One user less, from a finalizer: it may run anywhere, even inside this very engine, so it takes no lock."""
        if not self.inherited:
            self.writer.inbox.put(Released())

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
        with self.gate:
            self._stopped = True
            self.readers.stop()
        return True

    def stop(self) -> None:
        """End although sessions still use it: the process is about to exit."""
        with self.gate:
            self._stopped = True
            self.readers.stop()
        self.writer.inbox.put(Stop())

    def join(self, timeout_s: float) -> None:
        """Wait for the threads to end, which closes their connections."""
        deadline = time.monotonic() + timeout_s
        ended = [worker.join(max(0.0, deadline - time.monotonic())) for worker in self._workers()]
        if not all(ended):
            log.warning("%s is still busy after %s s; its threads end when the disk answers", self.path, timeout_s)

    def _workers(self) -> list[Writer | Reader]:
        return [self.writer, *self.readers.all]

    # --- os.fork ------------------------------------------------------------------------------

    def pause(self, deadline: float) -> list[threading.Lock]:
        """Close every connection and keep it so; gives the locks to give back. Raises TimeoutError if one is in use."""
        held: list[threading.Lock] = []
        for worker in self._workers():
            if not worker.busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
                for lock in held:
                    lock.release()
                raise TimeoutError
            held.append(worker.busy)
        for worker in self._workers():
            worker.disconnect()
        return held


def _nothing(db: sqlite3.Connection) -> None:
    """Open the file and its tables; there is nothing else to do."""


class MemoryStore:
    """A private database in memory: a lock and no thread. It is opened when first used."""

    def __init__(self) -> None:
        self.users = 1
        self.lock = threading.Lock()
        self.inherited = False  # a database in memory is copied by os.fork and is the child's own
        self._db: sqlite3.Connection | None = None
        _memory_stores.add(self)

    async def write(
        self, work: Work[T], tables: Tables, timeout_s: float, *, undo: Undo[T] | None = None, relaxed: bool = False
    ) -> T:
        """Do it at once. There is no await inside, so nothing can be cancelled half-way or left untaken."""
        if not self.lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
            raise StoreTimeoutError(
                f"the store in memory was busy for {timeout_s} s; nothing was done", "Try again, or raise timeout_s."
            )
        try:
            return self._transact(work, tables)
        finally:
            self.lock.release()

    async def read(self, work: Work[T], tables: Tables, timeout_s: float) -> T:
        """Do it at once."""
        return await self.write(work, tables, timeout_s)

    def _transact(self, work: Work[T], tables: Tables) -> T:
        try:
            db = self._connected(tables)
            db.execute("BEGIN")
            try:
                result = work(db)
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
            return result
        except sqlite3.Error as error:
            raise translated(error, ":memory:") from error

    def _connected(self, tables: Tables) -> sqlite3.Connection:
        if self._db is None:
            self._db = files.connect(":memory:")
            self._db.execute("BEGIN")
            migrate(self._db, tables)
            self._db.execute("COMMIT")
        return self._db

    def add_user(self) -> None:
        """One user more."""
        with self.lock:
            self.users += 1

    def release(self) -> None:
        """One user less; with the last one everything is gone."""
        with self.lock:
            self._one_less()

    def _one_less(self) -> None:
        self.users -= 1
        if not self.users and self._db is not None:
            self._db.close()
            self._db = None

    def release_later(self) -> None:
        """One user less, from a finalizer. If the store is in use, it goes with whoever uses it."""
        if self.lock.acquire(blocking=False):
            try:
                self._one_less()
            finally:
                self.lock.release()


# --- the engines of this process ------------------------------------------------------------------------------

registry_lock = threading.RLock()  # also orders how session objects find their engine; os.fork waits for it
_engines: dict[str, Engine] = {}
_ending: weakref.WeakSet[Engine] = weakref.WeakSet()
_memory_stores: weakref.WeakSet[MemoryStore] = weakref.WeakSet()
_unsafe_after_fork: set[str] = set()


def acquire(path: str) -> Engine:
    """The engine of that file, with one user more. Made if there is none, or if the file was replaced under the old."""
    with registry_lock:
        if path in _unsafe_after_fork:
            raise StoreUnavailableError(
                f"this process was forked while {path!r} was being written and cannot open it safely",
                "Start workers with the spawn method, or fork before the database is used.",
            )
        engine = _engines.get(path)
        if engine is not None and engine.writer.replaced:
            _ending.add(engine)  # it serves its own sessions, which refuse, until the last of them is closed
            engine = None
        if engine is None:
            engine = _engines[path] = Engine(path)
        engine.users += 1
        return engine


def _all_engines() -> list[Engine]:
    return [*_engines.values(), *_ending]


def _at_exit() -> None:
    engines = _all_engines()
    for engine in engines:
        engine.stop()
    for engine in engines:
        engine.join(CLOSE_WAIT_S)


class AnyLock(Protocol):
    """A lock of either kind."""

    def release(self) -> None:
        """Let go of it."""
        ...


_held_for_fork: list[AnyLock] = []
_busy_at_fork: list[str] = []


def _hold(locks: Iterable[AnyLock]) -> None:
    _held_for_fork.extend(locks)


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_WAIT_S
    registry_lock.acquire()
    _hold([registry_lock])
    for store in list(_memory_stores):
        if store.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _hold([store.lock])
    for engine in _all_engines():
        engine.gate.acquire()
        _hold([engine.gate])
        try:
            _hold(engine.pause(deadline))
        except TimeoutError:
            _busy_at_fork.append(engine.path)


def _give_back() -> None:
    # Emptied first: when the last of them is free, another thread may begin a fork and put its own in the list.
    held = list(_held_for_fork)
    _held_for_fork.clear()
    for lock in reversed(held):
        lock.release()


def _after_fork_in_parent() -> None:
    _give_back()
    _busy_at_fork.clear()


def _after_fork_in_child() -> None:
    for engine in _all_engines():
        engine.inherited = True
        _kept_for_ever.append(engine)
    _engines.clear()
    _ending.clear()
    _unsafe_after_fork.update(_busy_at_fork)
    _busy_at_fork.clear()
    _give_back()


_kept_for_ever: list[Engine] = []
# A connection that could not be closed before the fork must never be closed by the child: SQLite would take that for
# the end of the parent's use of the file.

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
atexit.register(_at_exit)
