"""Group commit: requests become transactions of the writing connection, each durable with a single sync.

First what must be undone, each alone; then every waiting request, in the order it came, as one group. Grouping is
invisible (A10). A request that refuses by a rule has written nothing, so the rest of the group continues; anything that
fails after a write, or in the commit, rolls the group back, and each request is then done again alone.

A request is claimed only once the transaction holds the write lock. Until then its caller can withdraw it, so an
operation never waits for another program's lock beyond its deadline and is never done later by surprise (A13).

A commit that SQLite says has failed did not happen for any reader, so doing it again cannot double anything (A8). The
one doubt is what a crash would recover if the disk failed to sync, and that is reported as an unknown outcome.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from standfast._src.base.errors import OutcomeUnknownError, StoreUnavailableError
from standfast._src.base.logs import session_logger as log
from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.read_threads import AnyRequest, Worker
from standfast._src.sessions.backends.sqlite.request_group import run_group
from standfast._src.sessions.backends.sqlite.schema import Tables, is_current, migrate, version_of
from standfast._src.sessions.backends.sqlite.sqlite_errors import is_busy, is_lasting, replaced_file, translate_error
from standfast._src.sessions.backends.sqlite.sqlite_storage import Transaction
from standfast._src.sessions.backends.sqlite.statements import statements
from standfast._src.sessions.client.abandoned_writes import may_meet
from standfast._src.sessions.client.requests import QUEUED, Compensator, claim_all, deliver, finish_all
from standfast._src.sessions.storage import run_program

LOCK_PAUSE_S = 0.001
COMMIT_WAIT_S = 5.0
UNDO_RETRY_S = 1.0

T = TypeVar("T")


class GroupCommit(Worker, Compensator):
    """A file's writing connection, with the execution of its requests."""

    def __init__(self, path: str, mode: int | None) -> None:
        Worker.__init__(self, path, database_file.OpenedFile(path, mode))
        Compensator.__init__(self)
        self._ready: set[Tables] = set()
        self._ready_at_fold: tuple[int, frozenset[Tables]] | None = None
        self._undo_wait_s = 0.0
        self._known: Transaction | None = None  # what the last transaction left behind
        self._known_at = 0
        self._lock = database_file.CheckpointLock(path)
        self._checkpoints = database_file.Checkpoints(self.file, self._lock)

    def disconnect(self) -> None:
        """Close the connection; the next group reconnects. The caller holds `busy`."""
        self._known = None
        self.file.on_close()
        super().disconnect()
        self._lock.close()

    def _serve(self, requests: Sequence[AnyRequest]) -> None:
        """Execute and answer the requests, whatever happens: callers wait for the thread, which must survive every
        error.
        """
        todo = [request for request in requests if request.stage is QUEUED]
        try:
            if self._untaken:
                self._look_for_orphans()
            try:
                self._commit_group(self._prepare_tables(todo))
            except Exception as error:
                self._roll_back()
                self._fail(todo, error)
            deliver(todo)
            self._remember(todo)
            if self._db is not None:
                self._checkpoints.look(self._db, idle=not requests)
        except Exception as error:
            log.exception("the writer of %s failed; its connection is opened anew", self.path)
            self._fail(todo, error)
            deliver(todo)
            self.disconnect()

    def _serve_fold(self) -> None:
        """Undo cancelled operations and empty the log, unless another connection or process prevents it."""
        try:
            self._look_for_orphans()
            self._undo(())
            # What another program wrote after a replacement belongs to the other file.
            if self._db is not None and (
                not self.file.was_replaced() or self._data_version(self._db) == self._known_at
            ):
                self._checkpoints.empty_log(self._db)
                # No session uses the file now. Another program may change its tables to another layout meanwhile.
                self._ready_at_fold = self._data_version(self._db), frozenset(self._ready)
            self._ready.clear()
        except Exception:
            log.exception("folding the log of %s failed; it is folded later", self.path)

    def _commit_group(self, able: list[AnyRequest]) -> None:
        requests: list[AnyRequest] = []
        reads: list[AnyRequest] = []
        reads_behind: list[AnyRequest] = []
        for request in able:
            if request.kind == "write":
                requests.append(request)
            elif any(write.must_be_seen and may_meet(write, request) for write in requests):
                reads_behind.append(request)
            else:
                reads.append(request)
        if reads:
            self._undo(())  # if it can be done at once: who reads after a cancelled pop sees the item at its place
            for request in reads:
                self._read(request)  # and answer it now: the writes of its group may wait for a lock
        try:
            self._write_group(requests)
        finally:
            for request in reads_behind:
                self._read(request)

    def _write_group(self, requests: list[AnyRequest]) -> None:
        trouble = self._undo(requests) if self._to_undo else None
        if trouble is not None:
            self._fail(requests, trouble)  # nothing may be written before it
            return
        if not requests:
            return
        # Leases need not survive a power cut: their holders do not survive it either, and the next durable commit syncs
        # the log from its beginning.
        is_durable = any(request.durable for request in requests)
        if not is_durable:
            self._ensure_connected(requests).execute("PRAGMA synchronous=NORMAL")
        try:
            self._transact(requests)
        except Exception as error:
            self._roll_back()
            if len(requests) == 1:
                self._fail(requests, error)
            else:
                self._commit_each(requests)
        finally:
            if not is_durable and self._db is not None:
                self._db.execute("PRAGMA synchronous=FULL")

    def _commit_each(self, requests: list[AnyRequest]) -> None:
        """Commit each request alone, so that a failure affects a single request."""
        for request in requests:
            try:
                self._transact([request])
            except Exception as error:
                self._roll_back()
                self._fail([request], error)

    def _undo(self, waiting: Sequence[AnyRequest]) -> BaseException | None:
        """Compensate, each alone, the writes of departed callers; wait for a lock while a request of `waiting` is
        wanted.

        Returns the error that prevents a compensation, until it is tried again. A compensation that can never be done
        (its table was deleted) must not stop the rest.
        """
        while self._to_undo:
            undoing = self._to_undo[0].undoing()
            try:
                self._transact([undoing], waiting)
                error = undoing.error
            except Exception as fault:
                self._roll_back()
                error = fault
            if error is not None and not is_lasting(error):
                self._undo_wait_s = UNDO_RETRY_S
                return error
            if error is not None:
                log.error("a cancelled operation on %s cannot be undone: %s", self.path, error)
            self._to_undo.pop(0).end_undo()
        self._undo_wait_s = 0.0
        return None

    def _transact(self, requests: Sequence[AnyRequest], waiting: Sequence[AnyRequest] | None = None) -> None:
        """Run the requests in a transaction, waiting for locks on behalf of `waiting`. After an error the caller rolls
        back.
        """
        db = self._begin_if_wanted(requests, requests if waiting is None else waiting)
        if db is None:
            return
        done: list[AnyRequest] = []
        before = db.total_changes
        try:
            self._recall(db)
            groups: dict[Tables, list[AnyRequest]] = {}
            done = claim_all(requests)
            for request in done:
                groups.setdefault(request.where, []).append(request)
            for tables, group in groups.items():
                run_group(group, self._get_transaction(db, tables))
            for request in done:
                if request.undo is not None and request.is_to_be_undone:
                    run_program(self._get_transaction(db, request.where), request.undo_plan())
                    request.undone = True
            self.file.check(db)
            self._commit(db)
        except BaseException:
            self._known = None
            for request in done:
                request.forget_outcome()  # an undo that was rolled back is to be done again
            raise
        finally:
            self._lock.unshare()
        self.file.wrote()
        if not self.file.is_same(db):
            raise self._lost_meanwhile(done)
        self._checkpoints.wrote(len(done), db.total_changes - before)
        self._to_undo += finish_all(done)

    def _recall(self, db: sqlite3.Connection) -> None:
        """Reuse the state known after the last transaction, unless another connection has committed since."""
        version = self._data_version(db)
        if version != self._known_at:
            self._known_at, self._known = version, None
        elif self._known is not None:
            self._known.again()

    @staticmethod
    def _data_version(db: sqlite3.Connection) -> int:
        """Return a number that changes when another connection commits."""
        return int(db.execute("PRAGMA data_version").fetchone()[0])

    def _get_transaction(self, db: sqlite3.Connection, tables: Tables) -> Transaction:
        """Return the transaction state of a pair of tables. Two pairs may overlap, so only the last pair's state is
        kept.
        """
        if self._known is None or self._known.tables is not tables:
            self._known = Transaction(db, statements(tables))
        return self._known

    def _begin_if_wanted(
        self, requests: Sequence[AnyRequest], waiting: Sequence[AnyRequest]
    ) -> sqlite3.Connection | None:
        """Begin a write transaction, retrying while a caller waits; None after all have withdrawn."""
        try:
            try:
                return self._begin(waiting)  # nearly always; a lost file is noticed before the commit
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            return self._while_wanted(waiting, partial(self._begin, waiting))
        except sqlite3.OperationalError as error:
            # Claiming is what makes a request late. One that was claimed before could not be done in time.
            if not is_busy(error) or claim_all(requests):
                raise
            return None

    def _begin(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        """Take the write lock and share the checkpoint lock, both or none, without waiting for either: a process
        stopped in the middle of a checkpoint must not stop the other writers.
        """
        db = self._db or self._ensure_connected(requests)
        db.execute("BEGIN IMMEDIATE")
        if not self._lock.share():
            db.execute("ROLLBACK")
            raise database_file.checkpoint_under_way()
        return db

    def _pause(self) -> None:
        """Wait a moment, outside any transaction; os.fork may close the connection meanwhile."""
        self.busy.release()
        try:
            time.sleep(LOCK_PAUSE_S)
        finally:
            self.busy.acquire()

    def _commit(self, db: sqlite3.Connection) -> None:
        patience = time.monotonic() + COMMIT_WAIT_S
        while True:
            try:
                db.execute("COMMIT")
                return
            except sqlite3.Error as error:
                # Only without SQLite's log can a reader stand in a commit's way; the transaction is kept meanwhile.
                if not is_busy(error) or time.monotonic() > patience:
                    raise translate_error(error, self.path, in_commit=True) from error
            time.sleep(LOCK_PAUSE_S)

    # --- opening ------------------------------------------------------------------------------

    def _ensure_connected(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        if self.file.is_lost:
            raise replaced_file(self.path)
        if self._db is None:
            if self.file.is_known:
                self.file.check(None)
            self._db = self._while_wanted(requests, lambda: self._open(requests))
            self.file.on_open()
            self.file.check(self._db)
        return self._db

    def _open(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        if not self.file.is_known:
            self.file.check_names()
            self.file.make()
        db = database_file.connect(self.path)
        try:
            for tables in {request.where for request in requests}:
                version_of(db, tables)  # a newer layout, or no database at all, is refused before anything is changed
            database_file.set_up_writer(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepare_tables(self, requests: list[AnyRequest]) -> list[AnyRequest]:
        """Create or upgrade every table of the requests; return the requests with usable tables."""
        if self._ready_at_fold is not None and requests:
            version, ready = self._ready_at_fold
            if self._db is not None and self._data_version(self._db) == version:
                self._ready |= ready
            self._ready_at_fold = None
        for tables in {request.where for request in requests} - self._ready:
            theirs = [request for request in requests if request.where is tables]
            try:
                self._while_wanted(theirs, partial(self._migrate, tables, theirs))
            except Exception as error:
                self._roll_back()
                self._fail(theirs, error)
                requests = [request for request in requests if request.where is not tables]
            else:
                self._ready.add(tables)
        return requests

    def _migrate(self, tables: Tables, waiting: Sequence[AnyRequest]) -> None:
        if is_current(self._ensure_connected(waiting), tables):
            return
        db = self._begin(waiting)
        try:
            foreign = migrate(db, tables)
            self._commit(db)
        finally:
            self._lock.unshare()
        if foreign:
            database_file.warn_of_foreign_writer(self.path)

    def _while_wanted(self, requests: Sequence[AnyRequest], work: Callable[[], T]) -> T:
        """Run `work`, retrying while another connection holds a lock and a caller still waits."""
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or not any(request.is_awaited for request in requests):
                    raise
            self._pause()

    def _lost_meanwhile(self, done: Sequence[AnyRequest]) -> StoreUnavailableError:
        """Fail the requests of a commit during which the file disappeared: their outcome is unknown."""
        error = replaced_file(self.path)
        for request in done:
            request.fail(OutcomeUnknownError(str(error), "Put the file back and look, or open a new session on it."))
        return error

    # --- ends ------------------------------------------------------------------------------

    def _fail(self, requests: Sequence[AnyRequest], error: BaseException) -> None:
        for request in requests:
            request.fail(translate_error(error, self.path))
