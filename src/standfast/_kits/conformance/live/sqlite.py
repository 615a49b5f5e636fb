"""Verification of an SQLite file: in a copy beside it or, on request, in separate tables of the file."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time

from standfast._kits.conformance.backends.sqlite import SQLiteBackend
from standfast._kits.conformance.live.scratch_space import HARMLESS, PREFIX, Leftover, Site, base_of, new_name
from standfast._kits.operators.store_url import StoreURL, only
from standfast._src.base.errors import NotADatabaseError, StoreFullError, StoreUnavailableError
from standfast._src.sessions.backends.sqlite.read_only import AnyFile, ReadOnlyFile
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.backends.sqlite.scratch_tables import drop_tables
from standfast._src.sessions.backends.sqlite.sidecar_files import find_sidecars

try:
    import fcntl
except ImportError:  # pragma: no cover — Windows has no flock: there, a folder that is left is never taken for dead
    fcntl = None  # type: ignore[assignment]

ROOM_BYTES = 100_000_000
# What the checks write, generously; the copy of the file comes to it.

MARK = "in-use"

REMOVALS_MAX = 500  # each finds less to do: so many logs cannot be closing at once


IN_PLACE = HARMLESS
"""The file itself: checks act through sessions only, and open no connection without standfast's lock."""

COPIED = HARMLESS | {
    "processes", "import", "bad_names", "stall", "records",
    "inject_record", "damage_newest", "shift_times", "stored_times", "watch_durability",
}  # fmt: skip
"""A copy for this verification only: checks may damage records, kill processes, and hold its lock."""

THROUGH_SQLALCHEMY = COPIED - {"stall", "shift_times", "stored_times", "watch_durability"}


