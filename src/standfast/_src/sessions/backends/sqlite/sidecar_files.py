"""Files beside a database file, and the way of reading without creating any (see `read_only`)."""

from __future__ import annotations

import os
import time
from typing import Literal, NamedTuple

from standfast._src.base.errors import NotADatabaseError, StoreNotFoundError, StoreUnavailableError

How = Literal["immutable", "ro", "copy"]

TICK_S = 0.02
# File systems tell times in steps of some milliseconds: two changes in one step look like one. A file that changed a
# moment ago is given this long, so that a further change must show.


class SidecarFiles(NamedTuple):
    """Outside view of a file and its sidecar files. Equal views mean no write in between."""

    device: int
    inode: int
    size: int
    changed_ns: int
    log_bytes: int | None
    has_memory: bool
    journal_bytes: int | None

    def how(self) -> How:
        """Return the way to read the file without creating anything."""
        if self.log_bytes is not None and self.has_memory:
            return "ro"
        if self.log_bytes:
            return "copy"
        return "ro" if self.journal_bytes else "immutable"

    def is_fresh(self) -> bool:
        """Return whether the file changed so recently that a further change might not show."""
        return -1.0 < time.time() - self.changed_ns / 1e9 < TICK_S


def find_sidecars(path: str) -> SidecarFiles:
    """Inspect the file and its sidecar files; raise StoreNotFoundError, or the error for a path without a readable
    file.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        raise StoreNotFoundError(
            f"there is no file {path!r}", "Check the path; nothing is made where a store is only looked at."
        ) from None
    except OSError as error:
        raise StoreUnavailableError(
            f"{path!r} cannot be looked at ({error.strerror})", "Check the path, its folders' permissions and its disk."
        ) from error
    check_file(path)
    log, journal = _size(f"{path}-wal"), _size(f"{path}-journal")
    has_memory = _size(f"{path}-shm") is not None
    return SidecarFiles(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, log, has_memory, journal)


def check_file(path: str) -> None:
    """Raise for a folder, or a file without read permission."""
    if os.path.isdir(path):
        raise NotADatabaseError(f"{path!r} is a folder", "Give the path of the database file in it.")
    if not os.access(path, os.R_OK):
        raise StoreUnavailableError(
            f"{path!r} may not be read by this user", "Run as the user the file belongs to, or have it made readable."
        )


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size
    except OSError:
        return None
