"""When the doctor repairs and when it does not, and what an undo does after whatever happened in between (A14, C8)."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
import stat
import subprocess
import sys
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    InMemorySession,
    NotFoundError,
    SessionConflictError,
    SQLiteSession,
    Store,
    StoreReadOnlyError,
    UndoFileError,
    examine_store,
    open_store,
    repair_store,
    undo_repair,
)
from standfast._kits.operators.doctor.undo_file import UndoFile, read_undo_file
from standfast._kits.operators.store import store_of
from standfast._src.base.json_values import encode
from standfast._src.sessions.backends.memory.memory_session import InMemoryStore
from standfast._src.sessions.rules.record_repair import Repair
from tests.helpers import servers
from tests.operators.doctor.world import bytes_of, call, later, output, put, user
from tests.operators.test_read_only import CHILD_ENVIRONMENT

Items = list[dict[str, Any]]


def encoded(items: Items) -> list[bytes]:
    return [encode(item) for item in items]


ORPHAN: Items = [user("Book a table."), call(1), user("Are you there?"), call(2), output(2), user("Thank you.")]
MENDED = [item for item in ORPHAN if item.get("call_id") != "call_1"]


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    if request.param == "memory":
        memory = InMemoryStore()
        made = store_of(lambda session_id: InMemorySession(session_id, store=memory), "memory")
    else:
        made = open_store(tmp_path / "talks.db", create=True)
    async with made:
        await put(made, "guest", encoded(ORPHAN))
        yield made


async def items_of(store: Store) -> Items:
    return [json.loads(data) for data in await bytes_of(store, "guest")]


async def repaired(store: Store, path: Path) -> None:
    report = await repair_store(store, path, clock=later)
    assert [(one.session_id, one.state, one.records) for one in report.repairs] == [("guest", "repaired", 1)]
    assert report.undo_file == path
    assert await items_of(store) == MENDED


# --- when it repairs -------------------------------------------------------------------------------------------------


async def test_a_session_that_was_changed_a_moment_ago_is_left(store: Store, tmp_path: Path) -> None:
    """A program without leases writes a call before its output: repaired in between, the output would be orphaned."""
    report = await repair_store(store, tmp_path / "undo")
    assert [one.state for one in report.repairs] == ["left"]
    assert report.undo_file is None
    assert not (tmp_path / "undo").exists()
    assert await items_of(store) == ORPHAN


async def test_quiet_is_asked_again_in_the_step_that_repairs(store: Store, tmp_path: Path) -> None:
    """The look may have been long ago: what counts is the time of the step."""
    asked = itertools.count()  # examined, decided, and in the step
    clock = lambda: later() if next(asked) < 2 else time.time()  # noqa: E731 — it is read beside the line above
    report = await repair_store(store, tmp_path / "undo", clock=clock)
    assert [one.state for one in report.repairs] == ["left"]
    assert await items_of(store) == ORPHAN
    assert [one.state for one in (await undo_repair(tmp_path / "undo", store)).repairs] == ["nothing to do"]


async def test_a_last_change_in_the_future_is_no_quiet(store: Store, tmp_path: Path) -> None:
    report = await repair_store(store, tmp_path / "undo", clock=lambda: time.time() - 5_000)
    assert [one.state for one in report.repairs] == ["left"]


async def test_a_session_that_somebody_holds_is_left(store: Store, tmp_path: Path) -> None:
    session = store.session("guest")
    async with await session.lease(ttl_s=10**6, wait_s=0):
        report = await repair_store(store, tmp_path / "undo", clock=later)
        assert [(one.state, one.why) for one in report.repairs] == [("left", "somebody holds it")]
    await session.close()
    await repaired(store, tmp_path / "undo")


class Interrupted(UndoFile):
    """While it is written, somebody does something to the session."""

    store: Store
    does: Any = None

    def add(self, session_id: str, repair: Repair) -> None:
        super().add(session_id, repair)
        self.does()


async def test_a_session_that_changes_before_the_step_is_left(tmp_path: Path) -> None:
    memory = InMemoryStore()
    store = store_of(lambda session_id: InMemorySession(session_id, store=memory), "memory")
    await put(store, "guest", encoded(ORPHAN))
    file = Interrupted(tmp_path / "undo", "memory")
    file.does = lambda: memory.inject_record("guest", json.dumps(output(1)).encode())
    report = await repair_store(store, file, clock=later)
    assert [(one.state, one.why) for one in report.repairs] == [("left", "it was changed meanwhile")]
    assert await items_of(store) == [*ORPHAN, output(1)]
    assert [one.state for one in (await undo_repair(tmp_path / "undo", store)).repairs] == ["nothing to do"]


async def test_nothing_broken_leaves_no_file(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "first")
    report = await repair_store(store, tmp_path / "second", clock=later)
    assert report.repairs == []
    assert report.undo_file is None
    assert not (tmp_path / "second").exists()


async def test_a_store_that_is_only_looked_at_is_not_repaired(tmp_path: Path) -> None:
    session = SQLiteSession("guest", tmp_path / "talks.db")
    await session.add_items(ORPHAN)
    await session.close()
    async with open_store(tmp_path / "talks.db", read_only=True) as store:
        with pytest.raises(StoreReadOnlyError):
            await repair_store(store, tmp_path / "undo", clock=later)


async def test_a_session_that_is_not_there_is_told(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        await repair_store(store, tmp_path / "undo", sessions=["nobody"], clock=later)


# --- the undo file ---------------------------------------------------------------------------------------------------


async def test_an_undo_file_is_never_written_over(store: Store, tmp_path: Path) -> None:
    (tmp_path / "undo").write_text("precious")
    with pytest.raises(UndoFileError, match="already"):
        await repair_store(store, tmp_path / "undo", clock=later)
    assert (tmp_path / "undo").read_text() == "precious"
    assert await items_of(store) == ORPHAN


async def test_without_room_for_the_undo_file_nothing_is_repaired(store: Store) -> None:
    """/dev/full takes no byte; it is written to though it is there, because it is no file to be replaced."""

    class Full(UndoFile):
        def check(self) -> None:
            pass

        def _create(self) -> int:
            return os.open(self.path, os.O_WRONLY)

    with pytest.raises(UndoFileError, match="could not be written"):
        await repair_store(store, Full("/dev/full", "memory"), clock=later)
    assert await items_of(store) == ORPHAN


async def test_only_its_owner_can_read_it_and_it_holds_the_records_as_text(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "undo")
    assert stat.S_IMODE((tmp_path / "undo").stat().st_mode) == 0o600
    header, repair, end = map(json.loads, (tmp_path / "undo").read_text().splitlines())
    assert (header["schema"], header["version"]) == ("standfast.doctor-undo", 1)
    assert json.loads(repair["removed"][0]["data"]) == call(1)
    assert end == {"end": 1}


def line_of(**changed: object) -> str:
    """An undo file with one record that is not quite one."""
    header = {"schema": "standfast.doctor-undo", "version": 1, "store": "x"}
    removed = {"record": 1, "data": "{}", "tag": None, "reason": "r", "before": 0, "chain": "", "follower": ""}
    repair = {
        "repair": "m",
        "mark": "",
        "generations": None,
        "lease": None,
        "next_generation": 1,
        "parts": [],
        "moved": [],
    }
    return json.dumps(header) + "\n" + json.dumps({"session": "guest", **repair, "removed": [removed | changed]}) + "\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "cut before its first line"),
        ("hello\n", "damaged"),
        ('{"a": 1}\n', "no undo file"),
        ('{"schema":"standfast.doctor-undo","version":2,"store":"x"}\n', "version 2"),
        ('{"schema":"standfast.doctor-undo","version":1,"store":"x"}\n{"session":"a"}\n', "damaged"),
        ('{"schema":"standfast.doctor-undo","version":1,"store":"x"}\nnonsense\n{"end":1}\n', "line 2"),
        ('{"schema":"standfast.doctor-undo","version":true,"store":"x"}\n', "version True"),
        ('{"schema":"standfast.doctor-undo","version":1,"store":["x"]}\n', "damaged"),
        ('{"schema":"standfast.doctor-undo","version":1,"store":"x"}\n' + "[" * 100_000 + "\n", "line 2"),
        ('{"schema":"standfast.doctor-undo","version":' + "9" * 5000 + "}\n", "line 1"),
        (line_of(record=2**63), "damaged"),
        (line_of(before=-1), "damaged"),
        (line_of(before=1e308), "damaged"),
        (line_of(before=float("nan")), "damaged"),
        (line_of(data=None), "damaged"),
        (line_of(data={"base64": "no"}), "damaged"),
        (line_of(data="\ud800"), "damaged"),
        (line_of(tag=["w"]), "damaged"),
        (line_of(tag="w01"), "damaged"),
    ],
)
async def test_what_is_no_undo_file_is_refused(store: Store, tmp_path: Path, text: str, says: str) -> None:
    (tmp_path / "undo").write_text(text)
    with pytest.raises(UndoFileError, match=says):
        await undo_repair(tmp_path / "undo", store)
    assert await items_of(store) == ORPHAN


async def test_a_file_that_was_cut_is_undone_as_far_as_it_goes_and_says_so(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "undo")
    text = (tmp_path / "undo").read_text()
    (tmp_path / "undo").write_text(text[: text.index('{"end"') + 3])
    report = await undo_repair(tmp_path / "undo", store)
    assert not report.is_whole
    assert await items_of(store) == ORPHAN


async def test_the_file_names_its_store_for_every_folder_and_the_caller_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A relative path would mean another file from another folder."""
    monkeypatch.chdir(tmp_path)
    async with open_store("a talk?.db", create=True) as store:
        await put(store, "guest", encoded(ORPHAN))
        await repaired(store, tmp_path / "undo")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    report = await undo_repair("../undo", read_undo_file("../undo").store)
    assert [one.state for one in report.repairs] == ["put back"]
    async with open_store(tmp_path / "a talk?.db") as store:
        assert await items_of(store) == ORPHAN


