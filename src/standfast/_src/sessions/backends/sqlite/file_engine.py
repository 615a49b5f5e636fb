"""Engine of a database file, shared by every session object of the process on that file.

Session objects come and go by the thousand; threads, connections and descriptors do not. An engine is made by the first
session that does something. After the last one that is closed or merely dropped it lingers for some seconds
(`lingering`), with its log folded into the file, which may then be copied or moved. Where many files are open, only
those used last have threads and connections: the rest sleep, and wake with the next request.

`os.fork` is prepared for, not repaired afterwards: SQLite keeps a file's locks per process in memory that a child
inherits, so a child that opened the file while an inherited connection is still around would believe in locks it does
not have. Before a fork every connection is closed; both sides open their own when they next need one.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Coroutine
from contextlib import ExitStack, suppress
from typing import Any, Protocol, TypeVar

from standfast._src.base.at_exit import AtExit
from standfast._src.sessions.backends.sqlite.commit_thread import (
    CLOSE_WAIT_S,
    CommitThread,
    Signal,
    awake,
    awake_lock,
    unsafe_after_fork,
)
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.client.lingering import LINGERING, EngineUse
from standfast._src.sessions.client.requests import Request, RequestExecutor

T = TypeVar("T")

FORK_WAIT_S = 5.0

FOLDS_AT_CLOSE = 16
# A script that fills some sessions, one after the other, may copy the file at once. A service that closes a session in
# each request is past this number in a moment; a checkpoint for each of them would cost more than the turn.


class FileEngine:
    """Threads and state shared by the sessions of a file. The threads hold no reference to the engine, and end with its
    last user.
    """

    def __init__(self, path: str, mode: int | None) -> None:
        self.users: weakref.WeakSet[FileExecutor] = weakref.WeakSet()
        self.reuse_count = 0  # by session objects after it had lingered
        self._path, self._mode = path, mode
        self.begin()

    def begin(self) -> None:
        """Create the threads, at first and in a child of `os.fork`, which does not inherit the parent's threads."""
        self.threads = CommitThread(self._path, self._mode)
        _all_threads.add(self.threads)
        # From a finalizer, which may run anywhere, even in code that holds the gate: so it takes no lock.
        weakref.finalize(self, self.threads.inbox.put, Signal.STOP).atexit = False

    @property
    def path(self) -> str:
        """The file's real path, as of the first use: later lookups of each folder would cost 6 % of a run."""
        return self._path

    @property
    def is_gone(self) -> bool:
        """True if the engine serves only its present users: its threads are stopped, or the file was replaced."""
        return self.threads.is_stopped or self.has_lost_store()

    def has_lost_store(self) -> bool:
        """Return whether the file was deleted, replaced or renamed."""
        return self.threads.file.was_replaced()

    def prepare_for_end(self) -> None:
        """Fold the log into the file soon: an operator may copy the file alone."""
        self.threads.fold()

    def end_lingering(self) -> None:
        """Close every connection now if the engine lingers."""
        with registry_lock:
            is_unused = LINGERING.take(self) and not self.users
            if is_unused:
                self.threads.fold()  # also the log of a lost file: SQLite would fold it into the file in its place
                self.threads.stop()
        if is_unused:
            self.threads.join(CLOSE_WAIT_S)


class FileExecutor(RequestExecutor):
    """Executor of plans about a pair of tables, over the engine of their file."""

    def __init__(self, path: str, tables: Tables, mode: int | None = None, linger_s: float = 0.0) -> None:
        self._where = tables
        with registry_lock:
            found = _engines.get(path)
            if found is not None and not found.users:
                found.reuse_count += 1
                if found.threads.file.was_written_elsewhere():
                    found.end_lingering()
            if found is None or found.is_gone:
                _end_lost_engines()
                found = _engines[path] = FileEngine(path, mode)
                _process_end.ensure()
            self.engine = found
            found.users.add(self)
            self._use: EngineUse[FileEngine] | None = LINGERING.use(found, linger_s)

    def _send_request(self, request: Request[T]) -> Coroutine[Any, Any, T]:
        threads = self.engine.threads
        if request.detached:
            threads.submit_detached(request)
        return request.answer(threads.submit_read if request.kind == "read" else threads.submit, threads.give_up)

    def _submit(self, request: Request[Any]) -> None:
        self.engine.threads.submit(request)

    def close(self) -> None:
        """End this use of the engine.

        The last user waits until the file is complete without its log, if the engine ends, or lingers for one of the
        first times. In a service with a session object per request the log is folded in the first pause instead.
        """
        threads = self.engine.threads
        with registry_lock:
            use, self._use = self._use, None
            self.engine.users.discard(self)
            if use is None or self.engine.users:
                return
            lingers = use.linger_s > 0 and not self.engine.is_gone
            if not lingers:
                use.linger_s = 0
                threads.stop()
        if not lingers:
            threads.join(CLOSE_WAIT_S)
        elif self.engine.reuse_count < FOLDS_AT_CLOSE:
            threads.wait_for_fold(CLOSE_WAIT_S)


