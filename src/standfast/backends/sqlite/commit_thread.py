"""The thread that writes: it turns whatever is queued into one transaction, durable with one sync.

A group is: what must be undone, then every waiting request in the order it came. Grouping is invisible (A10). A
request that refuses by a rule has written nothing, so the others go on; anything that fails after a write, or in the
commit, rolls the group back, and each request is then done again alone.

A request is claimed only once the transaction holds the write lock. Until then its caller can withdraw it, so an
operation never waits for another program's lock beyond its deadline and is never done later by surprise (A13).

A commit that SQLite says has failed did not happen for any reader, so doing it again cannot double anything (A8). The
one doubt is what a crash would recover if the disk failed to sync, and that is reported as an unknown outcome.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from standfast.backends.sqlite import files
from standfast.backends.sqlite.faults import is_busy, is_lasting, replaced_file, translated
from standfast.backends.sqlite.read_threads import Worker, read
from standfast.backends.sqlite.schema import Tables, is_current, migrate, version_of
from standfast.backends.sqlite.statements import statements
from standfast.backends.sqlite.store import Transaction
from standfast.backends.sqlite.together import carry_out
from standfast.carrying.requests import QUEUED, Request, Undoer, UndoMessage, claim_all, deliver, finish_all
from standfast.ground.errors import OutcomeUnknownError, StoreUnavailableError
from standfast.ground.log_helpers import session_logger as log
from standfast.sessions.port import carried_out

GROUP_MAX = 256
# Bounds how long the write lock is held for one group, so that other processes get their turn.

LOCK_PAUSE_S = 0.001
COMMIT_WAIT_S = 5.0
UNDO_RETRY_S = 1.0

IDLE_S = 0.02
# A checkpoint that is due waits for a pause of this length. That the queue is empty just after an answer was given says
# nothing: whoever got it needs a moment to ask again, and would wait for the checkpoint's own syncs.

LAST_UNDO_WAIT_S = 30.0
# How long an engine that ends goes on trying to undo what cancelled callers left, while another program has the file.

T = TypeVar("T")

AnyRequest = Request[Any]


class Signal(Enum):
    """A message to the writer that asks for nothing to be stored."""

    RELEASED = "a session object that used the engine is gone"
    STOP = "finish what is queued and end"
    REST = "other files need threads and descriptors: rest when there is nothing to do"


Message = AnyRequest | UndoMessage | Signal


class CommitThread(Worker, Undoer):
    """One file's writing connection and the thread that uses it."""

    def __init__(
        self, path: str, file: files.OpenedFile, on_released: Callable[[], bool], on_rest: Callable[[], bool]
    ) -> None:
        Worker.__init__(self)
        Undoer.__init__(self)
        self.path, self.file = path, file
        self.inbox: SimpleQueue[Message] = SimpleQueue()
        self.ready: set[Tables] = set()
        self._on_released, self._on_rest = on_released, on_rest
        self._is_to_rest = False
        self._undo_wait_s = 0.0
        self._known: dict[Tables, Transaction] = {}  # what the last transaction left behind
        self._known_at = 0
        self._lock = files.CheckpointLock(path)
        self._checkpoints = files.Checkpoints(file, self._lock)

    # --- life ------------------------------------------------------------------------------

    def disconnect(self) -> None:
        """Close the connection; the next group opens it again. The caller holds `busy`."""
        db, self._db = self._db, None
        self._known = {}
        self.file.closed()
        try:
            if db is not None:
                db.close()
        except sqlite3.Error as error:
            log.warning("closing %s failed: %s", self.path, error)
        finally:
            self._lock.close()

    def _run(self) -> None:
        going = True
        self._is_to_rest = False
        while going:
            messages = self._next_messages()
            requests = [message for message in messages if type(message) is Request]
            if len(requests) < len(messages):
                self._to_undo += [message.request for message in messages if isinstance(message, UndoMessage)]
                going = Signal.STOP not in messages
                self._is_to_rest = self._is_to_rest or Signal.REST in messages
                last_left = [self._on_released() for one in messages if one is Signal.RELEASED]
                if any(last_left):
                    self.inbox.put(Signal.STOP)  # behind what others queued before the last user was known to be gone
            if requests or self._to_undo or not messages:
                with self.busy:
                    self._serve(requests)
            # A request knows its session. Kept here until the next one arrives, it would keep a session that nobody
            # else knows any more, and with it this thread.
            del messages, requests
            if self._is_to_rest and going and self._has_come_to_rest():
                return
        with self.busy:
            self._look_for_orphans()
            self._undo_at_last()
            self.disconnect()

    def _has_come_to_rest(self) -> bool:
        """Close the connection and end, if nothing is queued and nothing may have to be undone."""
        with self.busy:
            self._look_for_orphans()
            if self._to_undo or self._untaken or not self.inbox.empty():
                return False
            self.disconnect()
        return self._on_rest()

    def _undo_at_last(self) -> None:
        """Undo what cancelled callers left, before the thread ends, even if another program has the file now."""
        patience = time.monotonic() + LAST_UNDO_WAIT_S
        while self._to_undo:
            self._serve([])
            if self._to_undo and (self.file.is_lost or time.monotonic() > patience):
                log.error("%d cancelled operations on %s could not be undone", len(self._to_undo), self.path)
                return
            if self._to_undo:
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
        while not inbox.empty() and len(messages) < GROUP_MAX:  # this thread alone takes from it
            messages.append(inbox.get_nowait())
        return messages

    # --- one group ------------------------------------------------------------------------------

    def _serve(self, requests: Sequence[AnyRequest]) -> None:
        """Do these requests and answer them, whatever happens: callers wait for this thread, so it outlives it."""
        todo = [request for request in requests if request.stage is QUEUED]
        try:
            if self._untaken:
                self._look_for_orphans()
            self._undo_wait_s = UNDO_RETRY_S  # unless this group undoes what is to be undone
            try:
                self._commit_group(self._prepared(todo))
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

    def _commit_group(self, able: list[AnyRequest]) -> None:
        requests: list[AnyRequest] = []
        is_durable = bool(self._to_undo)
        for request in able:
            if request.kind == "write":
                requests.append(request)
                is_durable = is_durable or request.durable
            elif request.kind == "read":
                self._read(request)
            elif request.claim():
                request.finish()  # all it wanted was the file and its tables
        if not requests and not self._to_undo:
            return
        # Leases need not survive a power cut: whoever held one is gone as well, and the next durable commit syncs
        # the log from its beginning.
        if not is_durable:
            self._connected(requests).execute("PRAGMA synchronous=NORMAL")
        try:
            self._transact(requests)
        except Exception as error:
            self._roll_back()
            if len(requests) <= 1 and not self._to_undo:
                self._fail(requests, error)
            else:
                self._commit_each(requests)
        finally:
            if not is_durable and self._db is not None:
                self._db.execute("PRAGMA synchronous=FULL")

    def _read(self, request: AnyRequest) -> None:
        """Do a read for which no thread could be started; a lock of another program's does not keep it waiting."""
        if not request.claim():
            return
        try:
            db = self._connected([request])
            request.result = read(db, request)
            if not self.file.is_same(db):
                raise replaced_file(self.path)
            request.finish()
        except Exception as error:
            self._roll_back()
            self._fail([request], error)
        deliver([request])  # now: the writes of its group may wait for a lock

    def _commit_each(self, requests: list[AnyRequest]) -> None:
        """Undo what is left to undo, then do each request alone, so that one failure touches one request."""
        try:
            if self._to_undo:
                self._undo_each()
        except Exception as error:
            self._roll_back()
            self._fail(requests, error)  # nothing may be written before it
            return
        for request in requests:
            try:
                self._transact([request])
            except Exception as error:
                self._roll_back()
                self._fail([request], error)

    def _undo_each(self) -> None:
        """Undo each alone. What can never be undone (its table is gone) must not stop everybody else."""
        to_undo, self._to_undo = self._to_undo, []
        while to_undo:
            self._to_undo = [to_undo[0]]
            try:
                self._transact([])
            except Exception as error:
                self._roll_back()
                if not is_lasting(error):
                    self._to_undo = to_undo
                    raise
                log.error("a cancelled operation on %s cannot be undone: %s", self.path, error)
            to_undo = to_undo[1:]
        self._to_undo = []

    def _transact(self, requests: Sequence[AnyRequest]) -> None:
        """One transaction over what is to be undone and these requests. If it raises, the caller rolls back."""
        db = self._begun(requests)
        if db is None:
            return
        to_undo = list(self._to_undo)
        done: list[AnyRequest] = []
        known, before = self._still_known(db), db.total_changes
        try:
            for request in to_undo:
                request.run_undo(partial(carried_out, self._of(known, request.where)))
            groups: dict[Tables, list[AnyRequest]] = {}
            done = claim_all(requests)
            for request in done:
                groups.setdefault(request.where, []).append(request)
            for tables, group in groups.items():
                if len(groups) > 1:
                    known.clear()  # two pairs may share a table: what is known of one may be what the other changed
                carry_out(group, known.get(tables) or self._of(known, tables))
            for request in done:
                if request.undo is not None and request.is_to_be_undone:
                    request.run_undo(partial(carried_out, self._of(known, request.where)))
                    request.undone = True
            if not self.file.is_same(db):
                raise replaced_file(self.path)
            self._commit(db)
        except BaseException:
            for request in done:
                request.forget_outcome()  # an undo that was rolled back is to be done again
            raise
        finally:
            self._lock.unshare()
        self._known = known if len(known) == 1 else {}  # two pairs may share a table of sessions
        del self._to_undo[: len(to_undo)]
        self._undo_wait_s = 0.0
        self.file.wrote()
        if not self.file.is_same(db):
            raise self._lost_meanwhile(done)
        self._checkpoints.wrote(len(done), db.total_changes - before)
        self._to_undo += finish_all(done)

    def _of(self, known: dict[Tables, Transaction], tables: Tables) -> Transaction:
        """What is known in this transaction of a pair of tables."""
        found = known.get(tables)
        if found is None:
            assert self._db is not None
            found = known[tables] = Transaction(self._db, statements(tables))
        return found

    def _still_known(self, db: sqlite3.Connection) -> dict[Tables, Transaction]:
        """What the last transaction left behind, unless it failed or another connection has committed since."""
        known, self._known = self._known, {}
        version = db.execute("PRAGMA data_version").fetchone()[0]
        if version != self._known_at:
            self._known_at, known = version, {}
        for transaction in known.values():
            transaction.again()
        return known

    def _begun(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection | None:
        """Begin a transaction that may write, for as long as anybody waits for it; None if nobody does any more."""
        try:
            try:
                return self._begin(requests)  # nearly always; a lost file is noticed before the commit
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
            return self._while_wanted(requests, partial(self._begin, requests))
        except sqlite3.OperationalError as error:
            if not is_busy(error) or self._to_undo or any(request.is_claimed for request in requests):
                raise  # it could not be done in time; those that were withdrawn are nobody's loss
            for request in requests:
                request.claim()  # after the deadline, that is what makes it late
            return None

    def _begin(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        """Take the write lock and share the checkpoint lock, both or none, and wait for neither: a process that was
        stopped in the middle of a checkpoint must not make this one keep everybody else from writing."""
        db = self._db or self._connected(requests)
        db.execute("BEGIN IMMEDIATE")
        if not self._lock.share():
            db.execute("ROLLBACK")
            raise files.checkpoint_under_way()
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
                    raise translated(error, self.path, in_commit=True) from error
            time.sleep(LOCK_PAUSE_S)

    # --- opening ------------------------------------------------------------------------------

    def _connected(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        if self.file.is_lost:
            raise replaced_file(self.path)
        if self._db is None:
            if self.file.is_known:
                self._check_file()
            self._db = self._while_wanted(requests, lambda: self._open(requests))
            self.file.opened()
            self._check_file()
        return self._db

    def _open(self, requests: Sequence[AnyRequest]) -> sqlite3.Connection:
        if not self.file.is_known:
            self.file.check_names()
            self.file.make()
        db = files.connect(self.path)
        try:
            for tables in {request.where for request in requests}:
                version_of(db, tables)  # a newer layout, or no database at all, is refused before anything is changed
            files.set_up_writer(db)
            self._lock.opened(db)
        except BaseException:
            db.close()
            raise
        return db

    def _prepared(self, requests: list[AnyRequest]) -> list[AnyRequest]:
        """Make sure that every table these requests need is there and current; gives those that can go on."""
        for tables in {request.where for request in requests} - self.ready:
            theirs = [request for request in requests if request.where is tables]
            try:
                self._while_wanted(theirs, partial(self._migrate, tables, theirs))
            except Exception as error:
                self._roll_back()
                self._fail(theirs, error)
                requests = [request for request in requests if request.where is not tables]
            else:
                self.ready.add(tables)
        return requests

    def _migrate(self, tables: Tables, waiting: Sequence[AnyRequest]) -> None:
        if is_current(self._connected(waiting), tables):
            return
        db = self._begin(waiting)
        try:
            foreign = migrate(db, tables)
            self._commit(db)
        finally:
            self._lock.unshare()
        if foreign:
            files.warn_of_foreign_writer(self.path)

    def _while_wanted(self, requests: Sequence[AnyRequest], work: Callable[[], T]) -> T:
        """Do it, trying again while another connection stands in the way and somebody still waits."""
        while True:
            try:
                return work()
            except sqlite3.OperationalError as error:
                if not is_busy(error) or not any(request.is_wanted for request in requests):
                    raise
            self._pause()

    def _check_file(self) -> None:
        if not self.file.is_same(self._db):
            raise replaced_file(self.path)

    def _lost_meanwhile(self, done: Sequence[AnyRequest]) -> StoreUnavailableError:
        """The file went away in the moment of the commit: what it holds may come back with it, and nobody knows."""
        error = replaced_file(self.path)
        for request in done:
            request.fail(OutcomeUnknownError(str(error), "Put the file back and look, or open a new session on it."))
        return error

    # --- ends ------------------------------------------------------------------------------

    def _roll_back(self) -> None:
        """Leave no transaction behind; a connection that cannot even do that is given up."""
        db = self._db
        if db is None:
            return
        try:
            if db.in_transaction:
                db.execute("ROLLBACK")
        except sqlite3.Error:
            self.disconnect()

    def _fail(self, requests: Sequence[AnyRequest], error: BaseException) -> None:
        for request in requests:
            request.fail(translated(error, self.path))
