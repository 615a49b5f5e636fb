"""Broken histories for the doctor: how they are made, stored, repaired with crashes on the way, and taken back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from standfast._kits.operators.doctor import checks, diagnosis, repair, undo_file
from standfast._kits.operators.doctor.undo_file import UndoFile
from standfast._kits.operators.store import Store, store_of
from standfast._kits.testing.loopback.checks import Refused, as_items, check_context
from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.rules.history import commit
from standfast._src.sessions.rules.record_repair import Repair, whole
from standfast._src.sessions.storage import KeyUpdate, Name, Plan, Row, Tag

BROKEN_ITEMS = {"call_without_output", "output_without_call", "cut_reasoning", "second_copy", "corrupt_record"}


def later() -> float:
    """A clock by which every session here has been quiet for long."""
    return time.time() + 10_000


# --- histories -------------------------------------------------------------------------------------------------------


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def reasoning(number: int, said: str = "x") -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": said}


def call(number: int) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number}",
        "name": "book",
        "arguments": "{}",
    }


def output(number: int) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"call_{number}", "output": "done"}


def answer(number: int) -> dict[str, Any]:
    content = [{"type": "output_text", "text": "Yes.", "annotations": []}]
    return {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content, "status": "completed"}


def turn(first: int, calls: int, *, thinks: bool = True) -> list[dict[str, Any]]:
    """A whole turn, whose items have numbers from `first` on."""
    numbers = range(first, first + calls)
    items = [user("yes")]  # what people say, again and again
    items += [reasoning(first)] if thinks else []
    items += [*(call(n) for n in numbers), *(output(n) for n in numbers)]
    return [*items, answer(first)]


def healthy(turns: Sequence[tuple[int, bool]]) -> list[bytes]:
    """The records of a history of so many calls each turn."""
    items = [item for n, (calls, thinks) in enumerate(turns) for item in turn(n * 10, calls, thinks=thinks)]
    return [json.dumps(item).encode() for item in items]


Damage = tuple[str, int, int]
"""What happens to a history: the kind of damage, and two numbers that choose where."""

DAMAGES = (
    "remove",
    "copy",
    "copy many",
    "cut bytes",
    "junk",
    "swap",
    "cut end",
    "other copy",
    "stray call",
    "stray output",
)


def damaged(rows: Sequence[bytes], damages: Sequence[Damage]) -> list[bytes]:
    """The records after all that."""
    found = list(rows)
    for number, (kind, one, other) in enumerate(damages):
        at, to = (one % len(found), other % (len(found) + 1)) if found else (0, 0)
        match kind:
            case "remove" if found:
                del found[at]
            case "copy" if found:
                found.insert(to, found[at])
            case "copy many" if found:
                found[to:to] = found[at : at + 6]
            case "cut bytes" if found:
                found[at] = found[at][: other % max(1, len(found[at]))]
            case "junk":
                found.insert(to, [b"", b"\x00", b"[1]", b"null", b"{'a': 1}"][one % 5])
            case "swap" if len(found) > 1:
                before = (at or 1) - 1
                found[before], found[before + 1] = found[before + 1], found[before]
            case "cut end":
                del found[to:]
            case "other copy":
                found.append(json.dumps(reasoning(one % 3 * 10, "something else")).encode())
            case "stray call":
                found.insert(to, json.dumps(call(900 + number)).encode())
            case "stray output":
                found.insert(to, json.dumps(output(950 + number)).encode())
    return found


# --- sessions that can die -------------------------------------------------------------------------------------------


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Fate:
    """Where the process ends: at the point of that number; never, if there are fewer."""

    at: int = 10**9
    passed: int = 0

    def point(self) -> None:
        self.passed += 1
        if self.passed > self.at:
            raise Crash


class Mortal(StoredSession):
    """A session whose process may end right before or right after a step."""

    fate: Fate = Fate()

    async def changed(self, plan: Callable[[], Plan[Any]]) -> Any:
        self.fate.point()
        result = await super().changed(plan)
        self.fate.point()
        return result


class MortalFile(UndoFile):
    """An undo file, whose process may end before, within and after each line."""

    def __init__(self, path: Path, url: str, fate: Fate, kept_bytes: int) -> None:
        super().__init__(path, url)
        self._fate, self._kept_bytes = fate, kept_bytes

    def add(self, session_id: str, repair: Repair) -> None:
        self._fate.point()
        before = self.path.stat().st_size if self.path.exists() else 0
        super().add(session_id, repair)
        try:
            self._fate.point()
        except Crash:
            # In the middle of the line: so much of it has reached the disk.
            with open(self.path, "r+b") as file:
                file.truncate(before + self._kept_bytes % (self.path.stat().st_size - before))
            raise
        self._fate.point()

    def end(self) -> None:
        self._fate.point()
        super().end()


def mortal(kind: type[StoredSession], fate: Fate) -> Any:
    """That class of sessions, in a process of that fate."""
    return type(f"Mortal{kind.__name__}", (Mortal, kind), {"fate": fate})


# --- looking ---------------------------------------------------------------------------------------------------------


def stored(rows: Sequence[bytes], name: Name) -> Plan[None]:
    """Write records as they are, whatever they are, as a run's and as nobody's."""
    pushed = [(data, Tag("run", n) if n % 3 else Tag()) for n, data in enumerate(rows)]
    yield from commit([KeyUpdate(name, push=pushed, touch=True)])


async def put(store: Store, session_id: str, rows: Sequence[bytes]) -> None:
    session = store.session(session_id)
    await session.changed(partial(stored, rows, Name("session", session_id)))
    await session.close()


async def rows_of(store: Store, session_id: str) -> list[Row]:
    """Every record of a session, with its tag."""
    sight = await store.looked(partial(whole, Name("session", session_id)))
    return list(sight.rows[0])


async def bytes_of(store: Store, session_id: str) -> list[bytes]:
    return [row.data for row in await rows_of(store, session_id)]


def signed(rows: Sequence[Row]) -> list[tuple[bytes, str, int]]:
    """Contents, writers and numbers, which moving a record does not change."""
    return [(row.data, *(row.tag or Tag())[:2]) for row in rows]


def check_accepted(items: Sequence[dict[str, Any]]) -> None:
    """That the loopback provider takes these items, with a new message behind them."""
    given = as_items([*items, user("And now?")])
    check_context(given, new=given, known_ids=set(), reasoned={})


async def broken_in(store: Store, session_id: str) -> list[Any]:
    """What the doctor finds among the records of a session."""
    found = checks.examine_store(store, sessions=[session_id], clock=later)
    return [one async for one in found if one.kind in BROKEN_ITEMS]


# --- the whole story -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Story:
    """Some broken sessions, where the process ends, and what is written before the undo."""

    turns: tuple[tuple[int, bool], ...]
    damages: tuple[tuple[Damage, ...], ...]
    """Of each session."""
    crash_at: int = 10**9
    kept_bytes: int = 0
    undo_crash_at: int = 10**9
    written_since: int = 2
    compacts: bool = False
    """Whether a compaction that covers nothing but one record comes before the undo, and is taken back."""
    expected: tuple[str, ...] = field(default=(), compare=False)


async def check_story(story: Story, made: Callable[[Fate], Store], folder: Path) -> None:
    """Repair with a crash, repair again; all is accepted; write on; undo with a crash, undo again: all is back."""
    stores: list[Store] = []

    def store_with(fate: Fate) -> Store:
        stores.append(made(fate))
        return stores[-1]

    try:
        await _check_story(story, store_with, folder)
    finally:
        for store in stores:
            await store.close()


async def _check_story(story: Story, store_with: Callable[[Fate], Store], folder: Path) -> None:
    calm = store_with(Fate())
    url = "memory"
    await put(calm, "healthy", healthy(story.turns))
    healthy_before = await rows_of(calm, "healthy")
    before = {}
    for number, damages in enumerate(story.damages):
        name = f"s{number}"
        await put(calm, name, damaged(healthy(story.turns), damages) or [b'{"role":"user","content":"?"}'])
        before[name] = await rows_of(calm, name)
    files = [folder / "first.jsonl", folder / "second.jsonl"]
    fate = Fate(story.crash_at)
    try:
        await repair.repair_store(store_with(fate), MortalFile(files[0], url, fate, story.kept_bytes), clock=later)
    except Crash:
        pass
    await repair.repair_store(calm, UndoFile(files[1], url), clock=later)

    assert await rows_of(calm, "healthy") == healthy_before, "a healthy session was changed"
    since = [json.dumps(user(f"later {n}")).encode() for n in range(story.written_since)]
    for name, rows in before.items():
        await _check_repaired(calm, name, rows)
        await put(calm, name, since)
    if story.compacts:
        for name in before:
            await _compact_and_restore(calm.session(name))
    await _undo(story, store_with, files)

    for name, rows in before.items():
        now = await rows_of(calm, name)
        assert signed(now)[: len(rows)] == signed(rows), f"{name} is not what it was"
        assert [row.data for row in now[len(rows) :]] == since, "what was written since is not all there"
    assert await rows_of(calm, "healthy") == healthy_before, "a healthy session was changed by the undo"


async def _check_repaired(store: Store, name: str, rows: Sequence[Row]) -> None:
    assert await broken_in(store, name) == []
    now = await bytes_of(store, name)
    judged = diagnosis.judge([json.loads(data) for data in now])
    assert not judged.leaving, "repairing leaves something to repair"
    assert set(now) <= {row.data for row in rows}, "repairing made something up"
    try:
        check_accepted([json.loads(data) for data in now])
    except Refused as refused:
        raise AssertionError(f"{name}: the provider refuses it: {refused.message}") from None


async def _compact_and_restore(session: StoredSession) -> None:
    """Replace everything, and take that back: every record is another one then, in the same order."""
    head = await session.head()
    items = await session.get_items()
    await session.replace(items[:1], upto=head)
    (generation,) = [one.id for one in (await session.generations())[:1]]
    await session.restore(generation)
    await session.close()


async def _undo(story: Story, store_with: Callable[[Fate], Store], files: Sequence[Path]) -> None:
    made = [path for path in reversed(files) if path.exists() and b"\n" in path.read_bytes()]
    fate = Fate(story.undo_crash_at)
    try:
        for path in made:
            await repair.undo_repair(path, store_with(fate))
    except Crash:
        pass
    for path in made:
        report = await repair.undo_repair(path, store_with(Fate()))
        assert not report.of("refused"), report.of("refused")
    for path in made:  # and once more: nothing happens
        report = await repair.undo_repair(path, store_with(Fate()))
        assert [one.state for one in report.repairs] == ["nothing to do"] * len(report.repairs)
    assert undo_file.read_undo_file(files[1]).is_whole if files[1].exists() else True


def in_memory() -> Callable[[Fate], Store]:
    """One store in memory, reached by process after process."""
    memory = InMemoryStore()
    return lambda fate: store_of(lambda name: mortal(InMemorySession, fate)(name, store=memory), "memory")
