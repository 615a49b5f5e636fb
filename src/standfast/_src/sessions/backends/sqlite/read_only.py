"""Reads of a database file without a trace: no table, no journal switch, no file beside the database, no byte changed.

How a file can be read so depends on the files beside it:

- nothing: the file is at rest, and SQLite opens it as `immutable`. `mode=ro` alone would make a log
  and a shared memory file for a database in log mode, and fail in a folder where it may not. Afterwards it is looked at
  again: if the file changed or a log has appeared, what was read is thrown away and read again;
- a log with its shared memory: a writer is there, or was killed. `mode=ro` uses the files that are there;
- a rollback journal: the database is not in log mode, and `mode=ro` takes part in its locks and makes nothing;
- a log without its shared memory, or a journal of a killed program: both would have to be repaired first. That is
  done with a copy, in a folder of its own.

A connection beside a log is closed after each question: kept open, it would keep the writer from removing its log.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Hashable, Iterator
from typing import TypeVar

from standfast._src.base.errors import NotADatabaseError, StoreTimeoutError, StoreUnavailableError
from standfast._src.sessions.backends.sqlite import database_file, foreign_layouts, sqlite_errors
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.backends.sqlite.scratch_tables import tables_beginning
from standfast._src.sessions.backends.sqlite.sidecar_files import TICK_S, How, SidecarFiles, find_sidecars
from standfast._src.sessions.backends.sqlite.sqlite_storage import Transaction
from standfast._src.sessions.backends.sqlite.statements import statements
from standfast._src.sessions.storage import Plan, run_program

T = TypeVar("T")

BUSY_PAUSE_S = 0.01


class ReadOnlyFile:
    """Executor of read-only plans, usable from any thread, serving a single plan at a time."""

    def __init__(self, path: str, tables: Tables) -> None:
        self.path, self.tables = os.path.abspath(path), tables
        self._sql = statements(tables)
        self._lock = threading.Lock()
        # Of the file at rest: as it was then, the connection, its layout, and the process that opened it.
        self._kept: tuple[SidecarFiles, sqlite3.Connection, int, int] | None = None
        self._closes: weakref.finalize[..., ReadOnlyFile] | None = None

    @property
    def key(self) -> Hashable:
        """Identity of the file in this process."""
        return (os.path.realpath(self.path), self.tables, "read only")

    def answer(self, plan: Callable[[], Plan[T]], timeout_s: float) -> T:
        """Return the result of a plan, from a snapshot of the file. The plan may be executed more than once."""
        return self.read_snapshot(lambda db, layout: run_program(Transaction(db, self._sql), plan()), timeout_s)

    def layout(self, timeout_s: float) -> int:
        """The version of the tables as they are in the file: 0 is the SDK's own."""
        return self.read_snapshot(lambda db, layout: layout, timeout_s)

    def table_names(self, begins: str, timeout_s: float) -> list[str]:
        """Return the names of the file's tables with a given prefix."""
        return self.read_snapshot(lambda db, layout: tables_beginning(db, begins), timeout_s)

    def copy_to(self, path: str, timeout_s: float) -> None:
        """Write a snapshot of the database into a new file."""

        def back_up(db: sqlite3.Connection, layout: int) -> None:
            # Again from the start if the file changed meanwhile: the result is then of two instants.
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            database_file.make_file(path, 0o600)
            with contextlib.closing(database_file.connect(path)) as target:
                db.backup(target)

        self.read_snapshot(back_up, timeout_s)

    def close(self) -> None:
        """Close the kept connection."""
        with self._lock:
            self._forget()

    def read_snapshot(self, ask: Callable[[sqlite3.Connection, int], T], timeout_s: float) -> T:
        """Return the result of `ask(connection, layout)` on a snapshot. `ask` may be called more than once."""
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX)):
            raise _busy(self.path, timeout_s)
        try:
            how: How | None = None
            while True:
                done, result, how = self._try_once(ask, how)
                if done:
                    return result  # type: ignore[return-value]  # it is what `ask` gave
                if time.monotonic() >= deadline:
                    raise _busy(self.path, timeout_s)
        finally:
            self._lock.release()

    def _try_once(
        self, ask: Callable[[sqlite3.Connection, int], T], forced: How | None
    ) -> tuple[bool, T | None, How | None]:
        """Try a read; return success, the result, and the mode for the next try if known."""
        beside = find_sidecars(self.path)
        how = forced or beside.how()
        if how != "ro" and beside.is_fresh():
            time.sleep(TICK_S)
            return False, None, None
        try:
            with self._open_snapshot(how, beside) as (db, layout):
                result = ask(db, layout)
        except sqlite3.Error as error:
            code = sqlite_errors.primary_code(error)
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                time.sleep(BUSY_PAUSE_S)
                return False, None, None
            if how == "ro" and code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
                return False, None, "copy"  # what a program that was killed left beside it must be mended first
            if find_sidecars(self.path) != beside:
                return False, None, None  # it was changed under the question
            raise _translate_error(error, self.path) from error
        except UnicodeDecodeError as error:  # of SQLite's own message, which quotes a schema that is not a text
            raise StoreUnavailableError(
                f"{self.path!r} is damaged: its schema is no text", "Restore it from a backup."
            ) from error
        if how == "ro":
            return True, result, None
        return find_sidecars(self.path) == beside, result, None

    # --- connections -------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _open_snapshot(self, how: How, beside: SidecarFiles) -> Iterator[tuple[sqlite3.Connection, int]]:
        if how == "immutable":
            yield self._immutable(beside)
            return
        with contextlib.ExitStack() as stack:
            path, options = self.path, "mode=ro"
            if how == "copy":
                path, options = self._copy_files(stack), "mode=rw"
            db = stack.enter_context(
                contextlib.closing(database_file.connect_with(path, options, database_file.READER_BUSY_MS))
            )
            layout = self._prepare(db)
            db.execute("BEGIN")
            yield db, layout
            db.execute("ROLLBACK")

    def _immutable(self, beside: SidecarFiles) -> tuple[sqlite3.Connection, int]:
        """A connection to the file at rest; the one of before, if nothing has changed since."""
        kept = self._kept
        if kept is not None and kept[0] == beside and kept[3] == os.getpid():
            return kept[1], kept[2]
        self._forget()
        db = database_file.connect_with(self.path, "mode=ro&immutable=1", database_file.READER_BUSY_MS)
        try:
            layout = self._prepare(db)
        except BaseException:
            db.close()
            raise
        self._kept = (beside, db, layout, os.getpid())
        # Dropping this object closes the connection: newer Pythons warn of an unclosed one.
        self._closes = weakref.finalize(self, db.close)
        return db, layout

    def _prepare(self, db: sqlite3.Connection) -> int:
        layout = foreign_layouts.prepare(db, self.path, self.tables)
        db.execute("PRAGMA query_only=ON")
        return layout

    def _copy_files(self, stack: contextlib.ExitStack) -> str:
        """Copy the file and its sidecar files, which SQLite may repair; only the owner can read the copy."""
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="standfast-"))
        path = os.path.join(folder, "copy.db")
        for suffix in ("", "-wal", "-journal"):
            with contextlib.suppress(FileNotFoundError):
                shutil.copyfile(f"{self.path}{suffix}", f"{path}{suffix}")
        return path

    def _forget(self) -> None:
        kept, self._kept = self._kept, None
        closes, self._closes = self._closes, None
        if closes is not None and kept is not None and kept[3] == os.getpid():
            closes()


class AnyFile(ReadOnlyFile):
    """File with tables of any other layout, which the caller interprets."""

    def _prepare(self, db: sqlite3.Connection) -> int:
        return 0


def copy_file(path: str, target: str, timeout_s: float) -> None:
    """Copy a snapshot of a database and its sidecar files, without leaving a trace beside the original."""
    file = AnyFile(path, Tables.of("agent_sessions", "agent_messages"))
    try:
        file.copy_to(target, timeout_s)
    finally:
        file.close()


def _translate_error(error: sqlite3.Error, path: str) -> BaseException:
    if sqlite_errors.primary_code(error) == sqlite3.SQLITE_NOTADB:
        return NotADatabaseError(
            f"{path!r} is not an SQLite database; it was left as it is", "Give the path of a database file."
        )
    return sqlite_errors.translate_error(error, path)


def _busy(path: str, timeout_s: float) -> StoreTimeoutError:
    return StoreTimeoutError(
        f"{path!r} was being changed all the time for {timeout_s} s", "Ask again, or give a longer timeout_s."
    )