# --- after what happened since ---------------------------------------------------------------------------------------


async def test_what_was_written_since_stays_behind_it(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "undo")
    await put(store, "guest", encoded([user("later")]))
    await undo_repair(tmp_path / "undo", store)
    assert await items_of(store) == [*ORPHAN, user("later")]


async def test_what_was_popped_since_is_not_brought_back(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "undo")
    session = store.session("guest")
    for _ in range(4):
        await session.pop_item()
    await undo_repair(tmp_path / "undo", store)
    assert await items_of(store) == ORPHAN[:2]
    await session.close()


async def test_a_session_that_was_cleared_since_stays_cleared(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "undo")
    session = store.session("guest")
    await session.clear_session()
    await session.add_items([user("A new talk.")])
    assert [one.state for one in (await undo_repair(tmp_path / "undo", store)).repairs] == ["nothing to do"]
    assert await items_of(store) == [user("A new talk.")]
    await session.close()


async def test_a_part_that_was_compacted_is_refused_until_its_generation_is_back(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "undo")
    session = store.session("guest")
    await session.replace([user("summary")], upto=await session.head())
    await put(store, "guest", encoded([user("later")]))
    (refused,) = (await undo_repair(tmp_path / "undo", store)).repairs
    assert refused.state == "refused"
    (generation,) = await session.generations()
    assert generation.id in refused.why
    assert "restore" in refused.remedy
    assert await items_of(store) == [user("summary"), user("later")]

    await session.restore(generation.id)
    assert [one.state for one in (await undo_repair(tmp_path / "undo", store)).repairs] == ["put back"]
    assert await items_of(store) == [*ORPHAN, user("later")]
    await session.close()


