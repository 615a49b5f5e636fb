"""The writer thread of a file: it commits all queued requests as one group, while a few readers run beside it.

The first request starts it. It rests, with its connection closed, while other files need the threads, and the next
request wakes it. It ends once, after a stop signal.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from contextlib import ExitStack
from enum import Enum
from queue import Empty, SimpleQueue

from standfast._src.base.errors import SessionClosedError, StoreUnavailableError
from standfast._src.base.logs import session_logger as log
from standfast._src.sessions.backends.sqlite.group_commit import GroupCommit
from standfast._src.sessions.backends.sqlite.read_threads import AnyRequest, Reader, Readers
from standfast._src.sessions.client.abandoned_writes import AbandonedWrites
from standfast._src.sessions.client.requests import CompensationMessage, Request

GROUP_MAX = 256
# Bounds how long the write lock is held for one group, so that other processes get their turn.

IDLE_S = 0.02
# A due checkpoint waits for a pause of this length. An empty queue just after an answer proves nothing: the caller
# needs a moment for its next request, which would then wait for the checkpoint's own syncs.

LAST_UNDO_WAIT_S = 30.0
# How long an ending engine retries the compensation of cancelled requests while another program holds the lock.

CLOSE_WAIT_S = 5.0
# Closing waits for queued requests and closed connections, so that a closed file can be moved. A disk that hangs must
# not block the caller for ever: after this time the threads end by themselves.

AWAKE_MAX = 16
# The number of files that keep threads and connections while idle. Waking one costs a thread and an open.


class Signal(Enum):
    """Message to the writer that stores nothing."""

    STOP = "finish what is queued and end"
    REST = "other files need threads and descriptors: rest when there is nothing to do"


class Fold:
    """Message to the writer: fold the log into the file."""

    def __init__(self) -> None:
        self.done = threading.Event()


Message = AnyRequest | CompensationMessage | Fold | Signal


class CommitThread(GroupCommit):
    """One file's writing connection, its thread, and the reader threads."""

    def __init__(self, path: str, mode: int | None = None) -> None:
        super().__init__(path, mode)
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        # Orders submitting, resting and ending: nothing is queued without a thread that takes it. Reentrant: a task
        # whose loop was closed abandons its request in garbage collection, possibly inside the gate.
        self.gate = threading.RLock()
        self.is_stopped = False
        self._is_awake = False
        self._last_use = 0
        self._pid = os.getpid()
        self._readers = Readers(path, self.file, self.gate)
        self._leaving: list[Reader] = []
        self._left = AbandonedWrites()

    # --- requests ------------------------------------------------------------------------------

    def submit(self, request: AnyRequest) -> None:
        """Queue a request for a transaction that may hold further requests; it is durable when answered."""
        with self.gate:  # acquire() and try would be half of it, and Ctrl-C between the two would leave it taken
            self._be_ready()
            self.inbox.put(request)

    def submit_detached(self, request: AnyRequest) -> None:
        """Queue a write without a waiting caller; later reads see it (A13)."""
        with self.gate:
            self.submit(request)
            if request.must_be_seen:
                self._left.add(request)

    def submit_read(self, request: AnyRequest) -> None:
        """Queue a read for a connection that cannot write, beside the writer.

        The writer thread executes it in three cases: the tables do not exist yet; an abandoned write may still be done
        or compensated; no reader thread can be started, and a read behind the queued writes is better than none.
        """
        with self.gate:
            self._be_ready()
            is_behind = self._left.wait_behind(request)
            if is_behind or request.where not in self._ready or not self._readers.submit(request):
                self.inbox.put(request)

    def give_up(self, request: AnyRequest, owes_undo: bool) -> None:
        """Abandon a request; a write that was done is compensated if it can be."""
        if request.kind != "write" or self._pid != os.getpid():
            return
        with self.gate:
            if request.undo is not None or request.is_left:
                self._left.add(request)
            if not owes_undo:
                return
            self.inbox.put(CompensationMessage(request))
            if self.is_stopped:
                self.inbox.put(Signal.STOP)
            self._wake()
        if (
            self.is_stopped
        ):  # stopped after the answer and before the abandonment: the thread starts again for this alone
            self.join(CLOSE_WAIT_S)

    def _be_ready(self) -> None:
        if self.is_stopped:
            raise SessionClosedError
        self._last_use = next(_uses)
        if not self._is_awake:
            self._wake()

    # --- thread ------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Start a thread if there is none; the caller holds the gate."""
        if self._is_awake:
            return
        if self.path in unsafe_after_fork:
            raise StoreUnavailableError(
                f"this process was forked while {self.path!r} was being written and cannot open it safely",
                "Start workers with the spawn method, or fork before the database is used.",
            )
        self.start("standfast-writer")
        self._is_awake = True
        with awake_lock:
            awake.add(self)
            idle = sorted((one for one in awake if one is not self), key=lambda one: one._last_use)
        for one in idle[: max(0, len(idle) + 1 - AWAKE_MAX)]:
            one.inbox.put(Signal.REST)

    def stop(self) -> None:
        """End the thread after all submitted requests; further ones are refused."""
        with self.gate:
            self.is_stopped = True
            self._dismiss_readers()
            self.inbox.put(Signal.STOP)

    def fold(self) -> Fold | None:
        """Queue the folding of the log into the file; None without a connection, and so without a log."""
        message = Fold()
        with self.gate:
            if not self._is_awake or self.is_stopped:
                return None
            self.inbox.put(message)
        return message

    def wait_for_fold(self, timeout_s: float) -> None:
        """Wait until queued requests are done and the log is folded into the file, if it can be."""
        message = self.fold()
        if message is not None and not message.done.wait(timeout_s):
            log.warning("%s is still busy after %s s; its log is folded when the disk answers", self.path, timeout_s)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end and return True if it did; all connections are then closed."""
        ended = super().join(timeout_s)
        if not ended:
            log.warning("%s is still busy after %s s; its threads end when the disk answers", self.path, timeout_s)
        return ended

    def is_paused(self, deadline: float, held: ExitStack) -> bool:
        """Close every connection until `held` is closed; return False, with nothing done, if one is in use."""
        workers: list[CommitThread | Reader] = [self, *self._readers.all, *self._leaving]
        with ExitStack() as busy:
            for worker in workers:
                if not worker.busy.acquire(timeout=max(0.0, deadline - time.monotonic())):
                    return False
                busy.callback(worker.busy.release)
            held.push(busy.pop_all())
        for worker in workers:
            worker.disconnect()
        return True

    def _dismiss_readers(self) -> None:
        self._readers.stop()
        self._leaving = [one for one in self._leaving if not one.join(0)] + self._readers.all
        self._readers = Readers(self.path, self.file, self.gate)

    def _run(self) -> None:
        with self.gate:  # until the starting thread has registered it; an interrupted start begins another thread
            if not self._is_awake or self._thread is not threading.current_thread():
                return
        is_to_end = False
        while not (is_to_end and self._has_ended()):
            messages = self._next_messages()
            requests = [message for message in messages if type(message) is Request]
            if len(requests) < len(messages):
                self._to_undo += [message.request for message in messages if isinstance(message, CompensationMessage)]
                is_to_end = is_to_end or Signal.STOP in messages or Signal.REST in messages
                if Signal.STOP in messages and not self.is_stopped:
                    self.stop()  # behind requests that were queued before the last session was dropped
            if requests or self._to_undo or not messages:
                with self.busy:
                    self._serve(requests)
            for fold in [message for message in messages if isinstance(message, Fold)]:
                with self.busy:
                    self._serve_fold()
                fold.done.set()
            # A request refers to its session. Kept until the next request arrives, it would keep a dropped session, and
            # with it this thread.
            del messages, requests

    def _has_ended(self) -> bool:
        """Close the connection and return True if nothing is queued and nothing is left to compensate."""
        with self.busy:
            self._look_for_orphans()
            if self.is_stopped:
                self._undo_at_last()
            elif self._to_undo or self._untaken:
                return False
            if not self.inbox.empty():
                return False
        if self.is_stopped:
            # The writer closes after the readers: two connections that close at once may each take the other for
            # open, and neither would remove the log.
            deadline = time.monotonic() + CLOSE_WAIT_S
            for reader in self._leaving:
                reader.join(max(0.0, deadline - time.monotonic()))
        with self.busy:
            self.disconnect()
        with self.gate:
            if not self.inbox.empty():
                return False
            self._dismiss_readers()
            self._is_awake = False
            with awake_lock:
                awake.discard(self)
            return True

    def _undo_at_last(self) -> None:
        """Compensate cancelled requests before the thread ends, even while another program holds the lock."""
        patience = time.monotonic() + LAST_UNDO_WAIT_S
        while self._undo(()) is not None:
            if self.file.is_lost or time.monotonic() > patience:
                log.error("%d cancelled operations on %s could not be undone", len(self._to_undo), self.path)
                self._to_undo.clear()
                return
            self._pause()

    def _next_messages(self) -> list[Message]:
        """Return the queued messages; none after a pause in which other work is due."""
        inbox, wait_s = self.inbox, None
        if self._to_undo:
            wait_s = self._undo_wait_s
        elif self._checkpoints.is_due and self._db is not None:
            wait_s = IDLE_S
        try:
            messages = [inbox.get(timeout=wait_s)]
        except Empty:
            return []
        # A read is queued here if an abandoned write has begun. The caller holds the gate from that check to the put.
        # So the next group has the read, and no later write, which may wait for another program's lock, precedes it.
        with self.gate:
            while not inbox.empty() and len(messages) < GROUP_MAX:  # this thread alone takes from it
                messages.append(inbox.get_nowait())
        return messages


_uses = itertools.count(1)
awake: set[CommitThread] = set()
awake_lock = threading.RLock()
unsafe_after_fork: set[str] = set()
