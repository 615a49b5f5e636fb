"""Run stores keep what `engine.store.RunStore` promises, in memory and in SQLite."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from standfast._src.base.errors import NotFoundError, RunClaimedError
from standfast._src.runs.engine.run_store import LogTail, RunStore
from standfast._src.sessions.backends.memory.memory_session import InMemorySession
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.protocol import abilities


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RunStore]:
    session = InMemorySession("a") if request.param == "memory" else SQLiteSession("a", tmp_path / "runs.db")
    assert "runs" in abilities(session)
    found = session.run_store()
    assert isinstance(found, RunStore)
    yield found
    session.close()


async def save(store: RunStore, run_id: str, expect: int, head: bytes = b"head", **more: Any) -> int:
    values: dict[str, Any] = {"tails": {}, "status": "running", "agent": "helper", **more}
    return await store.save_run(run_id, expect=expect, head=head, **values)


async def test_a_run_comes_back_as_it_was_saved(store: RunStore) -> None:
    assert await store.load_run("r") is None
    tails = {"items": LogTail(0, [b"a", b"b"]), "calls": LogTail(0, [b"\x00\xff"])}
    assert await save(store, "r", 0, b"one", tails=tails, session_id="s") == 1
    saved = await store.load_run("r")
    assert saved is not None
    assert (saved.run_id, saved.revision, saved.head) == ("r", 1, b"one")
    assert {name: list(log) for name, log in saved.logs.items()} == {"items": [b"a", b"b"], "calls": [b"\x00\xff"]}


async def test_a_tail_replaces_what_the_log_has_from_its_start_on(store: RunStore) -> None:
    await save(store, "r", 0, b"1", tails={"items": LogTail(0, [b"a", b"b", b"c"])})
    await save(store, "r", 1, b"2", tails={"items": LogTail(1, [b"B"])})
    await save(store, "r", 2, b"3", tails={"items": LogTail(2, [b"d", b"e"])})
    saved = await store.load_run("r")
    assert saved is not None
    assert list(saved.logs["items"]) == [b"a", b"B", b"d", b"e"]


async def test_of_two_who_save_on_one_revision_the_second_is_told(store: RunStore) -> None:
    await save(store, "r", 0, b"1")
    outcomes = await asyncio.gather(*(save(store, "r", 1, b"2%d" % n) for n in range(6)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["RunClaimedError"] * 5 + ["int"]
    winner = next(n for n, outcome in enumerate(outcomes) if outcome == 2)
    saved = await store.load_run("r")
    assert saved is not None
    assert saved.head == b"2%d" % winner
    for expect in (0, 1, 5):
        with pytest.raises(RunClaimedError):
            await save(store, "r", expect, b"other", tails={"items": LogTail(0, [b"lost"])})
    with pytest.raises(RunClaimedError):
        await save(store, "new", 3)
    again = await store.load_run("r")
    assert again is not None
    assert (again.revision, dict(again.logs)) == (2, {})


async def test_a_repeat_after_a_lost_acknowledgement_succeeds(store: RunStore) -> None:
    tails = {"items": LogTail(0, [b"a"])}
    assert await save(store, "r", 0, b"1", tails=tails) == 1
    assert await save(store, "r", 0, b"1", tails=tails) == 1
    assert await save(store, "r", 1, b"2") == 2
    assert await save(store, "r", 1, b"2") == 2
    with pytest.raises(RunClaimedError):
        await save(store, "r", 0, b"1")


async def test_a_tail_that_leaves_a_gap_is_refused(store: RunStore) -> None:
    await save(store, "r", 0, b"1", tails={"items": LogTail(0, [b"a"])})
    with pytest.raises(NotFoundError):
        await save(store, "r", 1, b"2", tails={"items": LogTail(3, [b"d"])})
    saved = await store.load_run("r")
    assert saved is not None
    assert saved.revision == 1


async def test_runs_are_listed_newest_change_first_in_pages(store: RunStore) -> None:
    for number in range(5):
        await save(store, f"r{number}", 0, status="paused" if number % 2 else "running", session_id=f"s{number % 2}")
        await asyncio.sleep(0.003)
    await save(store, "r1", 1, status="paused", session_id="s1")
    found: list[str] = []
    after = None
    while True:
        page, after = await store.list_runs(after=after, limit=2)
        found += [summary.run_id for summary in page]
        if after is None:
            break
    assert found == ["r1", "r4", "r3", "r2", "r0"]
    paused, _ = await store.list_runs(status="paused")
    assert [summary.run_id for summary in paused] == ["r1", "r3"]
    of_session, _ = await store.list_runs(session_id="s0")
    assert {summary.run_id for summary in of_session} == {"r0", "r2", "r4"}
    newest = paused[0]
    assert (newest.status, newest.session_id, newest.agent, newest.revision) == ("paused", "s1", "helper", 2)
    assert newest.created_at < newest.updated_at
    assert newest.created_at.tzinfo is not None


async def test_a_deleted_run_is_gone_with_its_logs(store: RunStore) -> None:
    await save(store, "r", 0, tails={"items": LogTail(0, [b"a"])})
    assert await store.delete_run("r") is True
    assert await store.delete_run("r") is False
    assert await store.load_run("r") is None
    await save(store, "r", 0)
    saved = await store.load_run("r")
    assert saved is not None
    assert not saved.logs.get("items")


async def test_only_ended_runs_are_pruned(store: RunStore) -> None:
    for number, status in enumerate(("running", "paused", "done", "failed", "cancelled", "done")):
        await save(store, f"r{number}", 0, status=status)
        await asyncio.sleep(0.003)
    assert await store.prune_runs(older_than_s=3600) == 0
    assert await store.prune_runs(keep=2) == 2
    left, _ = await store.list_runs()
    assert [summary.run_id for summary in left] == ["r5", "r4", "r1", "r0"]
    assert await store.prune_runs(older_than_s=0) == 2
    assert await store.prune_runs() == 0
    left, _ = await store.list_runs()
    assert [summary.run_id for summary in left] == ["r1", "r0"]
