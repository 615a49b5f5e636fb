"""Reader threads of a file, each with a connection of its own, parallel to the writer and to each other.

They are started one by one when all running readers are busy, up to a fixed number per file, whatever the number of
sessions. A read sees everything that was acknowledged before it was asked for: its snapshot begins later.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Sequence
from queue import SimpleQueue
from typing import Any

from standfast._src.base.errors import StoreUnavailableError
from standfast._src.base.logs import session_logger as log
from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.read_queries import is_one_statement
from standfast._src.sessions.backends.sqlite.sqlite_errors import translate_error
from standfast._src.sessions.backends.sqlite.sqlite_storage import Transaction
from standfast._src.sessions.backends.sqlite.statements import statements
from standfast._src.sessions.client.requests import Request, deliver
from standfast._src.sessions.client.thread_start import start_thread
from standfast._src.sessions.storage import ReadRequest, run_program

READERS_MAX = 4
# More than the cores of a small machine gain nothing: decoding needs Python's own lock.

AnyRequest = Request[Any]


def read(db: sqlite3.Connection, request: AnyRequest) -> Any:
    """Return the result of a read from a single snapshot. After an error a transaction may be open."""
    sql, plan = statements(request.where), request.plan()
    try:
        question = next(plan)
        if isinstance(question, ReadRequest) and is_one_statement(question):  # that is one instant by itself
            question = plan.send(Transaction(db, sql).look(question))
    except StopIteration as end:
        return end.value
    db.execute("BEGIN")
    result = run_program(Transaction(db, sql), plan, question)
    db.execute("COMMIT")
    return result


class Worker:
    """Thread with a connection. `busy` is held while the connection is in use; os.fork waits for the lock."""

    def __init__(self, path: str, file: database_file.OpenedFile) -> None:
        self.path, self.file = path, file
        self.busy = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._thread: threading.Thread | None = None

    def start(self, name: str) -> None:
        """Start a thread. The first request opens the file."""
        self._thread = start_thread(self._run, name)

    def join(self, timeout_s: float) -> bool:
        """Wait for the thread to end; whether it did. From inside the thread itself there is nothing to wait for."""
        thread = self._thread
        if thread is None or threading.current_thread() is thread:
            return True
        thread.join(timeout_s)
        return not thread.is_alive()

    def disconnect(self) -> None:
        """Close the connection; the next request reconnects. The caller holds `busy`."""
        db, self._db = self._db, None
        try:
            if db is not None:
                db.close()
        except sqlite3.Error as error:
            log.warning("closing %s failed: %s", self.path, error)

    def _run(self) -> None:
        raise NotImplementedError

    def _ensure_connected(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        """Open the connection for the requests if necessary."""
        raise NotImplementedError

    def _read(self, request: AnyRequest) -> None:
        """Execute and answer a read."""
        if request.claim():
            try:
                request.result = read(self._db or self._ensure_connected([request]), request)
                self.file.check(self._db)  # afterwards: a result read from a deleted file is not an answer
                request.finish()
            except Exception as error:
                self._roll_back()
                request.fail(translate_error(error, self.path))
        deliver([request])

    def _roll_back(self) -> None:
        """Roll back an open transaction; close a connection unable to do so."""
        try:
            if self._db is not None and self._db.in_transaction:
                self._db.execute("ROLLBACK")
        except sqlite3.Error as error:
            log.warning("a connection to %s was given up: %s", self.path, error)
            self.disconnect()


class Reader(Worker):
    """Reading connection with its thread."""

    def __init__(self, readers: Readers) -> None:
        super().__init__(readers.path, readers.file)
        self._readers = readers
        self.start("standfast-reader")

    def _run(self) -> None:
        with self._readers.gate:  # until the starting thread has registered it; one interrupted before starts another
            if self not in self._readers.all:
                return
        while True:
            request = self._readers.inbox.get()
            if request is None:
                break
            with self.busy:
                self._read(request)
            self._readers.release()
            del request  # or the last answer would be kept alive until the next question
        with self.busy:
            self.disconnect()

    def _ensure_connected(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        self.file.check(None)
        db = database_file.connect(self.path)
        try:
            database_file.set_up_reader(db)
        except BaseException:
            db.close()
            raise
        self._db = db
        return db


class Readers:
    """Readers of a file. A submitting caller holds the engine's `gate`, so readers are started by a single thread at a
    time.
    """

    def __init__(self, path: str, file: database_file.OpenedFile, gate: threading.RLock) -> None:
        self.path, self.file, self.gate = path, file, gate
        self.inbox: SimpleQueue[AnyRequest | None] = SimpleQueue()
        self.all: list[Reader] = []
        self._idle = 0  # how many wait for something to do; below 0: so much waits for one of them
        self._lock = threading.Lock()

    def submit(self, request: AnyRequest) -> bool:
        """Queue a read and return True; return False if there is no reader and none can be started."""
        if self._count(-1) < 0 and len(self.all) < READERS_MAX:
            try:
                self.all.append(Reader(self))
            except StoreUnavailableError:
                if not self.all:
                    self._count(1)
                    return False  # else it waits for those that are busy
            else:
                self._count(1)
        self.inbox.put(request)
        return True

    def release(self) -> None:
        """Count a reader as free again."""
        self._count(1)

    def _count(self, change: int) -> int:
        with self._lock:
            self._idle += change
            return self._idle

    def stop(self) -> None:
        """Let every reader end after its queued work."""
        for _ in self.all:
            self.inbox.put(None)
