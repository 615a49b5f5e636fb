"""Faults of an SQLite file as a file: its location, the owners of the files beside it, its log, and its pages."""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator

from standfast._kits.operators.doctor.findings import Finding, build_finding
from standfast._src.base.errors import CorruptRecordError, StoreError, StoreUnavailableError
from standfast._src.sessions.backends.sqlite.database_file import LOCK_SUFFIX, has_reset_fault
from standfast._src.sessions.backends.sqlite.read_only import ReadOnlyFile
from standfast._src.sessions.backends.sqlite.schema import Tables, quote
from standfast._src.sessions.rules.generations import parse_generations
from standfast._src.sessions.rules.history import GENERATIONS, SEALED
from standfast._src.sessions.storage import Cell, ReadAnswer

LOG_BYTES_MAX = 64 << 20
# A log is folded back after some four megabytes. One large import makes a longer one, once; it is then shorter than
# the database it went into.

NETWORK_FILE_SYSTEMS = frozenset(
    [
        *("afs", "beegfs", "ceph", "cifs", "gfs2", "glusterfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "smb2"),
        *("smb3", "smbfs", "fuse.ceph", "fuse.gcsfuse", "fuse.glusterfs", "fuse.rclone", "fuse.s3fs", "fuse.sshfs"),
    ]
)
MOUNTS = "/proc/self/mountinfo"

FAULTS_MAX = 10
# How many faults of a damaged file are asked for: one is enough to know, and each may be a line for every row.

BESIDE = ("-wal", "-shm", "-journal", LOCK_SUFFIX)


def examine_surroundings(path: str, mounts: str | None = None) -> Iterator[Finding]:
    """Examine the file without opening it. `mounts`: the system's table of mounts, in Linux's format."""
    found = os.stat(path)
    kind = file_system_of(os.path.realpath(path), _mounts() if mounts is None else mounts)
    if kind in NETWORK_FILE_SYSTEMS:
        yield build_finding("network_file_system", "store", kind)
    for suffix in BESIDE:
        try:
            beside = os.stat(path + suffix)
        except OSError:
            continue
        if beside.st_uid != found.st_uid:
            detail = f"{os.path.basename(path)}{suffix}: user {beside.st_uid}, and {found.st_uid} owns the database"
            yield build_finding("foreign_owner", "store", detail)
        if suffix == "-wal" and beside.st_size > max(LOG_BYTES_MAX, found.st_size):
            yield build_finding("long_log", "store", f"{beside.st_size >> 20} MB beside {found.st_size >> 20} MB")


def _mounts() -> str:
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""  # another system than Linux: nothing is known, and nothing is said


def file_system_of(path: str, mounts: str) -> str:
    """Return the type of a path's file system; "" if unknown."""
    best, kind = "", ""
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        parts = fields.split(" ")
        if len(parts) < 5 or not rest:
            continue
        point = parts[4].encode(errors="surrogateescape").decode("unicode_escape")  # spaces are \040 there
        is_below = path == point or path.startswith(point.rstrip("/") + "/")
        if is_below and len(point) >= len(best):  # of two at one place, the later one hides the earlier
            best, kind = point, rest.split(" ")[0]
    return kind


def examine_contents(file: ReadOnlyFile, timeout_s: float) -> list[Finding]:
    """Run SQLite's integrity checks and find stray rows; in time proportional to the file."""
    try:
        return file.read_snapshot(lambda db, _: [*_damage(db), *_stray_rows(db, file.tables)], timeout_s)
    except StoreUnavailableError as error:
        kind = damage_of(error)
        if kind is None:
            raise
        return [build_finding(kind, "store", str(error.__cause__))]


def damage_of(error: StoreError) -> str | None:
    """Return the kind of finding for an error: damaged pages or a damaged layout; None for any other error."""
    cause = error.__cause__
    if isinstance(cause, UnicodeDecodeError):
        return "damaged_file"
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if not isinstance(cause, sqlite3.DatabaseError):
        return None
    return {sqlite3.SQLITE_CORRUPT: "damaged_file", sqlite3.SQLITE_ERROR: "damaged_layout"}.get(code)


def _damage(db: sqlite3.Connection) -> Iterator[Finding]:
    said = [
        bytes(line).decode(errors="replace") for (line,) in db.execute(f"PRAGMA main.integrity_check({FAULTS_MAX})")
    ]
    if said != ["ok"]:
        yield build_finding("damaged_file", "store", "; ".join(said))


def _stray_rows(db: sqlite3.Connection, tables: Tables) -> Iterator[Finding]:
    sessions, messages = quote(tables.sessions), quote(tables.messages)
    for session_id, count in db.execute(
        f"SELECT session_id, count(*) FROM {messages} m WHERE NOT EXISTS "
        f"(SELECT 1 FROM {sessions} s WHERE s.session_id = m.session_id) GROUP BY session_id"
    ).fetchall():
        named = _text(session_id)
        yield build_finding("rows_without_session", f"session {named!r}", f"{count} rows", session_id=named)
    cells, archive = quote(tables.own("cells")), quote(tables.own("archive"))
    kept: dict[str, set[int] | None] = {}
    for owner, value in db.execute(f"SELECT owner, value FROM {cells} WHERE name = ?", (GENERATIONS,)).fetchall():
        kept[_text(owner)[1:]] = _numbers_in(value)
    for session_id, number, count in db.execute(
        f"SELECT session_id, generation, count(*) FROM {archive} GROUP BY session_id, generation"
    ).fetchall():
        named = _text(session_id)
        known = kept.get(named, set())
        if known is not None and number not in known:
            detail = f"{count} rows of generation {number}"
            yield build_finding("rows_without_generation", f"session {named!r}", detail, session_id=named)


def _numbers_in(value: object) -> set[int] | None:
    """Return the generations named by a cell; None for a sealed or damaged cell."""
    if not isinstance(value, bytes) or value.startswith(SEALED):
        return None
    try:
        return {one.number for one in parse_generations(ReadAnswer(cells={GENERATIONS: Cell(value, alive=True)}))}
    except CorruptRecordError:
        return None


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def reset_fault(has_foreign_rows: bool) -> Iterator[Finding]:
    """Yield a finding if the process's SQLite can harm the file."""
    if has_reset_fault():
        kind = "unsafe_sqlite" if has_foreign_rows else "old_sqlite"
        yield build_finding(kind, "store", f"SQLite {sqlite3.sqlite_version}")
