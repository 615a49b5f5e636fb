"""A backend for audit trails: sessions and saved runs in files that are only ever added to.

Every step of every conversation is a line: what was appended, popped, compacted, cleared, decided, and when. Each line
begins with a digest of itself and of the line before it, so that one that was changed, taken out or put in between is
noticed. `python audit_backend.py FOLDER` tells what happened.

What a session holds now is what comes of doing all steps again, in memory. So the store is a log, and needs of it only
the entries behind a number, and to add one under the next number.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import sys
import time
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from standfast._src.base.errors import CorruptRecordError, StoreFullError, StoreTimeoutError
from standfast._src.sessions.backends.memory.memory_storage import MemoryStore
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor, get_or_create_executor
from standfast._src.sessions.storage import (
    Addition,
    Arrange,
    CommitRequest,
    Done,
    KeyUpdate,
    Load,
    Name,
    Range,
    ReadAnswer,
    Refused,
    Row,
    Tag,
)

FILE_BYTES_MAX = 64_000_000
"""How long a file gets before the next one is begun: old ones can then be moved to storage that cannot be written."""


class AuditSession(StoredSession):
    """A conversation in a folder of trails. Any number of objects, threads, loops and processes may share it."""

    def __init__(self, session_id: str, folder: str | Path, **options: Any) -> None:
        super().__init__(session_id, **options)
        self.folder = os.path.abspath(folder)
        self._shared: ThreadedExecutor | None = None

    def _store_key(self) -> Hashable:
        return ("audit", os.path.realpath(self.folder))

    def _carrier(self) -> Executor:
        if self._shared is None:
            folder = Path(self.folder)
            self._shared = get_or_create_executor(
                self._store_key(), lambda: ThreadedExecutor(lambda: LogStore(Trail(folder)))
            )
        return self._shared

    def _another(self, new_id: str) -> AuditSession:
        return AuditSession(new_id, self.folder, session_settings=self._copied_settings(), timeout_s=self.timeout_s)


class State(MemoryStore):
    """What comes of doing all steps of a log. The same steps give the same state, in every process."""

    _at = 0.0

    def _wall(self) -> float:
        return self._at  # when the step was done, not when it is done again

    def refusal(self, step: CommitRequest) -> Refused | None:
        """What the step is refused with; None if all its conditions hold."""
        found = (self._find_refusal(place, change) for place, change in enumerate(step))
        return next((one for one in found if one is not None), None)

    def do(self, entry: bytes) -> Done | Refused:
        """Do what an entry says. Conditions are not in it: it would not be in the log if they had not held."""
        found = json.loads(entry)
        self._at = found["at"]
        return self.commit([_change(one) for one in found["changes"]])


class LogStore:
    """A log as a store: what `standfast._src.sessions.storage.Store` asks for."""

    loses_answers = False

    def __init__(self, log: Trail) -> None:
        self._log, self._state = log, State()

    def _now(self) -> State:
        """The state with what others have added."""
        for entry in self._log.unread():
            self._state.do(entry)
        return self._state

    def look(self, look: Any) -> ReadAnswer:
        with self._log.alone():
            return self._now().look(look)

    def listing(self, kind: Any, **wanted: Any) -> Any:
        with self._log.alone():
            return self._now().listing(kind, **wanted)

    def count(self, kind: Any) -> int:
        with self._log.alone():
            return self._now().count(kind)

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Write the step into the log if all its conditions hold; it has happened when it is there."""
        with self._log.alone():
            refused = self._now().refusal(step)
            if refused is not None:
                return refused
            found = {"at": time.time(), "changes": [_told(change) for change in step]}
            entry = json.dumps(found, separators=(",", ":")).encode()
            self._log.add(entry)
            return self._state.do(entry)

    def close(self) -> None:
        self._log.close()


# --- a step as text: what is no UTF-8 is escaped, and comes back as it was -------------------------------------------


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _bytes(text: str | None) -> Any:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _told_rows(rows: Sequence[tuple[bytes, Tag]]) -> list[Any]:
    return [(_text(data), tag) for data, tag in rows]


def _told(change: KeyUpdate) -> dict[str, Any]:
    arrange, load = change.arrange or Arrange([]), change.load or Load()
    boxes = {str(box): _told_rows(rows) for box, rows in load.boxes.items()}
    live = [
        part if isinstance(part, Range) else {"new": [(_text(data), tag) for data, tag in part]}
        for part in arrange.live
    ]
    found: dict[str, Any] = {
        "remove": change.remove,
        "wipe": change.wipe,
        "drop": list(change.drop),
        "arrange": change.arrange and (live, arrange.box, arrange.keep, arrange.forget),
        "back": [(row.ref, _text(row.data), row.tag) for row in change.back],
        "push": _told_rows(change.push),
        "load": change.load and (_told_rows(load.live), list(load.times), boxes, load.created),
        "sweep": change.sweep,
        "put": {name: _text(value) for name, value in change.put.items()},
        "add": {name: one.n for name, one in change.add.items()},
        "touch": change.touch,
        "labels": None if change.labels is None else dict(change.labels),
    }
    # What is empty is left out: nearly always it is what a change does not do. (Labels and a wipe may be empty.)
    told = {key: value for key, value in found.items() if value or (value is not None and key in ("labels", "wipe"))}
    return {"name": change.name, **told}


