"""A private database in memory: a lock and no thread (A21)."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import weakref
from functools import lru_cache
from typing import TypeVar

from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.file_engine import memory_databases
from standfast._src.sessions.backends.sqlite.schema import Tables, migrate
from standfast._src.sessions.backends.sqlite.sqlite_errors import translate_error
from standfast._src.sessions.backends.sqlite.sqlite_storage import Transaction
from standfast._src.sessions.backends.sqlite.statements import statements
from standfast._src.sessions.client.inline_executor import InlineExecutor
from standfast._src.sessions.storage import Plan, run_program

T = TypeVar("T")


class MemoryDatabase:
    """A database, opened when first used, for as long as a session object refers to it."""

    def __init__(self, tables: Tables) -> None:
        self.lock = threading.Lock()
        self._tables = tables
        self._db: sqlite3.Connection | None = None
        self._known: Transaction | None = None  # state after the last transaction; there is no other writer
        memory_databases.add(self)

    def carried_out(self, plan: Plan[T]) -> T:
        """The result of a plan, done in one transaction. The caller has the lock."""
        try:
            db = self._db or self._open()
            transaction, self._known = self._known or Transaction(db, statements(self._tables)), None
            transaction.again()
            with db:  # ends what the next line begins
                db.execute("BEGIN")
                result = run_program(transaction, plan)
            self._known = transaction
            return result
        except sqlite3.Error as error:
            raise translate_error(error, database_file.MEMORY) from error

    def _open(self) -> sqlite3.Connection:
        db = self._db = database_file.connect(database_file.MEMORY)
        weakref.finalize(self, db.close)  # newer Pythons warn of an unclosed connection
        template = _template(self._tables)
        if template is None:
            _make_tables(db, self._tables)
        else:
            # Copied, not deserialized into the database itself: that one could not grow beyond a gigabyte.
            with contextlib.closing(sqlite3.connect(database_file.MEMORY)) as source:
                source.deserialize(template)
                source.backup(db)
        return db


@lru_cache(maxsize=16)
def _template(tables: Tables) -> bytes | None:
    """Return a new database as bytes: its tables take longer to make than a turn. None for an SQLite without copies."""
    with contextlib.closing(database_file.connect(database_file.MEMORY)) as db:
        if not hasattr(db, "serialize"):
            return None
        _make_tables(db, tables)
        return db.serialize()


def _make_tables(db: sqlite3.Connection, tables: Tables) -> None:
    with db:
        db.execute("BEGIN")
        migrate(db, tables)


class MemoryExecutor(InlineExecutor):
    """Carries out plans at once, in the calling task."""

    def __init__(self, tables: Tables) -> None:
        database = MemoryDatabase(tables)
        super().__init__(database.carried_out, database.lock)