async def test_an_undo_of_which_one_place_was_compacted_puts_nothing_back(store: Store, tmp_path: Path) -> None:
    await put(store, "guest", encoded([user("one"), call(7), user("two")]))
    await repair_store(store, tmp_path / "undo", clock=later)
    session = store.session("guest")
    await session.replace([user("summary")], upto=await _head_before(session, 2))
    assert [one.state for one in (await undo_repair(tmp_path / "undo", store)).repairs] == ["refused"]
    assert await items_of(store) == [user("summary"), user("one"), user("two")]
    await session.close()


async def test_a_record_in_the_live_part_goes_back_behind_a_summary(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "first")
    session = store.session("guest")
    await put(store, "guest", encoded([user("one"), call(7), user("two")]))
    await repair_store(store, tmp_path / "second", clock=later)
    assert await items_of(store) == [*MENDED, user("one"), user("two")]
    await session.replace([user("summary")], upto=await _head_before(session, 2))
    assert [one.state for one in (await undo_repair(tmp_path / "second", store)).repairs] == ["put back"]
    assert await items_of(store) == [user("summary"), user("one"), call(7), user("two")]
    await session.close()


async def test_a_record_goes_back_behind_a_summary_though_another_program_had_cleared_before(
    tmp_path: Path,
) -> None:
    """Generations that its clear leaves behind still have their numbers: the next one is not number 1 again."""
    async with open_store(tmp_path / "talks.db", create=True) as store:
        session = store.session("guest")
        await session.add_items([user("old")])
        for _ in range(2):
            await session.replace([user("old summary")], upto=await session.head())
        with closing(sqlite3.connect(tmp_path / "talks.db")) as other, other:
            other.execute("DELETE FROM agent_messages WHERE session_id = 'guest'")
            other.execute("DELETE FROM agent_sessions WHERE session_id = 'guest'")
        await put(store, "guest", encoded([user("zero"), user("one"), call(7), user("two")]))
        await repair_store(store, tmp_path / "undo", clock=later)
        await session.replace([user("summary")], upto=await _head_before(session, 2))
        assert [one.state for one in (await undo_repair(tmp_path / "undo", store)).repairs] == ["put back"]
        assert await items_of(store) == [user("summary"), user("one"), call(7), user("two")]
        await session.close()


