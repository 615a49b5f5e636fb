"""A backend on the standard library's `dbm`: sessions and saved runs in one folder, for any number of processes.

`docs/how-to/write-a-backend.md` explains what a backend has to do; this is one, written from that page.

A `dbm` file stores bytes by key and nothing else: no transaction, and what a killed process leaves of it is anybody's
guess. So it is never written in place. What changes goes to a journal, one line per step, and every process reads what
others have added before it looks. Now and then the journal is folded into a new `dbm` file, and a file named CURRENT is
replaced to say so: whoever is killed at any moment leaves the old state or the new one.
"""

from __future__ import annotations

import dbm
import fcntl
import json
import os
import shutil
import time
import zlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

from standfast._src.base.errors import NotFoundError, StoreTimeoutError
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.client.threaded_executor import ThreadedExecutor, get_or_create_executor
from standfast._src.sessions.storage import (
    Arrange,
    Cell,
    CommitRequest,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Name,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Tag,
)
from standfast._src.sessions.storage_helpers import is_above, sum_value, value_at

FOLD_BYTES = 4_000_000
"""How long the journal may get before it is folded into a new file."""


class DbmSession(StoredSession):
    """A conversation in a folder. Any number of objects, threads, loops and processes may share it."""

    def __init__(self, session_id: str, folder: str | Path, **options: Any) -> None:
        super().__init__(session_id, **options)
        self.folder = os.path.abspath(folder)
        self._shared: ThreadedExecutor | None = None

    def _store_key(self) -> Hashable:
        return ("dbm", os.path.realpath(self.folder))

    def _carrier(self) -> Executor:
        if self._shared is None:
            folder = self.folder
            self._shared = get_or_create_executor(self._store_key(), lambda: ThreadedExecutor(lambda: DbmStore(folder)))
        return self._shared

    def _another(self, new_id: str) -> Self:
        options = {"session_settings": self._copied_settings(), "timeout_s": self.timeout_s}
        return type(self)(new_id, self.folder, **options)

    def close(self) -> Any:
        done = super().close()
        self._shared = None  # the last session of a folder takes the thread with it
        return done


