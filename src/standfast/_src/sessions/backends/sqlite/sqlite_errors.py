"""Translation of SQLite's errors, each with a remedy.

`translate_error` is the only place that looks at SQLite's error codes. A commit that failed while its pages were being
synced is the one case with an unknown outcome after a crash; `in_commit` marks it.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from standfast._src.base.errors import (
    ItemNotStorableError,
    NotADatabaseError,
    OutcomeUnknownError,
    StandfastError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTimeoutError,
    StoreUnavailableError,
)

_PRIMARY = 0xFF  # an extended code keeps its primary code in the low byte


def primary_code(error: BaseException) -> int:
    """Return SQLite's primary result code of an error, or 0."""
    code = getattr(error, "sqlite_errorcode", None)
    return code & _PRIMARY if isinstance(code, int) else 0


def is_busy(error: BaseException) -> bool:
    """Return whether another connection held a lock, so that a retry may succeed."""
    return primary_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def is_lasting(error: BaseException) -> bool:
    """Return whether a retry would fail the same way: a table was deleted or replaced, or the fault is outside the
    store.
    """
    if isinstance(error, sqlite3.Error):
        return primary_code(error) in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH)
    return not isinstance(error, StoreError | OSError)


def translate_error(error: BaseException, path: str, *, in_commit: bool = False) -> BaseException:
    """The error to raise instead of SQLite's own; errors that are ours already pass through."""
    if isinstance(error, StandfastError) or not isinstance(error, sqlite3.Error | OSError):
        return error
    found = _translate_sqlite_error(error, path, in_commit)
    found.__cause__ = error
    return found


def _translate_sqlite_error(error: sqlite3.Error | OSError, path: str, in_commit: bool) -> StandfastError:
    code, said = primary_code(error), f"{type(error).__name__}: {error}"
    if isinstance(error, OSError) or code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path, said)
    if code == sqlite3.SQLITE_FULL:
        return StoreFullError(
            f"there is no room for {path!r} ({said}); earlier history is as it was", "Free some space and try again."
        )
    if code == sqlite3.SQLITE_READONLY:
        return _read_only_error(path)
    if code == sqlite3.SQLITE_NOTADB:
        return NotADatabaseError(
            f"{path!r} is not an SQLite database; it was left as it is",
            "Give the path of a database, or of a file that does not exist yet.",
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return StoreTimeoutError(
            f"another connection kept {path!r} locked; nothing was done",
            "End the transaction that holds it, or give the session a longer timeout_s.",
        )
    if code == sqlite3.SQLITE_IOERR and in_commit:
        return OutcomeUnknownError(
            f"{path!r} could not be synced to disk ({said})",
            "The change is there whole or not at all. Check the disk, read the session again, then repeat the append "
            "under the same writer and number.",
        )
    if code == sqlite3.SQLITE_TOOBIG:
        return ItemNotStorableError(f"an item is larger than SQLite can hold ({said})", "Store a reference instead.")
    return _unusable(code, path, said)


def _unusable(code: int, path: str, said: str) -> StoreError:
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT):
        return StoreUnavailableError(
            f"{path!r} is damaged ({said})", "Run PRAGMA integrity_check on a copy, or restore it from a backup."
        )
    return StoreUnavailableError(f"SQLite refused to work on {path!r} ({said})", "Check the file, its disk and tables.")


def _read_only_error(path: str) -> StoreError:
    return StoreReadOnlyError(
        f"{path!r} cannot be written by this process",
        "Make the file and its folder writable: SQLite keeps its log beside the file.",
    )


def _cannot_open(path: str, said: str) -> StoreError:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        return StoreUnavailableError(f"the folder of {path!r} does not exist", f"Create {folder!r} first.")
    if os.path.isdir(path):
        return StoreUnavailableError(f"{path!r} is a folder", "Give the path of a file.")
    readable = Path(path) if os.path.exists(path) else Path(folder)
    if not os.access(folder, os.W_OK) or not os.access(readable, os.W_OK):
        return _read_only_error(path)
    return StoreUnavailableError(f"{path!r} cannot be opened ({said})", "Check the path, its permissions and its disk.")


def replaced_file(path: str) -> StoreUnavailableError:
    """Build the error for operations on a replaced or deleted file."""
    return StoreUnavailableError(
        f"{path!r} was deleted or replaced while it was open; nothing more is written to what it was",
        "Put the file back or accept the new one, then close these sessions and open new ones.",
    )
