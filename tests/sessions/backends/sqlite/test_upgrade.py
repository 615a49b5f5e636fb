"""Files that earlier releases wrote: every one opens, reads as it did, and goes on (D9, B10)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, Runner, function_tool
from standfast._src.base.errors import AppendGapError, SessionConflictError
from standfast._src.runs.engine.run_store import LogTail
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast.testing import ScriptedModel, final

FOLDER = Path(__file__).parents[3] / "golden" / "databases" / "v1"
EXPECTED = json.loads((FOLDER / "expected.json").read_text())
CASES = [(name, part) for name, parts in EXPECTED.items() for part in range(len(parts))]


def message(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def copied(name: str, tmp_path: Path) -> Path:
    path = tmp_path / "copy.db"
    shutil.copy(FOLDER / f"{name}.sqlite01", path)
    return path


async def everything(path: Path, tables: dict[str, str], expected: dict[str, Any]) -> dict[str, Any]:
    """What every read gives, in the shape of `expected.json`."""
    some = SQLiteSession("-", path, **tables)
    listed = (await some.list_sessions(limit=100)).sessions
    sessions = {}
    for info in listed:
        session = SQLiteSession(info.session_id, path, **tables)
        generations = await session.generations()
        writers = expected["sessions"][info.session_id]["accepted"]
        async with await session.lease(ttl_s=60, wait_s=0) as lease:
            number = lease.number - 1
        sessions[info.session_id] = {
            "items": await session.get_items(),
            "created_at": info.created_at.isoformat(),
            "updated_at": info.updated_at.isoformat(),
            "corrupt": [record.data.hex() for record in await session.corrupt_records()],
            "generations": {one.id: await session.read_generation(one.id) for one in generations},
            "generation_times": [one.created_at.isoformat() for one in generations],
            "accepted": {name: await session.accepted(name) for name in writers},
            "written": {name: await session.written(name) for name in writers},
            "lease": number,
        }
        session.close()
    store = some.run_store()
    summaries, _ = await store.list_runs()
    runs = {}
    for one in summaries:
        run = await store.load_run(one.run_id)
        assert run is not None
        runs[one.run_id] = {
            "status": one.status, "session_id": one.session_id, "agent": one.agent, "revision": run.revision,
            "head": run.head.hex(), "logs": {log: [r.hex() for r in records] for log, records in run.logs.items()},
            "created_at": one.created_at.isoformat(), "updated_at": one.updated_at.isoformat(),
        }  # fmt: skip
    some.close()
    return {
        "tables": tables,
        "order": [info.session_id for info in listed],
        "sessions": sessions,
        "run_order": [one.run_id for one in summaries],
        "runs": runs,
    }


@pytest.mark.parametrize(("name", "part"), CASES)
async def test_a_file_of_release_01_reads_as_it_did(name: str, part: int, tmp_path: Path) -> None:
    expected = EXPECTED[name][part]
    assert await everything(copied(name, tmp_path), expected["tables"], expected) == expected


async def test_its_tables_and_columns_are_renamed_and_not_there_twice(tmp_path: Path) -> None:
    path = copied("conversations", tmp_path)
    session = SQLiteSession("long", path)
    await session.get_items()
    session.close()
    with closing(sqlite3.connect(path)) as db:
        described = [
            text
            for (text,) in db.execute("SELECT name || coalesce(sql, '') FROM sqlite_master")
            if "agent_" in text and not text.startswith("holdfast_schema")
        ]
        assert not [text for text in described if "holdfast" in text]
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_release_01_finds_a_layout_it_refuses_and_only_for_the_tables_that_were_opened(tmp_path: Path) -> None:
    """Its check: a version above 1 in its own table of versions, before it changes anything."""
    path = copied("conversations", tmp_path)
    session = SQLiteSession("long", path)
    await session.head()
    session.close()
    with closing(sqlite3.connect(path)) as db:
        assert dict(db.execute("SELECT tables, version FROM holdfast_schema").fetchall()) == {
            "agent_sessions/agent_messages": 2,
            "chats/chat_lines": 1,
        }


async def test_commits_and_checkpoints_of_release_01_keep_out_of_each_others_way(tmp_path: Path) -> None:
    """A process that has the file open still checkpoints it, and knows only the lock of its own release."""
    import fcntl

    path = copied("conversations", tmp_path)
    with open(f"{path}-holdfast-lock", "w") as older:
        fcntl.flock(older, fcntl.LOCK_EX)  # it is checkpointing
        session = SQLiteSession("long", path, timeout_s=0.3)
        with pytest.raises(TimeoutError):
            await session.add_items([message("meanwhile")])
        fcntl.flock(older, fcntl.LOCK_UN)
        await session.add_items([message("afterwards")])
        session.close()


async def test_what_each_writer_wrote_is_known_item_by_item(tmp_path: Path) -> None:
    session = SQLiteSession("long", copied("conversations", tmp_path))
    all_of_it = [message(f"long {number}") for number in range(100)]
    head = await session.head()
    assert await session.append(all_of_it, writer="run/long", start=0) == head  # a repeat of everything
    for number in (0, 31, 32, 63, 64, 99):
        with pytest.raises(SessionConflictError):
            await session.append([message("another")], writer="run/long", start=number)
    with pytest.raises(AppendGapError):
        await session.append([message("late")], writer="run/long", start=101)
    await session.append([message("long 100")], writer="run/long", start=100)
    await session.rewind(writer="run/long", to=100)
    assert await session.head() == head
    session.close()


async def test_an_undo_goes_on_where_release_01_left_it(tmp_path: Path) -> None:
    session = SQLiteSession("compacted", copied("conversations", tmp_path))
    third = (await session.generations())[0]
    before = await session.get_items()
    await session.restore(third.id)  # undoes the undo
    assert await session.get_items() == [message("summary 2"), message("c7"), message("after")]
    await session.restore((await session.generations())[0].id)
    assert await session.get_items() == before
    session.close()


async def test_a_writers_count_survives_its_clear_and_a_fork_goes_on(tmp_path: Path) -> None:
    path = copied("conversations", tmp_path)
    cleared, forked = SQLiteSession("cleared", path), SQLiteSession("forked", path)
    await cleared.append([message("anything"), message("at all")], writer="run", start=0)  # below the count: a repeat
    assert await cleared.get_items() == [message("new")]
    assert await forked.accepted("run") == 8
    await forked.append([message("on its own")], writer="run", start=8)
    assert await forked.get_items() == [message(text) for text in ("summary 1", "c6", "c7", "on its own")]
    cleared.close()
    forked.close()


async def test_a_paused_run_of_release_01_is_resumed(tmp_path: Path) -> None:
    session = SQLiteSession("desk", copied("runs", tmp_path))
    paid = []

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        """Pay."""
        paid.append(amount)
        return f"paid {amount}"

    agent: Agent[Any] = Agent(name="clerk", model=ScriptedModel([final("done")]), tools=[pay])
    state = await Runner.load(agent, "paused", session=session)
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(agent, state, session=session)
    assert (result.final_output, paid) == ("done", [3])
    assert [item.get("type", item.get("role")) for item in await session.get_items()] == [
        "user", "function_call", "function_call_output", "message",
    ]  # fmt: skip
    session.close()


async def test_a_saved_run_of_release_01_is_saved_on_and_goes_with_its_session(tmp_path: Path) -> None:
    session = SQLiteSession("shop", copied("runs", tmp_path))
    store = session.run_store()
    saved = {"status": "done", "agent": "A", "session_id": "shop"}
    assert await store.save_run("running", expect=2, head=b"h3", tails={"items": LogTail(3, [b"d"])}, **saved) == 3  # type: ignore[arg-type]
    run = await store.load_run("running")
    assert run is not None
    assert run.logs["items"] == (b"a", b"b", b"c", b"d")
    await session.clear_session()
    assert {one.run_id for one in (await store.list_runs())[0]} == {"alone", "paused"}
    session.close()