def end_lingering(path: str) -> None:
    """Close every connection to a file now if the engine lingers."""
    with registry_lock:
        found = _engines.get(path)
    if found is not None:
        found.end_lingering()


def _end_lost_engines() -> None:
    """End the lingering engines of deleted, replaced and renamed files, before a file is opened under its new name.

    Two connections of a process to one file under two names would share SQLite's index of the log, and not the log.
    """
    for engine in LINGERING.engines():
        if isinstance(engine, FileEngine) and engine.has_lost_store():
            engine.end_lingering()


# --- the engines of this process ------------------------------------------------------------------------------

registry_lock = LINGERING.lock  # also orders how session objects find their engine; os.fork waits for it
_engines: weakref.WeakValueDictionary[str, FileEngine] = weakref.WeakValueDictionary()
_all_threads: weakref.WeakSet[CommitThread] = weakref.WeakSet()

memory_databases: weakref.WeakSet[_HasLock] = weakref.WeakSet()
"""Private stores in memory: a fork must not happen in the middle of an operation on one."""


def _at_exit() -> None:
    with registry_lock:
        found = list(_all_threads)
    for threads in found:
        threads.stop()
    for threads in found:
        threads.join(CLOSE_WAIT_S)


class _HasLock(Protocol):
    lock: threading.Lock


class _HeldForFork(threading.local):
    """Locks held by a forking thread. Of its own: a second thread waits for its first lock meanwhile."""

    def __init__(self) -> None:
        self.stack = ExitStack()


_held_for_fork = _HeldForFork()
_busy_at_fork: list[str] = []


def _before_fork() -> None:
    deadline = time.monotonic() + FORK_WAIT_S
    _hold(registry_lock)
    found = list(_all_threads)
    # Until each is paused: Python forks all the same if this is interrupted, by Ctrl-C while it waits for a commit say.
    _busy_at_fork.extend(threads.path for threads in found)
    for database in list(memory_databases):
        if database.lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            _held_for_fork.stack.callback(database.lock.release)
    for threads in found:
        _hold(threads.gate)
        if threads.is_paused(deadline, _held_for_fork.stack):
            _busy_at_fork.remove(threads.path)
    _hold(awake_lock)


def _hold(lock: threading.RLock) -> None:
    _held_for_fork.stack.callback(_let_go, lock)  # first: an interrupt between the two must not leave it taken
    lock.acquire()


def _let_go(lock: threading.RLock) -> None:
    with suppress(RuntimeError):  # it was never taken
        lock.release()


def _give_back() -> None:
    _held_for_fork.stack.pop_all().close()


def _after_fork_in_parent() -> None:
    _busy_at_fork.clear()  # first: when the last lock is free, another thread may begin a fork
    _give_back()


def _after_fork_in_child() -> None:
    for threads in list(_all_threads):
        threads.is_stopped = True
        _kept_for_ever.append(threads)
    _all_threads.clear()
    awake.clear()
    unsafe_after_fork.update(_busy_at_fork)
    _busy_at_fork.clear()
    for engine in list(_engines.values()):
        engine.begin()
    _give_back()


_kept_for_ever: list[CommitThread] = []
# A connection that could not be closed before the fork must never be closed by the child: SQLite would take that for
# the end of the parent's use of the file.

if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
_process_end = AtExit(_at_exit)