async def _head_before(session: Any, count: int) -> Any:
    """The head that the history had `count` items ago; those are popped and written again."""
    taken = [await session.pop_item() for _ in range(count)][::-1]
    head = await session.head()
    await session.add_items(taken)
    return head


async def test_a_place_whose_surroundings_are_gone_is_refused(store: Store, tmp_path: Path) -> None:
    """Three compactions push the generation out: nobody knows the place, and nothing is guessed."""
    await repaired(store, tmp_path / "undo")
    session = store.session("guest")
    for number in range(5):
        await session.replace([user(f"summary {number}")], upto=await session.head())
    before = await items_of(store)
    (refused,) = (await undo_repair(tmp_path / "undo", store)).repairs
    assert refused.state == "refused"
    assert "undo file" in refused.remedy
    assert await items_of(store) == before
    await session.close()


async def test_of_two_fixes_the_later_is_undone_first(store: Store, tmp_path: Path) -> None:
    await repaired(store, tmp_path / "first")
    await put(store, "guest", encoded([call(8), user("later")]))
    await repair_store(store, tmp_path / "second", clock=later)
    (refused,) = (await undo_repair(tmp_path / "first", store)).repairs
    assert (refused.state, "later fix" in refused.why) == ("refused", True)
    for name in ("second", "first"):
        assert [one.state for one in (await undo_repair(tmp_path / name, store)).repairs] == ["put back"]
    assert await items_of(store) == [*ORPHAN, call(8), user("later")]


async def test_a_cursor_of_before_an_undo_is_refused(store: Store, tmp_path: Path) -> None:
    """Every record has another number then: a reader is told, rather than shown everything once more."""
    await repaired(store, tmp_path / "undo")
    session = store.session("guest")
    page = await session.records(limit=2)
    await undo_repair(tmp_path / "undo", store)
    with pytest.raises(SessionConflictError):
        await session.records(after=page.after, limit=2)
    await session.close()


