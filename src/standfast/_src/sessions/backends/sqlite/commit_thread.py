"""The thread that writes: it takes whatever is queued as one group, while a few readers go on beside it.

It begins with the first request. It rests, with its connection closed, where other files need threads more, and a
further request wakes it; it ends once, when it was told to stop.
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
# A checkpoint that is due waits for a pause of this length. That the queue is empty just after an answer was given says
# nothing: whoever got it needs a moment to ask again, and would wait for the checkpoint's own syncs.

LAST_UNDO_WAIT_S = 30.0
# How long an engine that ends goes on trying to undo what cancelled callers left, while another program has the file.

CLOSE_WAIT_S = 5.0
# Closing waits for what is queued and for the connections to be gone, so that a closed file can be moved. A disk that
# hangs must not hang the caller for ever: after this the threads are left to end by themselves.

AWAKE_MAX = 16
# Files that keep their threads and connections while nothing is asked of them. Waking costs a thread and an open.


class Signal(Enum):
    """A message to the writer that asks for nothing to be stored."""

    STOP = "finish what is queued and end"
    REST = "other files need threads and descriptors: rest when there is nothing to do"


Message = AnyRequest | CompensationMessage | Signal


class CommitThread(GroupCommit):
    """One file's writing connection, the thread that uses it, and the readers beside it."""

    def __init__(self, path: str, mode: int | None = None) -> None:
        super().__init__(path, mode)
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        # Orders submitting, resting and ending: nothing is queued where nobody takes it. One thread may take it twice:
        # a task whose loop was closed gives its request up when it is collected as garbage, and that may happen inside.
        self.gate = threading.RLock()
        self.is_stopped = False
        self._is_awake = False
        self._last_use = 0
        self._pid = os.getpid()
        self._readers = Readers(path, self.file, self.gate)
        self._leaving: list[Reader] = []
        self._left = AbandonedWrites()

    # --- what is asked ------------------------------------------------------------------------------

    def submit(self, request: AnyRequest) -> None:
        """Do it in a transaction that may be shared with others, invisibly; durable when it is answered."""
        with self.gate:  # acquire() and try would be half of it, and Ctrl-C between the two would leave it taken
            self._be_ready()
            self.inbox.put(request)

    def submit_detached(self, request: AnyRequest) -> None:
        """Do it though nobody may wait for it; what is read from now on sees it (A13)."""
        with self.gate:
            self.submit(request)
            if request.must_be_seen:
                self._left.add(request)

    def submit_read(self, request: AnyRequest) -> None:
        """Do it on a connection that cannot write, beside the writer.

        The writer does it where there are no tables yet, behind a write that nobody waits for and that may still be
        done or undone, and where no thread can be had: behind what is to be written, which is better than not at all.
        """
        with self.gate:
            self._be_ready()
            is_behind = self._left.wait_behind(request)
            if is_behind or request.where not in self._ready or not self._readers.submit(request):
                self.inbox.put(request)

    def give_up(self, request: AnyRequest, owes_undo: bool) -> None:
        """Nobody waits for it any more; what was done and can be undone is."""
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
        if self.is_stopped:  # between the answer and the moment nobody took it: it begins again, for this alone
            self.join(CLOSE_WAIT_S)

    def _be_ready(self) -> None:
        if self.is_stopped:
            raise SessionClosedError
        self._last_use = next(_uses)
        if not self._is_awake:
            self._wake()

    # --- life ------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Have a thread; the caller has the gate."""
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
        """End when all that was submitted is done; nothing more is taken."""
        with self.gate:
            self.is_stopped = True
            self._dismiss_readers()
            self.inbox.put(Signal.STOP)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; whether it did. Then all connections are closed."""
        ended = super().join(timeout_s)
        if not ended:
            log.warning("%s is still busy after %s s; its threads end when the disk answers", self.path, timeout_s)
        return ended

    def is_paused(self, deadline: float, held: ExitStack) -> bool:
        """Close every connection and keep it so until `held` is closed; False, with nothing done, if one is in use."""
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
        with self.gate:  # until whoever starts it has said so; interrupted before, it starts another
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
                    self.stop()  # behind what others queued before it was known that nobody uses it any more
            if requests or self._to_undo or not messages:
                with self.busy:
                    self._serve(requests)
            # A request knows its session. Kept here until the next one arrives, it would keep a session that nobody
            # else knows any more, and with it this thread.
            del messages, requests

    def _has_ended(self) -> bool:
        """Close the connection and end, if nothing is queued and nothing may have to be undone."""
        with self.busy:
            self._look_for_orphans()
            if self.is_stopped:
                self._undo_at_last()
            elif self._to_undo or self._untaken:
                return False
            if not self.inbox.empty():
                return False
        if self.is_stopped:
            # The writer closes behind the others: of two connections that close at once, each may take the other for
            # open, and neither would take the log away.
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
        """Undo what cancelled callers left, before the thread ends, even if another program has the file now."""
        patience = time.monotonic() + LAST_UNDO_WAIT_S
        while self._undo(()) is not None:
            if self.file.is_lost or time.monotonic() > patience:
                log.error("%d cancelled operations on %s could not be undone", len(self._to_undo), self.path)
                self._to_undo.clear()
                return
            self._pause()

    def _next_messages(self) -> list[Message]:
        """What was queued since; nothing if for a while there was nothing and there is something else to do."""
        inbox, wait_s = self.inbox, None
        if self._to_undo:
            wait_s = self._undo_wait_s
        elif self._checkpoints.is_due and self._db is not None:
            wait_s = IDLE_S
        try:
            messages = [inbox.get(timeout=wait_s)]
        except Empty:
            return []
        # A read is queued here while it stands behind a write that has begun. Whoever queues it holds the gate, so that
        # the write cannot end in between and a later one, which may wait for another program's lock, go without the read.
        with self.gate:
            while not inbox.empty() and len(messages) < GROUP_MAX:  # this thread alone takes from it
                messages.append(inbox.get_nowait())
        return messages


_uses = itertools.count(1)
awake: set[CommitThread] = set()
awake_lock = threading.RLock()
unsafe_after_fork: set[str] = set()