class FileSite(Site):
    """A folder beside the file, which says that a scratch name is in use and holds the copy."""

    def __init__(self, url: StoreURL, live: SQLiteBackend, *, in_place: bool, timeout_s: float) -> None:
        given = only(url, "sessions_table", "messages_table")
        self._path = os.path.abspath(url.path)
        find_sidecars(self._path)  # a path that does not exist, or is no file
        tables = Tables.of(given.get("sessions_table", "agent_sessions"), given.get("messages_table", "agent_messages"))
        self._messages = "" if not url.driver else given.get("messages_table", "agent_messages")
        self._reading: ReadOnlyFile = (AnyFile if url.driver else ReadOnlyFile)(self._path, tables)
        self._in_place, self._timeout_s = in_place, timeout_s
        self._held: int | None = None
        live.use_file(self._path)
        live.permitted = IN_PLACE if in_place else THROUGH_SQLALCHEMY if url.driver else COPIED
        live.drops_tables = in_place
        self._live = live
        super().__init__(live)
        self._describe()

    def _describe(self) -> None:
        name, folder = os.path.basename(self._path), f"{os.path.basename(self._path)}-{PREFIX}…"
        if self._in_place:
            self.where = f"{self._path} itself, in tables whose names begin with {PREFIX}"
            self.writes = (
                f"Some 200 tables in {name}, one set after another, with some thousand small rows; each is dropped "
                "after its check. Your tables are neither read nor written.",
                f"A folder {folder}/ beside it while it runs. If it was not so before, the file is in log mode (WAL) "
                "afterwards, and it stays as large as it got: the room is used again.",
            )
        else:
            size = os.stat(self._path).st_size
            self.where = f"a copy of {self._path} ({size / 1e6:.1f} MB) in a folder beside it"
            self.writes = (
                f"A folder {folder}/ beside {name}, which only this user can read, with a copy of it and what the "
                "checks write; it is removed afterwards.",
                f"{name} itself is read once and not changed.",
            )

    def look(self) -> None:
        """Raise if the file was deleted, is not a database, or has no conversations."""
        if not self._messages:
            self._reading.layout(self._timeout_s)
        elif self._messages not in self._reading.table_names(self._messages, self._timeout_s):
            raise NotADatabaseError(
                f"{self._path!r} has no table {self._messages!r}: no conversations are kept there",
                "Give the file that SQLAlchemySession uses, and its tables (?messages_table=…).",
            )

    def close(self) -> None:
        """Close the connection that was only looked through."""
        self._reading.close()

    # --- which are in use

    def _folder(self, name: str) -> str:
        return f"{self._path}-{name}"

    def leftovers(self) -> list[Leftover]:
        """Return folders beside the file, and scratch tables in it; dead if no process holds the lock in the folder."""
        beside = os.path.basename(self._path) + "-"
        names = {
            base_of(entry.name[len(beside) :])
            for entry in os.scandir(os.path.dirname(self._path))
            if entry.name.startswith(beside) and entry.is_dir(follow_symlinks=False)
        }
        if self._in_place:
            names |= {base_of(name) for name in self._reading.table_names(PREFIX, self._timeout_s)}
        return [Leftover(name, self._is_dead(name)) for name in sorted(filter(None, names))]

    def _is_dead(self, name: str) -> bool:
        try:
            descriptor = os.open(os.path.join(self._folder(name), MARK), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return True
        except OSError:
            return False  # another user's: theirs to remove
        try:
            return _try_lock(descriptor)
        finally:
            os.close(descriptor)

    def begin(self) -> None:
        """Make the folder, hold its lock, and copy the file into it."""
        self._check_room()
        while self._held is None:
            self._held = self._try_create(new_name())
        self._live.scratch = self.name
        if not self._in_place:
            copy = os.path.join(self._folder(self.name), "copy.db")
            self._reading.copy_to(copy, max(self._timeout_s, 600))
            self._live.use_file(copy)

    def _try_create(self, name: str) -> int | None:
        """Return the lock of a new folder; None if a cleanup was faster."""
        folder = self._folder(name)
        try:
            os.mkdir(folder, 0o700)
        except OSError as error:
            raise StoreUnavailableError(
                f"no folder can be made beside {self._path!r} ({error.strerror})",
                "Verify as a user who may write there, or a copy of the file elsewhere.",
            ) from error
        self.name = name
        mark = os.path.join(folder, MARK)
        descriptor = os.open(mark, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if fcntl is None or _try_lock(descriptor):
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(descriptor), os.stat(mark)):
                    return descriptor
        os.close(descriptor)
        return None

    def _check_room(self) -> None:
        needed = ROOM_BYTES + (0 if self._in_place else os.stat(self._path).st_size)
        free = shutil.disk_usage(os.path.dirname(self._path)).free
        if free < needed:
            raise StoreFullError(
                f"the disk of {self._path!r} has {free / 1e6:.0f} MB left, and verifying takes {needed / 1e6:.0f} MB",
                "Make room, or verify a copy of the file on another disk.",
            )

    # --- removing

    def remove(self, name: str) -> None:
        """Drop the tables of the name, if the file itself is verified, and remove its folder."""
        assert base_of(name) == name, name
        if self._in_place:
            drop_tables(self._path, f"{name}_", self._timeout_s)
        folder, descriptor = self._folder(name), -1
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(os.path.join(folder, MARK), os.O_RDWR | os.O_CLOEXEC)
        try:
            if descriptor < 0 or name == self.name or _try_lock(descriptor):
                remove_folder(folder)
        finally:
            if descriptor >= 0:
                os.close(descriptor)

    def end(self) -> None:
        """Remove our own, and then let its lock go."""
        try:
            if self.name:
                self.remove(self.name)
        finally:
            if self._held is not None:
                os.close(self._held)
                self._held = None


def remove_folder(folder: str) -> None:
    """Remove a folder in which just closed connections may still write or remove a log."""
    for left in reversed(range(REMOVALS_MAX)):
        try:
            shutil.rmtree(folder)
        except OSError as error:  # what it was about to remove has gone, or something came into what it had emptied
            if not os.path.lexists(folder):
                return
            if not left or error.errno not in (errno.ENOENT, errno.ENOTEMPTY):
                raise
            time.sleep(0.01)
        else:
            return


def _try_lock(descriptor: int) -> bool:
    """Return True if this process now holds the lock, because no other does."""
    if fcntl is None:  # pragma: no cover — see above
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
