"""A private database in memory: a lock and no thread (A21)."""

from __future__ import annotations

import sqlite3
import threading
from typing import TypeVar

from standfast.backends.sqlite import files
from standfast.backends.sqlite.engine import memory_databases
from standfast.backends.sqlite.faults import translated
from standfast.backends.sqlite.schema import Tables, migrate
from standfast.backends.sqlite.statements import statements
from standfast.backends.sqlite.store import Transaction
from standfast.carrying.inline import InlineCarrier
from standfast.ground.errors import SessionClosedError
from standfast.sessions.port import Plan, carried_out

T = TypeVar("T")


class MemoryDatabase:
    """A database, opened when first used, for as long as a session object uses it."""

    inherited = False  # it is copied by os.fork, and is the child's own

    def __init__(self, tables: Tables) -> None:
        self.lock = threading.Lock()
        self._tables, self._user_count = tables, 1
        self._db: sqlite3.Connection | None = None
        self._known: Transaction | None = None  # what the last transaction left behind: nobody else writes
        memory_databases.add(self)

    def carried_out(self, plan: Plan[T]) -> T:
        """The result of a plan, done in one transaction. The caller has the lock."""
        if not self._user_count:
            raise SessionClosedError
        try:
            db = self._db or self._opened()
            transaction, self._known = self._known or Transaction(db, statements(self._tables)), None
            transaction.again()
            with db:  # ends what the next line begins
                db.execute("BEGIN")
                result = carried_out(transaction, plan)
            self._known = transaction
            return result
        except sqlite3.Error as error:
            raise translated(error, files.MEMORY) from error

    def _opened(self) -> sqlite3.Connection:
        db = self._db = files.connect(files.MEMORY)
        with db:
            db.execute("BEGIN")
            migrate(db, self._tables)
        return db

    def add_user(self) -> None:
        """One user more."""
        with self.lock:
            self._user_count += 1

    def release(self) -> None:
        """One user less; with the last one everything is gone."""
        with self.lock:
            self._one_less()

    def release_later(self) -> None:
        """One user less, from a finalizer. If it is in use, it goes with whoever uses it."""
        if self.lock.acquire(blocking=False):
            try:
                self._one_less()
            finally:
                self.lock.release()

    def _one_less(self) -> None:
        self._user_count -= 1
        if not self._user_count and self._db is not None:
            self._db.close()
            self._db = None


class MemoryCarrier(InlineCarrier):
    """Carries out plans at once, in the calling task."""

    def __init__(self, tables: Tables) -> None:
        self.shared = MemoryDatabase(tables)
        super().__init__(self.shared.carried_out, self.shared.lock)
