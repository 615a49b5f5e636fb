"""A private database in memory: a lock and no thread (A21)."""

from __future__ import annotations

import sqlite3
import threading
import weakref
from typing import TypeVar

from standfast.backends.sqlite import files
from standfast.backends.sqlite.engine import memory_databases
from standfast.backends.sqlite.faults import translated
from standfast.backends.sqlite.schema import Tables, migrate
from standfast.backends.sqlite.statements import statements
from standfast.backends.sqlite.store import Transaction
from standfast.carrying.inline import InlineCarrier
from standfast.sessions.port import Plan, carried_out

T = TypeVar("T")


class MemoryDatabase:
    """A database, opened when first used, for as long as a session object refers to it."""

    def __init__(self, tables: Tables) -> None:
        self.lock = threading.Lock()
        self._tables = tables
        self._db: sqlite3.Connection | None = None
        self._known: Transaction | None = None  # what the last transaction left behind: nobody else writes
        memory_databases.add(self)

    def carried_out(self, plan: Plan[T]) -> T:
        """The result of a plan, done in one transaction. The caller has the lock."""
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
        weakref.finalize(self, db.close)  # newer Pythons warn of a connection that nobody has closed
        with db:
            db.execute("BEGIN")
            migrate(db, self._tables)
        return db


class MemoryCarrier(InlineCarrier):
    """Carries out plans at once, in the calling task."""

    def __init__(self, tables: Tables) -> None:
        database = MemoryDatabase(tables)
        super().__init__(database.carried_out, database.lock)