async def test_an_undo_keeps_the_generations_there_are(store: Store, tmp_path: Path) -> None:
    session = store.session("guest")
    for number in range(3):
        await session.replace([*ORPHAN[:2], user(f"{number}")], upto=await session.head())
    kept = await session.generations()
    report = await repair_store(store, tmp_path / "undo", clock=later)
    assert [one.state for one in report.repairs] == ["repaired"]
    await undo_repair(tmp_path / "undo", store)
    assert await session.generations() == kept
    assert await session.get_items() == [*ORPHAN[:2], user("2")]
    await session.close()


def test_what_is_read_from_an_undo_file_is_what_was_written(tmp_path: Path) -> None:
    from standfast._src.sessions.rules.record_repair import Removed
    from standfast._src.sessions.storage import Range, Row, Tag

    removed = Removed(Row(5, b"\xff\x00{", Tag("run", 3, 1)), "corrupt_record", 2, "ab", "")
    repair = Repair("id", "1.2.0", b"[]", None, 4, (removed,), (Range(0, None, 5), Range(0, 1, 2)), (0,))
    file = UndoFile(tmp_path / "undo", "memory")
    file.add("a\nb", repair)
    file.end()
    assert read_undo_file(tmp_path / "undo").repairs == (("a\nb", repair),)


# --- a real death, and real servers ----------------------------------------------------------------------------------

DYING = """
import asyncio, os, sys, time
from standfast import repair_store, open_store
from standfast._kits.operators.doctor.undo_file import UndoFile

class Deadly(UndoFile):
    def add(self, session_id, repair):
        if sys.argv[3] == "before":
            os._exit(9)
        super().add(session_id, repair)
        if sys.argv[3] == "written":
            os._exit(9)

    def end(self):
        os._exit(9)

async def main():
    async with open_store(sys.argv[1]) as store:
        await repair_store(store, Deadly(sys.argv[2], sys.argv[1]), clock=lambda: time.time() + 10_000)

asyncio.run(main())
"""


@pytest.mark.parametrize(("moment", "then"), [("before", ORPHAN), ("written", ORPHAN), ("repaired", MENDED)])
async def test_a_fix_that_is_killed_can_be_repeated_and_undone(moment: str, then: Items, tmp_path: Path) -> None:
    path, first, second = tmp_path / "talks.db", tmp_path / "first", tmp_path / "second"
    async with open_store(path, create=True) as store:
        await put(store, "guest", encoded(ORPHAN))
    command = [sys.executable, "-c", DYING, str(path), str(first), moment]
    assert subprocess.run(command, env=CHILD_ENVIRONMENT, check=False, timeout=120).returncode == 9
    async with open_store(path) as store:
        assert await items_of(store) == then
        report = await repair_store(store, second, clock=later)
        assert [one.state for one in report.repairs] == ([] if then == MENDED else ["repaired"])
        assert await items_of(store) == MENDED
    for file in (second, first):
        if file.exists():
            report = await undo_repair(file, path)
            assert report.is_whole == (file == second)
    async with open_store(path) as store:
        assert await items_of(store) == ORPHAN


@pytest.mark.parametrize(
    "kind", [pytest.param("redis", marks=pytest.mark.redis), pytest.param("postgres", marks=pytest.mark.postgres)]
)
async def test_a_store_on_a_server_is_examined_repaired_and_undone_by_its_url(kind: str, tmp_path: Path) -> None:
    own = uuid.uuid4().hex[:8]
    if kind == "redis":
        url = f"{servers.redis_url()}?key_prefix=doctor-{own}"
    else:
        url = f"{servers.postgres_url()}?sessions_table=s{own}&messages_table=m{own}"
    async with open_store(url) as store:
        await put(store, "guest", encoded(ORPHAN))
    async with open_store(url, read_only=True) as store:
        found = [one async for one in examine_store(store)]
        assert [(one.kind, one.index) for one in found] == [("call_without_output", 1)]
    async with open_store(url) as store:
        await repaired(store, tmp_path / "undo")
        await put(store, "guest", encoded([user("later")]))
    assert [one.state for one in (await undo_repair(tmp_path / "undo", url)).repairs] == ["put back"]
    async with open_store(url) as store:
        assert await items_of(store) == [*ORPHAN, user("later")]