def _change(found: dict[str, Any]) -> KeyUpdate:
    return KeyUpdate(
        Name(*found["name"]),
        remove=found.get("remove", False),
        wipe=tuple(found["wipe"]) if "wipe" in found else None,
        drop=found.get("drop", []),
        arrange=_arrange(*found["arrange"]) if "arrange" in found else None,
        back=[Row(ref, _bytes(text), None if tag is None else Tag(*tag)) for ref, text, tag in found.get("back", [])],
        push=_rows(found.get("push", [])),
        load=_load(*found["load"]) if "load" in found else None,
        sweep=tuple(found.get("sweep", ())),
        put={name: _bytes(text) for name, text in found.get("put", {}).items()},
        add={name: Addition(n) for name, n in found.get("add", {}).items()},
        touch=found.get("touch", False),
        labels=found.get("labels"),
    )


def _arrange(live: list[Any], box: int, keep: list[Any], forget: list[int]) -> Arrange:
    parts = [_rows(part["new"]) if isinstance(part, dict) else _range(part) for part in live]
    return Arrange(parts, box, [_range(part) for part in keep], forget)


def _load(live: list[Any], times: list[float | None], boxes: dict[str, Any], created: float | None) -> Load:
    return Load(_rows(live), times, {int(box): _rows(rows) for box, rows in boxes.items()}, created)


def _range(found: list[Any]) -> Range:
    box, after, upto, replaces, of = found
    return Range(box, after, upto, replaces, None if of is None else Name(*of))


def _rows(found: list[Any]) -> list[tuple[bytes, Tag]]:
    return [(_bytes(text), Tag(*tag)) for text, tag in found]


class Trail:
    """A log in files `trail-000001`, `trail-000002`, …, for one process at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: BinaryIO | None = None
        self._file_number, self._read_to, self._digest = 1, 0, "0" * 64

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock, or say that somebody else does: whoever waits is asked again until its deadline."""
        if self._lock is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(self._folder / "lock", "ab")  # noqa: SIM115 — kept open, and given back by close
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreTimeoutError(f"another process is using {self._folder}", "Ask again.") from None
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def unread(self) -> Iterator[bytes]:
        """The entries that were added since this was last asked."""
        while True:
            path, following = (self._folder / f"trail-{self._file_number + more:06}" for more in (0, 1))
            if path.exists() and path.stat().st_size > self._read_to:
                with open(path, "rb") as file:
                    file.seek(self._read_to)
                    yield from self._whole_lines(file)
            if not following.exists():
                return
            self._file_number, self._read_to = self._file_number + 1, 0

    def _whole_lines(self, file: BinaryIO) -> Iterator[bytes]:
        for line in file:
            if not line.endswith(b"\n"):
                return  # its writer was killed; whoever writes next ends the line, and it stays as it is
            self._read_to += len(line)
            digest, _, entry = line[:-1].partition(b" ")
            wanted = _chained(self._digest, entry)
            if digest.decode("latin-1") == wanted:
                self._digest = wanted
                yield entry
            elif _is_whole(entry):
                raise CorruptRecordError(
                    f"{file.name} was changed at byte {self._read_to - len(line)}: the trail does not hold together",
                    "Compare it with a copy. Nothing is read or written until it is as it was.",
                )

    def add(self, entry: bytes) -> None:
        """Add a line and wait for the disk. Whoever adds one holds the lock and has read all that was there."""
        if self._read_to > FILE_BYTES_MAX:
            self._file_number, self._read_to = self._file_number + 1, 0
        path, digest = self._folder / f"trail-{self._file_number:06}", _chained(self._digest, entry)
        try:
            with open(path, "ab", buffering=0) as file:  # else closing it would try again what has been refused
                torn = file.tell() > self._read_to  # what a killed process left: its line is ended, and stays
                line = b"%s%s %s\n" % (b"\n" if torn else b"", digest.encode(), entry)
                if file.write(line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(file.fileno())
            if not self._read_to:
                _sync(self._folder)  # a new file: its name must be durable too
        except OSError as error:
            raise StoreFullError(f"{path} could not be written: {error.strerror}", "Look at the disk.") from error
        self._read_to = path.stat().st_size
        self._digest = digest

    def close(self) -> None:
        """Give the lock's file back."""
        if self._lock is not None:
            self._lock.close()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


def _is_whole(entry: bytes) -> bool:
    try:
        return isinstance(json.loads(entry), dict)
    except ValueError:
        return False  # no part of an object is one: this line was torn


def _chained(before: str, entry: bytes) -> str:
    return hashlib.sha256(before.encode() + entry).hexdigest()


def tell(folder: Path) -> Iterator[str]:
    """What happened, a line for each change; raises CorruptRecordError where somebody has changed the trail."""
    for entry in Trail(folder).unread():
        found = json.loads(entry)
        for change in found["changes"]:
            kind, name = change.pop("name")
            said = ", ".join(f"{key} {json.dumps(value)}" for key, value in change.items() if value)
            yield f"{found['at']:.3f} {kind} {name!r}: {said}"


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        print("\n".join(tell(Path(folder))))
