"""Database file: opening, detection of a replaced file, and safe checkpoints.

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
import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from functools import lru_cache
from urllib.parse import quote

from standfast._src.base.errors import StoreUnavailableError
from standfast._src.base.logs import session_logger as log
from standfast._src.sessions.backends.sqlite.sqlite_errors import replaced_file

try:
    import fcntl
except ImportError:  # pragma: no cover — Windows has no flock; the warning below says what that means
    fcntl = None  # type: ignore[assignment]


WRITER_BUSY_MS = 10
# How long SQLite itself waits for a lock before the writer checks for waiting callers. Short, because SQLite's own
# waiting ends in steps of 100 ms and cannot be interrupted.

READER_BUSY_MS = 5_000
# Readers of a log-mode database wait only while another process recovers or removes the log.

WHOLE_TRIES, WHOLE_PAUSE_S = 20, 0.05
# How long another program's checkpoint may take before a file that became smaller counts as cut.

MEMORY = ":memory:"
LOCK_SUFFIX = "-standfast-lock"

OLDEST_SQLITE = (3, 25, 0)  # nothing older is tested
OLDEST_TEXT = ".".join(map(str, OLDEST_SQLITE))

_warned: set[str] = set()

_left_logs: dict[str, tuple[_Identity, int, _Identity | None]] = {}
# Logs of files that were replaced while this process had them open, by path: which log, when it was last written, and
# of which file. When it was written is kept because a file system may give a new log the number of a deleted one.


def has_reset_fault(version: tuple[int, ...] = sqlite3.sqlite_version_info) -> bool:
    """Return whether the SQLite library can lose pages when a checkpoint meets a commit."""
    if not (3, 7, 0) <= version[:3] <= (3, 51, 2):
        return False
    return not (version[:2] == (3, 50) and version[2] >= 7) and not (version[:2] == (3, 44) and version[2] >= 6)


def warn_once(topic: str, text: str, *details: object) -> None:
    """Log a warning, once per process and topic."""
    if topic not in _warned:
        _warned.add(topic)
        log.warning(text, *details)


def warn_of_foreign_writer(path: str) -> None:
    """Warn once about a file shared with another program, whose checkpoints may damage the file."""
    if has_reset_fault():
        warn_once(
            "reset fault",
            "%s was made by another program. SQLite %s can damage a file when a program that does not know standfast's "
            "lock checkpoints it during a write; with SQLite 3.51.3 or newer it cannot. See docs/reference/sqlite.md.",
            path,
            sqlite3.sqlite_version,
        )


def connect(path: str) -> sqlite3.Connection:
    """A connection in which only explicit statements begin and end transactions, and text is read as bytes.

    Bytes, because a record with invalid UTF-8 must be a corrupt record and not the failure of a whole select (A14). It
    never creates the file: where one was lost it would put an empty one.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailableError(
            f"SQLite {sqlite3.sqlite_version} is too old", f"Use a Python with SQLite {OLDEST_TEXT} or newer."
        )
    return connect_with(path, "mode=rw")


def connect_with(path: str, options: str, busy_ms: int = WRITER_BUSY_MS) -> sqlite3.Connection:
    """As `connect`, with given options of SQLite's and time limit for a lock."""
    in_memory = path == MEMORY
    db = sqlite3.connect(
        path if in_memory else f"file:{quote(os.fsencode(path))}?{options}",
        timeout=busy_ms / 1000,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=256,
        uri=not in_memory,
    )
    db.text_factory = bytes
    if _can_distrust():
        db.execute("PRAGMA trusted_schema=OFF")  # what a stranger's file defines calls no function with effects
    return db


@lru_cache(maxsize=1)
def _can_distrust() -> bool:
    """Return whether our own indexes may call `json_extract` in an untrusted schema."""
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("PRAGMA trusted_schema=OFF")
        db.execute("CREATE TABLE t (a)")
        try:
            db.execute("CREATE INDEX i ON t (json_extract(a, '$.b'))")
            db.execute("INSERT INTO t VALUES ('{}')")
        except sqlite3.OperationalError:
            return False
        return True


