"""One database file: opening it, noticing that it was replaced, and checkpointing it without harm.

SQLite 3.7.0 to 3.51.2 (3.50.7 and 3.44.6 have the fix too) can lose pages when one connection resets the log in a
commit while another checkpoints. So where the version has that fault, no connection of ours checkpoints by itself:
only a writer thread does, and it holds a lock file beside the database exclusively while every commit of ours holds it
shared. That protects standfast from standfast, in any number of processes. It cannot protect from programs that do not
know the lock, which is why a file that another program made is worth one warning.

No file of SQLite's is ever opened here by other means than SQLite: closing such a descriptor would drop every lock
that this process has on it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
from collections.abc import Iterator
from urllib.parse import quote

from standfast.ground.errors import StoreUnavailableError

try:
    import fcntl
except ImportError:  # pragma: no cover — Windows has no flock; the warning below says what that means
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("standfast.sessions")

WRITER_BUSY_MS = 10
# How long SQLite itself waits for a lock before the writer looks whether anybody still wants it. Short, because
# SQLite's own waiting ends in steps of 100 ms and cannot be interrupted.

READER_BUSY_MS = 5_000
# Readers of a log-mode database wait only while another process recovers or removes the log.

OLDEST_SQLITE = (3, 24, 0)
OLDEST_TEXT = ".".join(map(str, OLDEST_SQLITE))
# The first with ON CONFLICT ... DO UPDATE, which makes a session's row in one statement.

_warned: set[str] = set()


def has_reset_fault(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Whether this SQLite can lose pages when a checkpoint meets a commit."""
    if not (3, 7, 0) <= version[:3] <= (3, 51, 2):
        return False
    return not (version[:2] == (3, 50) and version[2] >= 7) and not (version[:2] == (3, 44) and version[2] >= 6)


def warn_once(topic: str, text: str, *details: object) -> None:
    """Log a warning, once per process and topic."""
    if topic not in _warned:
        _warned.add(topic)
        log.warning(text, *details)


def warn_of_foreign_writer(path: str) -> None:
    """Say, once, that a file another program also uses depends on that program's checkpoints too."""
    if has_reset_fault():
        warn_once(
            "reset fault",
            "%s was made by another program. SQLite %s can damage a file when a program that does not know standfast's "
            "lock checkpoints it during a write; with SQLite 3.51.3 or newer it cannot. See docs/reference/sqlite.md.",
            path,
            sqlite3.sqlite_version,
        )


def connect(path: str, *, create: bool = True) -> sqlite3.Connection:
    """A connection in which only explicit statements begin and end transactions, and text is read as bytes.

    Bytes, because a record with invalid UTF-8 must be a corrupt record and not the failure of a whole select (A14).
    Only the first connection of an engine may create the file: a later one would put an empty file where one was lost.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailableError(
            f"SQLite {sqlite3.sqlite_version} is too old", f"Use a Python with SQLite {OLDEST_TEXT} or newer."
        )
    db = sqlite3.connect(
        path if create else f"file:{quote(os.fsencode(path))}?mode=rw",
        timeout=WRITER_BUSY_MS / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=not create,
    )
    db.text_factory = bytes
    return db


def set_up_writer(db: sqlite3.Connection) -> None:
    """Durable commits to a log, and no checkpoint but our own."""
    mode = db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != b"wal":
        warn_once(
            "journal mode", "SQLite could not switch to its write-ahead log (mode %s): readers wait for writers", mode
        )
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute("PRAGMA temp_store=MEMORY")


def set_up_reader(db: sqlite3.Connection) -> None:
    """A connection that cannot write, not even by mistake."""
    db.execute("PRAGMA query_only=ON")
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute(f"PRAGMA busy_timeout={READER_BUSY_MS}")


def identity(path: str) -> tuple[int, int] | None:
    """What tells this file from another of the same name; None if there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def checkpoint_under_way() -> sqlite3.OperationalError:
    """What SQLite itself would say if it knew that lock."""
    error = sqlite3.OperationalError("another process is checkpointing")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


class CheckpointLock:
    """The lock file beside a database: commits share it, a checkpoint has it alone. Nothing where it is not needed.

    `share` and `unshare` are not a context manager: they run in every commit, and those cost more than the lock does.
    """

    def __init__(self, path: str) -> None:
        self._path = f"{path}-standfast-lock"
        self._database = path
        self._needed = has_reset_fault() and _usable()
        self._fd: int | None = None

    def _descriptor(self) -> int:
        if self._fd is None:
            mode = os.stat(self._database).st_mode & 0o666  # whoever may write the database may take its lock
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        return self._fd

    def share(self) -> bool:
        """Try to hold it together with other commits; whether that worked. Never waits: a checkpoint may be stopped."""
        if self._needed:
            try:
                fcntl.flock(self._descriptor(), fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def unshare(self) -> None:
        """Let go of it."""
        if self._needed and self._fd is not None:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Try to hold it alone; gives whether that worked. Never waits: another commit may hold it for long."""
        if not self._needed:
            yield True
            return
        descriptor = self._descriptor()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        try:
            yield True
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def close(self) -> None:
        """Give the descriptor back; the file stays, since another process may be waiting on it."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _usable() -> bool:
    if fcntl is None:  # pragma: no cover — only where there is no flock
        warn_once("no flock", "this system has no flock: let only one process at a time write to a database file")
        return False
    return True


class Checkpoints:
    """When the log is folded back into the database: after enough pages, and rather when nobody waits.

    How long the log is cannot be asked without running a checkpoint, and its file never shrinks. So pages are estimated
    from the rows written, and counted where the file grows, which is what large rows make it do.
    """

    DUE_PAGES = 1_000  # SQLite's own default: a log of this length costs readers nothing that can be measured
    OVERDUE_PAGES = 4_000
    RETRY_PAGES = 250

    def __init__(self, path: str, lock: CheckpointLock) -> None:
        self._log_path = f"{path}-wal"
        self._lock = lock
        self._pages = 0
        self._log_bytes = 0

    def wrote(self, request_count: int, row_count: int) -> None:
        """Count one committed group."""
        self._pages += 4 + 3 * request_count + row_count // 4

    def look(self, db: sqlite3.Connection, *, idle: bool) -> None:
        """Checkpoint if it is time to; after the callers have their answers."""
        try:
            log_bytes = os.stat(self._log_path).st_size
        except OSError:
            log_bytes = 0  # not in log mode, or nothing written yet
        self._pages += max(0, log_bytes - self._log_bytes) // 4_096
        self._log_bytes = log_bytes
        if self._pages >= (self.DUE_PAGES if idle else self.OVERDUE_PAGES):
            self.run(db)

    def run(self, db: sqlite3.Connection) -> None:
        """Fold the log back as far as readers allow. Its failure is no failure of any request."""
        try:
            with self._lock.alone() as alone:
                if not alone:
                    self._pages = self.DUE_PAGES - self.RETRY_PAGES
                    return
                _, logged, done = db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except (sqlite3.Error, OSError) as error:
            log.warning("a checkpoint failed (%s); the next one will be tried later", error)
            self._pages = self.DUE_PAGES - self.RETRY_PAGES
            return
        # A log that could not be folded back whole because of a long read is tried again soon.
        self._pages = 0 if done == logged else self.DUE_PAGES - self.RETRY_PAGES
