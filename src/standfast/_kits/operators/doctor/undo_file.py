"""Undo file: the records to be removed by a repair, written and synced before their removal.

JSON lines. The first says what the file is and of which store; each further line is the repair of one session, with
every removed record, its bytes and its place; the last says that the repair is complete. A line cut by a crash is the
last line, and its repair was never begun. A file is never written over, and only its owner can read it: it holds what
people said.

A file that is read may be a stranger's: it is decoded into its types, and the store that it names is shown to a person
before it is opened.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from standfast._src.base.errors import NotFoundError, UndoFileError
from standfast._src.base.identifiers import is_name
from standfast._src.sessions.rules.record_repair import Removed, Repair
from standfast._src.sessions.storage import Range, Row, Tag

SCHEMA = "standfast.doctor-undo"
VERSION = 1

USE_IT = "Give the file that `standfast doctor --repair` has written."


@dataclass(frozen=True, slots=True)
class UndoContents:
    """Contents of an undo file."""

    store: str
    """The URL of the store, without a password."""
    repairs: tuple[tuple[str, Repair], ...]
    """Session ids, each with what was done there, in the order in which it was done."""
    is_whole: bool
    """True if the repair is complete; else it broke off, or the file was cut."""


class UndoFile:
    """Undo file being written. The first entry creates the file, so that an empty repair leaves none."""

    def __init__(self, path: str | os.PathLike[str], store_url: str) -> None:
        self.path, self._url = Path(path), store_url
        self._file: int | None = None
        self._count = 0

    @property
    def is_made(self) -> bool:
        """True after the first entry was written."""
        return self._file is not None

    def check(self) -> None:
        """Raise if a file of the same name exists already, or its folder is missing."""
        if self.path.exists():
            raise UndoFileError(
                f"there is already a file {str(self.path)!r}", "Give another name: none is written over."
            )
        if not self.path.parent.is_dir():
            raise UndoFileError(f"there is no folder {str(self.path.parent)!r}", "Make it, or give another name.")

    def add(self, session_id: str, repair: Repair) -> None:
        """Write the records of a repair before their removal; on return they are synced to disk."""
        if self._file is None:
            self._file = self._create()
            self._write({"schema": SCHEMA, "version": VERSION, "store": self._url})
        self._write({"session": session_id, **_as_json(repair)})
        self._count += 1

    def end(self) -> None:
        """Write the mark of a complete repair, and close the file."""
        if self._file is not None:
            self._write({"end": self._count})
        self.close()

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _create(self) -> int:
        try:
            made = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise self._unwritable(error) from error
        with contextlib.suppress(OSError):  # some systems cannot sync a folder
            folder = os.open(self.path.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        return made

    def _write(self, line: dict[str, Any]) -> None:
        assert self._file is not None
        data = json.dumps(line, ensure_ascii=True, separators=(",", ":")).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UndoFileError:
        return UndoFileError(
            f"{str(self.path)!r} could not be written ({error.strerror}); what is not in it was not repaired",
            "Give a path that can be written, with room for what is taken out, and repair again.",
        )


def _as_json(repair: Repair) -> dict[str, Any]:
    return {
        "repair": repair.repair_id,
        "mark": repair.mark,
        "generations": _bytes_as_json(repair.generations),
        "lease": _bytes_as_json(repair.lease),
        "next_generation": repair.next_generation,
        "parts": [list(part[:3]) for part in repair.parts],
        "moved": list(repair.moved),
        "removed": [
            {
                "record": one.row.ref,
                "data": _bytes_as_json(one.row.data),
                "tag": None if one.row.tag is None else list(one.row.tag),
                "reason": one.reason,
                "before": one.before,
                "chain": one.chain,
                "follower": one.follower,
            }
            for one in repair.removed
        ],
    }


def _bytes_as_json(data: bytes | None) -> str | dict[str, str] | None:
    """Return valid UTF-8 as text for human readers, and other bytes in base64."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


# --- reading ---------------------------------------------------------------------------------------------------------


def read_undo_file(path: str | os.PathLike[str]) -> UndoContents:
    """Read an undo file.

    Raises NotFoundError if there is none, UndoFileError if it is damaged, another file, or of a newer release.
    """
    shown = str(path)
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {shown!r}", USE_IT) from None
    except OSError as error:
        raise UndoFileError(f"{shown!r} cannot be read ({error.strerror})", USE_IT) from error
    lines = data.split(b"\n")
    cut = lines.pop()  # behind the last line end: nothing, or what a crash has cut
    if not lines:
        raise UndoFileError(f"{shown!r} is no undo file, or was cut before its first line ended", USE_IT)
    return UndoContents(*_contents(shown, lines, cut))


class _Base64(msgspec.Struct):
    base64: str


_Bytes = str | _Base64
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]


class _Header(msgspec.Struct):
    store: str


class _Removed(msgspec.Struct):
    record: _Number
    data: _Bytes
    tag: tuple[str, _Number, _Number] | None
    reason: str
    before: _Number
    chain: str
    follower: str


class _SessionLine(msgspec.Struct):
    session: str
    repair: str
    mark: str
    generations: _Bytes | None
    lease: _Bytes | None
    next_generation: _Number
    parts: list[tuple[_Number, _Number | None, _Number | None]]
    moved: list[_Number]
    removed: list[_Removed]


def _contents(shown: str, lines: list[bytes], cut: bytes) -> tuple[str, tuple[tuple[str, Repair], ...], bool]:
    parsed = [_parse_line(shown, number, line) for number, line in enumerate(lines, 1)]
    first = parsed[0]
    if first.get("schema") != SCHEMA:
        raise UndoFileError(f"{shown!r} is no undo file", USE_IT)
    if type(first.get("version")) is not int or first["version"] > VERSION:
        raise UndoFileError(
            f"{shown!r} is an undo file of version {first.get('version')} and this release knows {VERSION}",
            "Upgrade standfast.",
        )
    is_whole = not cut and "end" in parsed[-1]
    rest = parsed[1:-1] if is_whole else parsed[1:]
    try:
        return msgspec.convert(first, _Header).store, tuple(map(_repair_in, rest)), is_whole
    except (ValueError, RecursionError) as error:
        raise UndoFileError(f"{shown!r} is damaged ({error})", USE_IT) from error


def _parse_line(shown: str, number: int, line: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(line)  # as Python's json, but for halves of characters, which no store can hold
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise UndoFileError(f"line {number} of {shown!r} is damaged", USE_IT)
    return found


def _repair_in(given: dict[str, Any]) -> tuple[str, Repair]:
    """Decode the session and the repair of a line; raise ValueError for an invalid line."""
    line = msgspec.convert(given, _SessionLine)
    if not is_name(line.session) or not is_name(line.repair):
        raise ValueError("a session or a repair has no name")
    removed = [
        Removed(
            Row(one.record, _bytes_in(one.data), None if one.tag is None else Tag(*one.tag)),
            one.reason,
            one.before,
            one.chain,
            one.follower,
        )
        for one in line.removed
    ]
    repair = Repair(
        line.repair,
        line.mark,
        None if line.generations is None else _bytes_in(line.generations),
        None if line.lease is None else _bytes_in(line.lease),
        line.next_generation,
        tuple(removed),
        tuple(Range(*part) for part in line.parts),
        tuple(line.moved),
    )
    return line.session, repair


def _bytes_in(given: _Bytes) -> bytes:
    return given.encode() if isinstance(given, str) else base64.b64decode(given.base64, validate=True)