def set_up_writer(db: sqlite3.Connection) -> None:
    """Configure durable commits to a log (A23), checkpoints by us alone, and overwriting of deleted contents.

    `secure_delete` is on in some builds of SQLite and off in others. An append takes the same time with either.
    """
    mode = db.execute("PRAGMA journal_mode=WAL").fetchone()[0]
    if mode != b"wal":
        warn_once(
            "journal mode", "SQLite could not switch to its write-ahead log (mode %s): readers wait for writers", mode
        )
    db.execute("PRAGMA synchronous=FULL")
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute("PRAGMA temp_store=MEMORY")
    db.execute("PRAGMA secure_delete=ON")


def set_up_reader(db: sqlite3.Connection) -> None:
    """Configure a connection without write access."""
    db.execute("PRAGMA query_only=ON")
    db.execute("PRAGMA wal_autocheckpoint=0")
    db.execute(f"PRAGMA busy_timeout={READER_BUSY_MS}")


class OpenedFile:
    """Detector of a file deleted or replaced under our connections.

    SQLite continues to write into a deleted file, or a deleted log: what it acknowledges is then lost with the process.
    And a file that another program emptied still has its name and its inode.
    """

    def __init__(self, path: str, mode: int | None = None) -> None:
        self.is_lost = False
        self._path, self._mode = path, mode
        self._identity: _Identity | None = None
        self._log: _Identity | None = None
        self._log_path = f"{path}-wal"
        self.log_bytes = 0  # how large the log was when last looked at
        self._bytes = 0
        self._folded: tuple[int, int] | None = None
        self._lock = threading.Lock()  # readers look while the writer's connection comes and goes

    @property
    def is_known(self) -> bool:
        """True once a connection has opened the file, so that a different file in its place is a replacement."""
        return self._identity is not None

    def make(self) -> None:
        """Create a missing file, readable by its owner alone unless a mode was given.

        A conversation is private, and SQLite would make its file readable for everybody. Its log gets the same mode.
        """
        make_file(self._path, self._mode)

    def check_names(self) -> None:
        """Refuse a file with a foreign log or with several names, before SQLite opens the file.

        SQLite puts a log beside the name by which a file was opened, and folds back whatever log it finds there. Under
        two names a file has two logs, and what one of them acknowledged is overwritten by the other. And the log of
        the file that stood here before would be folded into this one.
        """
        try:
            found = os.stat(self._path)
        except OSError:
            return  # SQLite says why
        if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
            raise StoreUnavailableError(
                f"{self._path!r} has {found.st_nlink} names (hard links), and SQLite keeps a log for each of them",
                "Keep one name and remove the others, or make them symbolic links; for a second copy, see "
                "docs/how-to/back-up-a-store.md.",
            )
        left = _left_logs.get(self._path)
        if left is None or left[2] == (found.st_dev, found.st_ino):
            return
        if left[:2] == _log_now(self._log_path):
            raise StoreUnavailableError(
                f"{self._path!r} was replaced while it was open, and the log of the file that it was still is there",
                f"Move {self._log_path!r} and the file that ends in -shm away, then open new sessions: with that log "
                "the new file would be overwritten.",
            )
        _left_logs.pop(self._path, None)

    def on_open(self) -> None:
        """Remember the identity of the opened file: from now on a different file under the name is a replacement."""
        if self._identity is None:
            self._identity = _identity(self._path)

    def check(self, db: sqlite3.Connection | None) -> None:
        """Raise if the file or its log was replaced; as `is_same`."""
        if not self.is_same(db):
            raise replaced_file(self._path)

    def was_replaced(self) -> bool:
        """Return whether an opened file was deleted or replaced, as far as visible without a connection."""
        return self.is_lost or (self.is_known and not self.is_same(None))

    def on_close(self) -> None:
        """Note that the writing connection is about to be closed: SQLite may remove the log and
        later create a new log.
        """
        with self._lock:
            self._log = None

    def is_same(self, db: sqlite3.Connection | None) -> bool:
        """Return whether file and log are still the opened ones and whole; once False, the answer stays False."""
        with self._lock:
            try:
                found = os.stat(self._path)
                log = None if self._log is None else os.stat(self._log_path)
            except OSError:
                self._lose()
                return False
            size, self.log_bytes = found.st_size, 0 if log is None else log.st_size
            is_other_log = log is not None and (log.st_dev, log.st_ino) != self._log
            if (found.st_dev, found.st_ino) != self._identity or is_other_log or not size:
                self._lose()
            elif size < self._bytes:
                if db is None:
                    return not self.is_lost  # whether it is whole can be asked once there is a connection
                self.is_lost = self.is_lost or not _is_whole(self._path, db, size)
            self._bytes = size
            return not self.is_lost

    def _lose(self) -> None:
        """Mark the file as lost, and remember our log, so that a later file of the same name is not opened with our
        log.
        """
        self.is_lost = True
        if (left := _log_now(self._log_path)) is not None and left[0] == self._log:
            _left_logs[self._path] = (*left, self._identity)

    def on_fold(self) -> None:
        """Remember the complete file: until the next commit only other programs write to the file."""
        with contextlib.suppress(OSError):
            found = os.stat(self._path)
            self._folded = found.st_size, found.st_mtime_ns

    def was_written_elsewhere(self) -> bool:
        """Return whether another program wrote to the complete file past the log, for example copied a backup over the
        file, which SQLite does not detect.
        """
        folded = self._folded
        if folded is None:
            return False
        try:
            found = os.stat(self._path)
        except OSError:
            return False
        return folded != (found.st_size, found.st_mtime_ns)

    def wrote(self) -> None:
        """Note that a commit was written to the log: from now on the log must not disappear."""
        self._folded = None
        if self._log is None:
            with self._lock:
                self._log = _identity(self._log_path)


