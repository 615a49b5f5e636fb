"""Random keys of sessions, in an SQLite file of their own, so that one key can be destroyed."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import stat
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar

from standfast._src.base.errors import SessionErasedError, StoreUnavailableError
from standfast._src.sessions.wrappers.encrypted.keys import ErasureReceipt, text_bytes

try:
    import fcntl
except ImportError:  # pragma: no cover — Windows, which has no fork either
    fcntl = None  # type: ignore[assignment]

__all__ = ["KeyFile"]

T = TypeVar("T")

_TABLE = """
CREATE TABLE IF NOT EXISTS session_keys (
    tenant BLOB NOT NULL, scope BLOB NOT NULL, key BLOB, fingerprint TEXT NOT NULL, erased_at REAL,
    PRIMARY KEY (tenant, scope)) WITHOUT ROWID
"""
_BUSY_S = 10.0  # another process makes or destroys a key meanwhile: each is one small transaction


_PAUSE_S = 0.01

_LOCK_FIRST, _LOCK_BYTES = 0x40000000, 512
# Place of the locks of SQLite in a file, by its file format.


class KeyFile:
    """Keeps a key for each session in a file, apart from the store; see `SessionKeys`.

    Threads and processes of one machine may share it, forked ones included. It opens nothing without the secret the
    session was given; with it, and without this file, nothing opens either. Keep it out of the store's backups: a key
    that was destroyed is destroyed only if no copy is left.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # a forked child opens it again, perhaps from another folder
        self._gate = threading.Lock()
        """Held for one operation on the file, never while another process is waited for."""
        self._connection: sqlite3.Connection | None = None
        self._closes: weakref.finalize[..., KeyFile] | None = None
        self._version = -1
        self._known: dict[tuple[bytes, bytes], bytes] = {}
        _key_files.add(self)

    def key_of(self, tenant: str, scope: str, *, make: bool) -> bytes | None:
        """Return the key of a scope; make and sync a new key if missing, or return None with `make=False`."""
        place = text_bytes(tenant), text_bytes(scope)
        found = self._run_locked(partial(self._find_key, place, make=make))
        if isinstance(found, float):
            raise SessionErasedError(
                f"{scope!r} was erased on {_time(found).isoformat(timespec='seconds')}: its key was destroyed",
                "Use another session id; what was erased cannot be read again.",
            )
        return found

    def _find_key(
        self, place: tuple[bytes, bytes], connection: sqlite3.Connection, *, make: bool
    ) -> bytes | float | None:
        """Return the key at a place, the time of its erasure, or None if there is neither."""
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version != self._version:  # another process has written: perhaps a key was destroyed
            self._known.clear()
            self._version = version
        found = self._known.get(place)
        if found is not None:
            return found
        row = self._row(connection, *place)
        if row is None and make:
            key = os.urandom(32)
            connection.execute(
                "INSERT OR IGNORE INTO session_keys VALUES (?, ?, ?, ?, NULL)",
                (*place, key, hashlib.sha256(key).hexdigest()),
            )
            row = self._row(connection, *place)
        if row is None:
            return None
        key, _, erased_at = row
        if erased_at is None:
            self._known[place] = bytes(key)
        return bytes(key) if erased_at is None else erased_at

    def destroy(self, tenant: str, scope: str) -> ErasureReceipt:
        """Overwrite the key in the file and in the file's journal.

        A file system that writes elsewhere instead of in place (copy-on-write, many SSDs) may keep old blocks.
        """
        session_id = scope.partition("/")[2]
        place = text_bytes(tenant), text_bytes(scope)
        self._run_locked(
            partial(self._find_key, place, make=True)
        )  # one that was never used is erased too: its id is closed

        def overwrite(connection: sqlite3.Connection) -> tuple[bytes, str, float | None] | None:
            connection.execute(
                "UPDATE session_keys SET key = zeroblob(32), erased_at = ? "
                "WHERE tenant = ? AND scope = ? AND erased_at IS NULL", (time.time(), *place),
            )  # fmt: skip
            self._known.clear()
            connection.execute("BEGIN IMMEDIATE")  # while this is open no process uses the journal
            try:
                _overwrite_with_zeros(f"{self.path}-journal")
            finally:
                connection.execute("ROLLBACK")
            return self._row(connection, *place)

        row = self._run_locked(overwrite)
        assert row is not None
        return ErasureReceipt(session_id, tenant, row[1], _time(row[2]))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._gate:
            if self._closes is not None:
                self._closes()
            self._connection, self._closes, self._known = None, None, {}

    @staticmethod
    def _row(connection: sqlite3.Connection, tenant: bytes, scope: bytes) -> tuple[bytes, str, float | None] | None:
        found: tuple[bytes, str, float | None] | None = connection.execute(
            "SELECT key, fingerprint, erased_at FROM session_keys WHERE tenant = ? AND scope = ?", (tenant, scope)
        ).fetchone()
        return found

    def _run_locked(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` on the file's connection, one thread at a time; repeat while another process has the file locked.

        The wait is done here and not by SQLite: a fork meanwhile would leave the child a lock without a release.
        """
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                with self._in_child() if _is_forked else self._in_process() as connection:
                    return work(connection)
            except (sqlite3.Error, OSError) as error:
                if _is_busy(error) and time.monotonic() < deadline:
                    time.sleep(_PAUSE_S)
                    continue
                raise StoreUnavailableError(
                    f"the key file {str(self.path)!r} cannot be used: {error}", "Check its folder, rights and disk."
                ) from error

    @contextmanager
    def _in_process(self) -> Iterator[sqlite3.Connection]:
        """Yield the open connection of this process."""
        with self._gate:
            if self._connection is None:
                self._connection, self._known = self._connect(), {}
                # Whoever drops it without a word has closed it: newer Pythons warn of a connection that nobody has.
                self._closes = weakref.finalize(self, self._connection.close)
            yield self._connection

    @contextmanager
    def _in_child(self) -> Iterator[sqlite3.Connection]:
        """Yield a new connection for one operation in a forked child, under SQLite's lock for a whole file.

        SQLite remembers the locks of its process. A child inherits this memory without the locks, so a lock of the
        parent at the fork seems to be held for ever. The child therefore locks the file by a system call, and opens
        the file without the locks of SQLite.
        """
        # One gate for all files: closing any descriptor of a file drops the locks of this process on the file.
        with _child_gate:
            _make_private(self.path)
            locked = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                _lock_whole(locked)
                connection, self._known = self._connect(without_locks=True), {}
                try:
                    yield connection
                finally:
                    connection.close()
            finally:
                os.close(locked)

    def _connect(self, *, without_locks: bool = False) -> sqlite3.Connection:
        _make_private(self.path)
        place: str | Path = f"{self.path.as_uri()}?vfs=unix-none" if without_locks else self.path
        connection = sqlite3.connect(place, timeout=0, isolation_level=None, check_same_thread=False, uri=without_locks)
        try:
            # Pages that are overwritten, and one journal that is overwritten in place. A deleted journal would leave
            # its blocks on the disk, with the keys of the page it saved. A write-ahead log would keep a destroyed key.
            connection.execute("PRAGMA journal_mode = PERSIST")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute(_TABLE)
            os.chmod(self.path, 0o600)
        except BaseException:
            connection.close()
            raise
        return connection

    def begin_anew(self) -> None:
        """Drop inherited state in a forked child: the thread with the gate does not exist there."""
        if self._closes is not None:
            self._closes.detach()
        if self._connection is not None:
            # Never closed: SQLite may wait for a mutex of that thread, and closing would touch the parent's locks.
            _kept_for_ever.append(self._connection)
        self._gate, self._connection, self._closes, self._known = threading.Lock(), None, None, {}


def _lock_whole(descriptor: int) -> None:
    """Lock a file for writing, by the rules of SQLite. Raises BlockingIOError while another process uses the file."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_FIRST)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):  # POSIX allows either
            raise BlockingIOError(errno.EAGAIN, "database is locked") from error
        raise


def _is_busy(error: sqlite3.Error | OSError) -> bool:
    if isinstance(error, BlockingIOError):
        return True
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _make_private(path: Path) -> None:
    """Create a missing file, empty and for the owner alone from the first moment."""
    with suppress(FileExistsError, FileNotFoundError):  # the latter: SQLite says that the folder is missing
        try:
            os.mknod(path, 0o600 | stat.S_IFREG)  # without a descriptor: closing one would drop locks of this process
        except (AttributeError, PermissionError):  # Windows has no such call, and macOS allows it to root only
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def _overwrite_with_zeros(path: str) -> None:
    """Overwrite a file in place, down to the disk. Without effect for a missing file."""
    with suppress(FileNotFoundError), open(path, "r+b", buffering=0) as journal:
        left = os.fstat(journal.fileno()).st_size
        while left > 0:
            left -= journal.write(bytes(min(left, 1 << 20))) or 0
        os.fsync(journal.fileno())


def _time(seconds: float | None) -> datetime:
    return datetime.fromtimestamp(seconds or 0.0, UTC)


_key_files: weakref.WeakSet[KeyFile] = weakref.WeakSet()
_kept_for_ever: list[sqlite3.Connection] = []
_is_forked = False
_child_gate = threading.Lock()


def _after_fork_in_child() -> None:
    global _is_forked, _child_gate
    _is_forked, _child_gate = True, threading.Lock()
    for key_file in list(_key_files):
        key_file.begin_anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