class DbmStore:
    """What the port asks for, on keys and values."""

    loses_answers = False

    def __init__(self, folder: str) -> None:
        self._files = Files(Path(folder))

    def close(self) -> None:
        """Give the files back."""
        self._files.close()

    def look(self, look: ReadRequest) -> ReadAnswer:
        """Read all that is asked for, at one instant."""
        with self._files.alone():
            stored = Stored(self._files, look.name)
            boxes = tuple(stored.rows(wanted) for wanted in look.rows)
            if look.only_data:
                return ReadAnswer(data=[row.data for row in boxes[0]])
            names = {*look.cells, *(cell for cell in stored.cells if cell.startswith(look.prefixes or ("\0",)))}
            return ReadAnswer(
                mark=stored.mark(),
                now=time.time(),
                epoch=stored.epoch,
                created=stored.created,
                updated=stored.updated,
                labels=stored.labels,
                cells={name: cell for name in names if (cell := stored.cell(name)) is not None},
                rows=boxes,
                upto=None if look.upto is None else stored.upto(look.upto),
                count=sum(last - first + 1 for first, last in stored.boxes.get(0, [])),
                times=tuple([None] * len(rows) for rows in boxes),
            )

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Do the whole step if all conditions hold; durable when it returns."""
        with self._files.alone():
            names = {change.name: Stored(self._files, change.name) for change in step}
            for place, change in enumerate(step):
                refused = names[change.name].refused(place, change)
                if refused is not None:
                    return refused
            marks = [names[change.name].change(change) for change in step]
            for stored in names.values():
                stored.save()
            self._files.write()
            return Done(tuple(marks))

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """Names of a kind with these labels, newest change first."""
        if after is not None and not (after.isascii() and after.isdigit()):
            raise NotFoundError(f"{after!r} is no cursor of a listing", "Use the cursor of the page before.")
        found: list[Listed] = []
        with self._files.alone():
            order = sorted(((change, name) for name, change in self._files.changes.items()), reverse=True)
            for change, name in order:
                if len(found) == limit:
                    break
                if name.kind != kind or (after is not None and change >= int(after)):
                    continue
                stored = Stored(self._files, name)
                if stored.created is not None and stored.updated is not None and stored.has(labels):
                    found.append(Listed(name.id, stored.created, stored.updated, stored.labels, str(change)))
        return found

    def count(self, kind: Kind) -> int:
        """How many names of a kind there are."""
        with self._files.alone():
            return sum(name.kind == kind for name in self._files.changes)


class Stored:
    """One name as it is stored, and every way it can change. A row or a cell is a key of its own."""

    def __init__(self, files: Files, name: Name) -> None:
        self._files, self._name = files, name
        found = json.loads(files.get(_key(name)) or b"{}")
        self.edition: int = found.get("edition", 0)
        self.epoch: str = found.get("epoch", "")
        self.created: float | None = found.get("created")
        self.updated: float | None = found.get("updated")
        self.change_number: int = found.get("change", 0)
        self.labels: dict[str, str] = found.get("labels", {})
        self.cells: dict[str, str] = found.get("cells", {})  # which there are, and the epoch each was written in
        # Refs of each box, as runs of consecutive ones: a history is mostly one run, so this stays short.
        self.boxes: dict[int, list[list[int]]] = {int(box): runs for box, runs in found.get("boxes", {}).items()}
        self._is_gone = False

    # --- reading ---------------------------------------------------------------------------------------------------

    def refs(self, box: int) -> list[int]:
        return [ref for first, last in self.boxes.get(box, []) for ref in range(first, last + 1)]

    def row(self, box: int, ref: int) -> Row:
        tag, _, data = (self._files.get(_key(self._name, box, ref)) or b"").partition(b"\n")
        known = json.loads(tag)
        return Row(ref, data, None if known is None else Tag(*known))

    def rows(self, wanted: Rows) -> list[Row]:
        """From the end, as far as needed: a page costs what it holds."""
        found: list[Row] = []
        if wanted.after is not None:
            for first, last in self.boxes.get(0, []):
                for ref in range(max(first, wanted.after + 1), last + 1):
                    if wanted.limit is None or len(found) < wanted.limit:
                        found.append(self.row(0, ref))
            return found
        for first, last in reversed(self.boxes.get(wanted.box, [])):
            top = last if wanted.before is None else min(last, wanted.before - 1)
            for ref in range(top, first - 1, -1):
                if wanted.limit is not None and len(found) >= wanted.limit:
                    return found[::-1]
                row = self.row(wanted.box, ref)
                if wanted.writer is None or (row.tag is not None and row.tag.writer == wanted.writer):
                    found.append(row)
        return found[::-1]

    def cell(self, name: str) -> Cell | None:
        if name not in self.cells:
            return None
        value = self._files.get(_key(self._name, "cell", name)) or b""
        return Cell(value, self.cells[name] == self.epoch != "")

    def size(self, upto: int | None = None) -> int:
        runs = self.boxes.get(0, [])
        return sum(max(0, (last if upto is None else min(last, upto)) - first + 1) for first, last in runs)

    def mark(self, upto: int | None = None) -> str:
        """Within an edition rows only come at the end and go, so the newest and their number tell histories apart."""
        runs = self.boxes.get(0, [])
        newest = runs[-1][1] if upto is None and runs else upto
        return f"{self.edition}.{newest}.{self.size(upto)}" if runs and newest else ""

    def upto(self, mark: str) -> int | None:
        if not mark:
            return 0
        parts = mark.split(".")
        newest = int(parts[1]) if len(parts) == 3 and parts[1].isdigit() else 0
        is_there = any(first <= newest <= last for first, last in self.boxes.get(0, []))
        return newest if is_there and self.mark(newest) == mark else None

    def has(self, labels: Mapping[str, str]) -> bool:
        return all(self.labels.get(label) == value for label, value in labels.items())

    # --- changing --------------------------------------------------------------------------------------------------

    def refused(self, place: int, change: KeyUpdate) -> Refused | None:
        named = (*change.cells, *change.add)
        cells = {name: cell for name in named if (cell := self.cell(name)) is not None}
        if any((cells[name].value if name in cells else None) != value for name, value in change.cells.items()):
            return Refused(place, "cell", self.mark(), cells)
        if any(is_above(value_at(cells.get(name)), one) for name, one in change.add.items()):
            return Refused(place, "cell", self.mark(), cells)
        is_moved = change.mark is not None and self.mark() != change.mark
        if is_moved or (change.prefix is not None and self.upto(change.prefix) is None):
            return Refused(place, "mark", self.mark(), cells)
        return None

    def change(self, change: KeyUpdate) -> str:
        """Do it, in the order of the fields; where the live rows end now."""
        if change.remove:
            self._wipe(())
            self._is_gone = True
            return ""
        if change.wipe is not None:
            self._wipe(change.wipe)
        if change.drop:
            gone = set(change.drop)
            self._set_refs(0, [ref for ref in self.refs(0) if ref not in gone])
            for ref in gone:
                self._files.put(_key(self._name, 0, ref), None)
        if change.arrange is not None:
            self._arrange(change.arrange)
        for row in change.back:
            self._put_row(0, row)
            self._set_refs(0, sorted([*self.refs(0), row.ref]))
            self.edition = self._files.next_number()
        self._push(change.push)
        if change.load is not None:
            self._push(change.load.live)
            for box, rows in change.load.boxes.items():
                first = self._files.next_number(len(rows))
                for place, (data, tag) in enumerate(rows):
                    self._put_row(box, Row(first + place, data, tag))
                self._set_refs(box, list(range(first, first + len(rows))))
        for name in [name for name in self.cells if name.startswith(change.sweep or ("\0",))]:
            self._put_cell(name, None)
        if change.touch:
            self._touch(None if change.load is None else change.load.created)
        for name, value in change.put.items():
            self._put_cell(name, value)
        for name, one in change.add.items():
            self._put_cell(name, sum_value(value_at(self.cell(name)), one))
        if change.labels is not None:
            self.labels = dict(change.labels)
        return self.mark()

    def _wipe(self, kept: tuple[str, ...]) -> None:
        for box in self.boxes:
            for ref in self.refs(box):
                self._files.put(_key(self._name, box, ref), None)
        for name in [name for name in self.cells if not name.startswith(kept or ("\0",))]:
            self._put_cell(name, None)
        self.boxes, self.labels = {}, {}
        self.epoch, self.created, self.updated, self.change_number = "", None, None, 0
        self.edition = self._files.next_number()

    def _push(self, rows: Sequence[tuple[bytes, Tag]]) -> None:
        if not rows:
            return
        first = self._files.next_number(len(rows))
        for place, (data, tag) in enumerate(rows):
            self._put_row(0, Row(first + place, data, tag))
        runs = self.boxes.setdefault(0, [])
        if runs and runs[-1][1] == first - 1:
            runs[-1][1] += len(rows)
        else:
            runs.append([first, first + len(rows) - 1])

    def _arrange(self, arrange: Arrange) -> None:
        live = [row for part in arrange.live for row in self._part(part)]
        kept = [row for part in arrange.keep for row in self._part(part)]
        self._drop_box(0)
        for number in arrange.forget:
            self._drop_box(number)
        if arrange.box:
            for row in kept:
                self._put_row(arrange.box, row)
            self._set_refs(arrange.box, [row.ref for row in kept])
        first = self._files.next_number(len(live) + 1)
        self.edition = first
        for place, row in enumerate(live, 1):
            self._put_row(0, row._replace(ref=first + place))
        self._set_refs(0, list(range(first + 1, first + 1 + len(live))))

    def _part(self, part: Range | Sequence[tuple[bytes, Tag]]) -> Iterator[Row]:
        if not isinstance(part, Range):
            yield from (Row(0, data, tag) for data, tag in part)
            return
        source = self if part.of is None else Stored(self._files, part.of)
        for ref in source.refs(part.box):
            if (part.after is None or ref > part.after) and (part.upto is None or ref <= part.upto):
                row = source.row(part.box, ref)
                tag = row.tag if part.replaces is None else (row.tag or Tag())._replace(replaces=part.replaces)
                yield row._replace(tag=tag)

    def _drop_box(self, box: int) -> None:
        for ref in self.refs(box):
            self._files.put(_key(self._name, box, ref), None)
        self.boxes.pop(box, None)

    def _touch(self, created: float | None) -> None:
        now = time.time()
        self.change_number = self._files.next_number()
        if not self.epoch:
            self.epoch, self.created = str(self.change_number), now if created is None else min(now, created)
        self.updated = now if self.updated is None else max(now, self.updated + 1e-6)

    def _put_row(self, box: int, row: Row) -> None:
        self._files.put(_key(self._name, box, row.ref), json.dumps(row.tag).encode() + b"\n" + row.data)

    def _put_cell(self, name: str, value: bytes | None) -> None:
        self._files.put(_key(self._name, "cell", name), value)
        if value is None:
            self.cells.pop(name, None)
        else:
            self.cells[name] = self.epoch

    def _set_refs(self, box: int, refs: list[int]) -> None:
        runs: list[list[int]] = []
        for ref in refs:
            if runs and runs[-1][1] == ref - 1:
                runs[-1][1] = ref
            else:
                runs.append([ref, ref])
        self.boxes[box] = runs

    def save(self) -> None:
        """Write what is known of the name itself."""
        if self._is_gone:
            self._files.put(_key(self._name), None)
            self._files.changes.pop(self._name, None)
            return
        values = {
            "edition": self.edition, "epoch": self.epoch, "created": self.created, "updated": self.updated,
            "change": self.change_number, "labels": self.labels, "cells": self.cells, "boxes": self.boxes,
        }  # fmt: skip
        self._files.put(_key(self._name), json.dumps(values).encode())


def _key(name: Name, *more: str | int) -> bytes:
    return json.dumps([*name, *more]).encode()


class Files:
    """Keys and values in a folder, for one process at a time: a `dbm` file that is only read, and a journal."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock: BinaryIO | None = None
        self._generation = -1
        self._base: Any = None
        self._read_to = 0
        self._values: dict[bytes, bytes | None] = {}  # what the journal says
        self._new: dict[bytes, bytes | None] = {}  # what the step at hand has put
        self.changes: dict[Name, int] = {}
        """Every name that is not empty, with the number of its latest change."""

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only one who uses the folder, knowing what others have written; raises StoreTimeoutError if busy."""
        if self._lock is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = open(self._folder / "lock", "ab")  # noqa: SIM115 — kept open, and given back by close
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreTimeoutError(f"another process is using {self._folder}", "Ask again.") from None
        try:
            self._catch_up()
            yield
        finally:
            self._new = {}
            fcntl.flock(self._lock, fcntl.LOCK_UN)

    def get(self, key: bytes) -> bytes | None:
        """The value of a key."""
        for values in (self._new, self._values):
            if key in values:
                return values[key]
        found: bytes | None = None if self._base is None else self._base.get(key)
        return found

    def put(self, key: bytes, value: bytes | None) -> None:
        """Change a value in this step; None removes it."""
        self._new[key] = value

    def next_number(self, count: int = 1) -> int:
        """The first of so many numbers that were never given before."""
        first = int(self.get(b"number") or b"1")
        self.put(b"number", str(first + count).encode())
        return first

    def write(self) -> None:
        """Make the step durable, whole: a line that is not complete is not read."""
        if not self._new:
            return
        text = {key.decode(): None if value is None else value.decode("latin-1") for key, value in self._new.items()}
        data = json.dumps(text).encode("ascii")
        line = b"%08x %s\n" % (zlib.crc32(data), data)
        with open(self._journal, "r+b" if self._journal.exists() else "w+b") as file:
            file.truncate(self._read_to)  # what a killed process left behind
            file.seek(self._read_to)
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._read_to += len(line)
        self._take(self._new)
        if self._read_to > FOLD_BYTES:
            self._fold()

    # --- inside ----------------------------------------------------------------------------------------------------

    @property
    def _journal(self) -> Path:
        return self._folder / f"journal.{self._generation}"

    def _catch_up(self) -> None:
        current = self._folder / "CURRENT"
        generation = int(current.read_text()) if current.exists() else 0
        if generation != self._generation:
            self._open(generation)
        if not self._journal.exists() or self._journal.stat().st_size <= self._read_to:
            return
        with open(self._journal, "rb") as file:
            file.seek(self._read_to)
            for line in file:
                checksum, _, data = line.rstrip(b"\n").partition(b" ")
                if not line.endswith(b"\n") or checksum != b"%08x" % zlib.crc32(data):
                    break
                self._read_to += len(line)
                found = json.loads(data)
                self._take({k.encode(): None if v is None else v.encode("latin-1") for k, v in found.items()})

    def _open(self, generation: int) -> None:
        if self._base is not None:
            self._base.close()
        self._generation, self._read_to, self._values, self.changes, self._base = generation, 0, {}, {}, None
        if generation:
            self._base = dbm.open(str(self._folder / f"base.{generation}" / "data"), "r")  # noqa: SIM115 — kept open
            for key in self._base.keys():  # noqa: SIM118 — not every flavour of dbm can be iterated
                self._note(key, self._base[key])

    def _take(self, values: Mapping[bytes, bytes | None]) -> None:
        self._values.update(values)
        for key, value in values.items():
            self._note(key, value)

    def _note(self, key: bytes, value: bytes | None) -> None:
        parts = json.loads(key) if key.startswith(b"[") else []
        if len(parts) != 2:
            return
        name = Name(*parts)
        change = 0 if value is None else json.loads(value)["change"]
        if change:
            self.changes[name] = change
        else:
            self.changes.pop(name, None)

    def _fold(self) -> None:
        """Begin a new journal on a new file that holds what both held; until CURRENT says so nobody looks at it."""
        generation = self._generation + 1
        folder = self._folder / f"base.{generation}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        keys = set(self._values) | (set() if self._base is None else set(self._base.keys()))
        with dbm.open(str(folder / "data"), "n") as made:
            for key in keys:
                value = self.get(key)
                if value is not None:
                    made[key] = value
        (self._folder / f"journal.{generation}").unlink(missing_ok=True)
        (self._folder / "CURRENT.new").write_text(str(generation))
        os.replace(self._folder / "CURRENT.new", self._folder / "CURRENT")
        old = self._generation
        self._new = {}
        self._open(generation)
        (self._folder / f"journal.{old}").unlink(missing_ok=True)
        shutil.rmtree(self._folder / f"base.{old}", ignore_errors=True)

    def close(self) -> None:
        """Give the files back."""
        if self._base is not None:
            self._base.close()
        if self._lock is not None:
            self._lock.close()