_Identity = tuple[int, int]


def _identity(path: str) -> _Identity | None:
    """Return the identity of a file among files of the same name; None for a missing file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _log_now(path: str) -> tuple[_Identity, int] | None:
    """Return the log's identity and time of last change; None for a missing or empty log."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return ((found.st_dev, found.st_ino), found.st_mtime_ns) if found.st_size else None


def _is_whole(path: str, db: sqlite3.Connection, size: int) -> bool:
    """Return whether a file still holds all its pages after becoming smaller: another program may have vacuumed the
    file.

    Pages that only the log has, of this transaction or of later ones, are not missing. So where there are more pages
    than the file has room for, the file is asked alone, without its log: one that was cut is shorter than its own first
    page says. In the middle of a checkpoint that may seem so for a moment.
    """
    pages, page_bytes = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("page_count", "page_size"))
    if pages * page_bytes <= size:
        return True
    for _ in range(WHOLE_TRIES):
        with contextlib.suppress(sqlite3.Error):
            with contextlib.closing(connect_with(path, "mode=ro&immutable=1")) as alone:
                alone.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return True
        time.sleep(WHOLE_PAUSE_S)
    return False


def make_file(path: str, mode: int | None) -> None:
    """Create an empty file if missing: for its owner only, or with exactly the given mode."""
    try:
        _make(path)
    except OSError:
        return  # it is there; or it cannot be made, and SQLite says why
    if mode is not None:
        os.chmod(path, mode)


def _make(path: str) -> None:
    # Not opened and closed, where that can be helped: it would drop the locks of a connection of this process that
    # found the file in between. macOS lets only root make a file so, and Windows has no such call at all.
    with contextlib.suppress(AttributeError, PermissionError):
        os.mknod(path, 0o600 | stat.S_IFREG)
        return
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def checkpoint_under_way() -> sqlite3.OperationalError:
    """Build the error for another process's checkpoint: as SQLite's own "busy", which is retried."""
    error = sqlite3.OperationalError("another process is checkpointing")
    error.sqlite_errorcode = sqlite3.SQLITE_BUSY
    return error


