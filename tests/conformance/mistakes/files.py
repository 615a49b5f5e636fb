"""Mistakes of a store that keeps files of its own."""

from __future__ import annotations

import asyncio
import fcntl
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from standfast.conformance import Backend
from tests.conformance.mistakes.mistake import BROKEN, Mistake


class LinesSession:
    """One JSON object a line, in a file per session that is replaced whole: a plain session as many people write it."""

    session_settings = None

    def __init__(self, session_id: str, path: Path) -> None:
        self.session_id, self.path = session_id, path

    async def get_items(self, limit: int | None = None) -> list[Any]:
        items = [json.loads(line) for line in self.read()]
        return items if limit is None else items[len(items) - limit if limit < len(items) else 0 :]

    async def add_items(self, items: list[Any]) -> None:
        lines = [json.dumps(item).encode() + b"\n" for item in items]
        with self.locked():
            self.append(lines)

    async def pop_item(self) -> Any:
        with self.locked():
            lines = self.read()
            self.write(lines[:-1])
            return json.loads(lines[-1]) if lines else None

    async def clear_session(self) -> None:
        with self.locked():
            self.write([])

    def append(self, lines: list[bytes]) -> None:
        self.write(self.read() + lines)

    def read(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True) if self.path.exists() else []

    def write(self, lines: list[bytes]) -> None:
        new = self.path.with_suffix(".new")
        new.write_bytes(b"".join(lines))
        new.replace(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        with open(self.path.with_suffix(".lock"), "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


class Lines(Backend):
    name = "a file of lines"
    persistent = True
    files = True
    deadlines = False
    settings = False
    kind: type[LinesSession] = LinesSession

    def open(self, session_id: str, **options: Any) -> LinesSession:
        return self.kind(session_id, self.folder / f"{session_id.encode().hex()}.jsonl")


class _LineByLine(LinesSession):
    def append(self, lines: list[bytes]) -> None:
        with open(self.path, "ab", buffering=0) as file:
            for line in lines:
                file.write(line)
                time.sleep(0.0002)  # so that a kill finds it inside a batch, however fast the disk is


class KilledBetweenLines(Lines):
    name = "writes a batch line by line"
    kind = _LineByLine


class _Later(LinesSession):
    waiting: list[bytes] = []  # noqa: RUF012 — shared on purpose: what a later write brings along

    def append(self, lines: list[bytes]) -> None:
        self.waiting += lines
        if len(self.waiting) > 50 * len(lines):  # so seldom that a kill never finds all of it written
            super().append(self.waiting)
            self.waiting.clear()


class AcknowledgesEarly(Lines):
    name = "acknowledges what it has only in memory"
    kind = _Later


class _MadeOnce(LinesSession):
    @contextmanager
    def locked(self) -> Iterator[None]:
        if not self.path.exists():
            time.sleep(0.01)
            with open(self.path, "xb"):
                pass
        with super().locked():
            yield


class FirstProcessRace(Lines):
    name = "fails when another process makes the file first"
    kind = _MadeOnce


class _Eager(LinesSession):
    def __init__(self, session_id: str, path: Path) -> None:
        super().__init__(session_id, path)
        path.touch()


class OpensInItsConstructor(Lines):
    name = "makes its file in the constructor"
    kind = _Eager


class _Unlocked(LinesSession):
    async def add_items(self, items: list[Any]) -> None:
        history = self.read()
        await asyncio.sleep(0.001)
        with self.locked():
            self.write(history + [json.dumps(item).encode() + b"\n" for item in items])

    async def pop_item(self) -> Any:
        history = await self.get_items()
        time.sleep(0.002)
        await super().pop_item()
        return history[-1] if history else None


class RewritesTheFile(Lines):
    name = "writes the whole history back"
    kind = _Unlocked


class PopRace(Lines):
    name = "lets two processes pop one item"
    kind = _Unlocked


class HalfABatchOnAFullDisk(Lines):
    name = "leaves half a batch on a full disk"
    kind = _LineByLine


BROKEN += [
    Mistake(KilledBetweenLines(), "A5", "a_writer_killed_inside_a_batch_leaves_all_or_nothing_of_it"),
    Mistake(AcknowledgesEarly(), "A23", "every_acknowledged_batch_survives_a_kill"),
    Mistake(FirstProcessRace(), "A9", "first_writers_among_processes_all_succeed"),
    Mistake(OpensInItsConstructor(), "A9", "opening_a_session_touches_nothing_before_its_first_operation"),
    Mistake(RewritesTheFile(), "A10", "concurrent_writers_in_processes_lose_nothing"),
    Mistake(PopRace(), "A11", "pops_of_several_processes_never_return_the_same_item"),
    Mistake(HalfABatchOnAFullDisk(), "A6", "a_full_disk_refuses_whole_batches_and_harms_nothing"),
]
