"""Random keys of sessions, in an SQLite file of their own, so that one can be destroyed."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from standfast.backends.sealed.keys import ErasureReceipt, text_bytes
from standfast.ground.errors import SessionErasedError, StoreUnavailableError

__all__ = ["KeyFile"]

_TABLE = """
CREATE TABLE IF NOT EXISTS session_keys (
    tenant BLOB NOT NULL, scope BLOB NOT NULL, key BLOB, fingerprint TEXT NOT NULL, erased_at REAL,
    PRIMARY KEY (tenant, scope)) WITHOUT ROWID
"""
_BUSY_S = 10.0  # another process makes or destroys a key meanwhile: each is one small transaction


class KeyFile:
    """Keeps a key for each session in a file, apart from the store; see `SessionKeys`.

    Threads and processes of one machine may share it. It opens nothing without the secret the session was given; with
    it, and without this file, nothing opens either. Keep it out of the store's backups: a key that was destroyed is
    destroyed only if no copy is left.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.abspath(path))  # a forked child opens it again, perhaps from another folder
        self._gate = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._closes: weakref.finalize[..., KeyFile] | None = None
        self._pid = 0
        self._version = -1
        self._known: dict[tuple[bytes, bytes], bytes] = {}

    def key_of(self, tenant: str, scope: str, *, make: bool) -> bytes | None:
        """The key of a scope; made, and on the disk, before it is given. None if there is none and `make` is False."""
        place = text_bytes(tenant), text_bytes(scope)
        with self._opened() as connection:
            (version,) = connection.execute("PRAGMA data_version").fetchone()
            if version != self._version:  # somebody else has written: perhaps a key was destroyed
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
            if erased_at is not None:
                raise SessionErasedError(
                    f"{scope!r} was erased on {_time(erased_at).isoformat(timespec='seconds')}: its key was destroyed",
                    "Use another session id; what was erased cannot be read again.",
                )
            self._known[place] = bytes(key)
            return bytes(key)

    def destroy(self, tenant: str, scope: str) -> ErasureReceipt:
        """Overwrite the key in the file, and in what the file's journal still held of it."""
        session_id = scope.partition("/")[2]
        place = text_bytes(tenant), text_bytes(scope)
        try:
            self.key_of(tenant, scope, make=True)  # one that was never used is erased too: its id is closed
        except SessionErasedError:
            pass
        with self._opened() as connection:
            connection.execute(
                "UPDATE session_keys SET key = zeroblob(32), erased_at = ? "
                "WHERE tenant = ? AND scope = ? AND erased_at IS NULL", (time.time(), *place),
            )  # fmt: skip
            self._known.clear()
            row = self._row(connection, *place)
        assert row is not None
        return ErasureReceipt(session_id, tenant, row[1], _time(row[2]))

    def close(self) -> None:
        """Close the file; the next use opens it again."""
        with self._gate:
            if self._closes is not None and self._pid == os.getpid():
                self._closes()
            self._connection, self._closes, self._known = None, None, {}

    @staticmethod
    def _row(connection: sqlite3.Connection, tenant: bytes, scope: bytes) -> tuple[bytes, str, float | None] | None:
        found: tuple[bytes, str, float | None] | None = connection.execute(
            "SELECT key, fingerprint, erased_at FROM session_keys WHERE tenant = ? AND scope = ?", (tenant, scope)
        ).fetchone()
        return found

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """The file's connection, for one thread at a time; opened again in a forked child."""
        with self._gate:
            try:
                if self._connection is None or self._pid != os.getpid():
                    self._connection, self._pid, self._known = self._connected(), os.getpid(), {}
                    # Whoever drops it without a word has closed it: newer Pythons warn of a connection that nobody has.
                    self._closes = weakref.finalize(self, self._connection.close)
                yield self._connection
            except sqlite3.Error as error:
                raise StoreUnavailableError(
                    f"the key file {str(self.path)!r} cannot be used: {error}", "Check its folder, rights and disk."
                ) from error

    def _connected(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False)
        try:
            # A rollback journal that is deleted, and pages that are overwritten: a write-ahead log would keep a
            # destroyed key until it is written over.
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("PRAGMA synchronous = EXTRA")
            connection.execute(_TABLE)
            os.chmod(self.path, 0o600)
        except BaseException:
            connection.close()
            raise
        return connection


def _time(seconds: float | None) -> datetime:
    return datetime.fromtimestamp(seconds or 0.0, UTC)