class CheckpointLock:
    """Lock file beside a database, shared by commits and held exclusively by a checkpoint. Inactive without need.

    `share` and `unshare` are not a context manager: they run in every commit, and those cost more than the lock does.
    """

    def __init__(self, path: str) -> None:
        self._database = path
        self._needed = has_reset_fault() and _usable()
        self._held: list[int] = []

    def unshare(self) -> None:
        """Release the lock."""
        for descriptor in self._held if self._needed else ():
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    @contextlib.contextmanager
    def alone(self) -> Iterator[bool]:
        """Try to hold the lock exclusively; yield whether successful. Never waits: a commit may
        hold the lock for long.
        """
        held = self.share(alone=True)
        try:
            yield held
        finally:
            self.unshare()

    def share(self, *, alone: bool = False) -> bool:
        """Try to share the lock with other commits; return whether successful. Never waits: a checkpoint may be
        stopped.
        """
        if not self._needed:
            return True
        if not self._held:
            self._held.append(open_beside(self._database, f"{self._database}{LOCK_SUFFIX}"))
        try:
            for descriptor in self._held:
                fcntl.flock(descriptor, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unshare()
            return False
        return True

    def close(self) -> None:
        """Close the descriptors. The file stays, since another process may be waiting for the lock."""
        while self._held:
            os.close(self._held.pop())


def open_beside(database: str, path: str) -> int:
    """Open a file beside a database, for every user with write access: with the database's owner, group and mode.

    The mode is set, not asked for: a umask would take from a group what it may do with the database.
    """
    found = os.stat(database)
    flags = os.O_CLOEXEC | os.O_RDWR
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        try:
            return os.open(path, flags)
        except PermissionError:
            return os.open(path, os.O_CLOEXEC | os.O_RDONLY)  # enough to lock it
    for owner, group in ((found.st_uid, found.st_gid), (-1, found.st_gid)):
        try:
            os.fchown(descriptor, owner, group)
            break
        except PermissionError:
            continue  # only root gives a file away; its group is what another user of the database needs
    os.fchmod(descriptor, found.st_mode & 0o666)
    return descriptor


def _usable() -> bool:
    if fcntl is None:  # pragma: no cover — only where there is no flock
        warn_once("no flock", "this system has no flock: let only one process at a time write to a database file")
        return False
    return True


class Checkpoints:
    """Schedule of checkpoints: after enough pages, preferably while no caller waits.

    How long the log is cannot be asked without running a checkpoint, and its file never shrinks. So pages are estimated
    from the rows written, and counted where the file grows, which is what large rows make it do.
    """

    DUE_PAGES = 500  # when there is a pause
    OVERDUE_PAGES = 1_000  # SQLite's own default: a log of this length costs readers nothing that can be measured
    RETRY_PAGES = 250

    def __init__(self, file: OpenedFile, lock: CheckpointLock) -> None:
        self._file, self._lock = file, lock
        self._pages = 0
        self._log_bytes = 0
        self._is_folded = True

    def wrote(self, request_count: int, row_count: int) -> None:
        """Count a committed group."""
        self._is_folded = False
        self._pages += 4 + request_count + row_count // 8  # measured: 5.4 for one append, 100 for a group of 64

    @property
    def is_due(self) -> bool:
        """True if a checkpoint is due as soon as there is nothing else to do."""
        return self._pages >= self.DUE_PAGES

    def look(self, db: sqlite3.Connection, *, idle: bool) -> None:
        """Checkpoint if due, after the callers have their answers."""
        log_bytes = self._file.log_bytes  # 0: not in log mode, or nothing written yet
        self._pages += max(0, log_bytes - self._log_bytes) // 4_096
        self._log_bytes = log_bytes
        if self._pages >= (self.DUE_PAGES if idle else self.OVERDUE_PAGES):
            self.run(db)

    def empty_log(self, db: sqlite3.Connection) -> None:
        """Checkpoint and empty the log, unless another program is committing: the file is then complete.

        Emptied, because SQLite would fold a remaining log into a file put in place of this file.
        """
        if self._is_folded:
            return
        try:
            with self._lock.alone() as alone:
                if alone:
                    is_busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
                    self._is_folded = not is_busy
        except (sqlite3.Error, OSError) as error:
            log.warning("folding the log failed (%s); it is folded later", error)
        if self._is_folded:
            self._pages = self._log_bytes = 0
            self._file.on_fold()

    def run(self, db: sqlite3.Connection) -> None:
        """Checkpoint as far as readers allow. A failure does not fail any request."""
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
