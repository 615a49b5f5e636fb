"""A private database in memory: a lock and no thread (A21)."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from standfast.backends.sqlite import files
from standfast.backends.sqlite.engine import memory_stores
from standfast.backends.sqlite.faults import translated
from standfast.backends.sqlite.schema import Tables, migrate
from standfast.backends.sqlite.statements import statements
from standfast.backends.sqlite.store import Transaction
from standfast.carrying.inline import InlineCarrier
from standfast.ground.errors import SessionClosedError
from standfast.sessions.port import Done, Kind, Listed, Look, Refused, Sight, Step

T = TypeVar("T")


class MemoryStore:
    """The database, opened when first used. Whoever carries a plan to it holds its lock meanwhile."""

    loses_answers = False
    is_shareable = False

    def __init__(self, tables: Tables) -> None:
        self.lock = threading.Lock()
        self.users = 1
        self._tables = tables
        self._db: sqlite3.Connection | None = None
        self._known: Transaction | None = None  # what the last transaction left behind: nobody else writes
        memory_stores.add(self)

    def look(self, look: Look) -> Sight:
        """Read all that is asked for."""
        return self._transact(lambda transaction: transaction.look(look))

    def commit(self, step: Step) -> Done | Refused:
        """Do the whole step if all conditions hold."""
        return self._transact(lambda transaction: transaction.commit(step))

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Names of a kind, newest change first."""
        return self._transact(lambda store: store.listing(kind, after=after, limit=limit, labels=labels))

    def count(self, kind: Kind) -> int:
        """How many names of a kind there are."""
        return self._transact(lambda transaction: transaction.count(kind))

    def _transact(self, work: Callable[[Transaction], T]) -> T:
        try:
            db = self._connected()
            transaction, self._known = self._known, None
            if transaction is None:
                transaction = Transaction(db, statements(self._tables))
            else:
                transaction.again()
            db.execute("BEGIN")
            try:
                result = work(transaction)
            except BaseException:
                db.execute("ROLLBACK")
                raise
            db.execute("COMMIT")
            self._known = transaction
            return result
        except sqlite3.Error as error:
            raise translated(error, files.MEMORY) from error

    def _connected(self) -> sqlite3.Connection:
        if not self.users:
            raise SessionClosedError("the session was closed", "Open a new session object for this id.")
        if self._db is None:
            self._db = files.connect(files.MEMORY)
            self._db.execute("BEGIN")
            migrate(self._db, self._tables)
            self._db.execute("COMMIT")
        return self._db

    def one_less(self) -> None:
        """One user less; with the last one everything is gone. The caller has the lock."""
        self.users -= 1
        if not self.users and self._db is not None:
            self._db.close()
            self._db = None


class MemoryCarrier(InlineCarrier):
    """Carries out plans at once, in the calling task."""

    inherited = False  # a database in memory is copied by os.fork and is the child's own

    def __init__(self, tables: Tables) -> None:
        self._kept = MemoryStore(tables)
        super().__init__(self._kept, self._kept.lock)

    def add_user(self) -> None:
        """One user more."""
        with self._kept.lock:
            self._kept.users += 1

    def release(self) -> None:
        """One user less."""
        with self._kept.lock:
            self._kept.one_less()

    def release_later(self) -> None:
        """One user less, from a finalizer. If the store is in use, it goes with whoever uses it."""
        if self._kept.lock.acquire(blocking=False):
            try:
                self._kept.one_less()
            finally:
                self._kept.lock.release()
