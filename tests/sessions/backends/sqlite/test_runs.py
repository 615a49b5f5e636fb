"""Saved runs beside the sessions: fenced, whole, and in the same file (C12)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from standfast._src.base.errors import NotFoundError, RunClaimedError
from standfast._src.runs.engine.run_store import LogTail, RunStore
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession
from standfast._src.sessions.protocol import abilities


@pytest.fixture(params=["file", ":memory:"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made = SQLiteSession("s", ":memory:" if request.param == ":memory:" else tmp_path / "s.db")
    yield made
    made.close()


async def save(store: RunStore, run_id: str, expect: int, head: bytes = b"head", **more: Any) -> int:
    given: dict[str, Any] = {"tails": {}, "status": "running", "agent": "helper", "session_id": "s", **more}
    return await store.save_run(run_id, expect=expect, head=head, **given)


async def test_a_run_comes_back_as_it_was_saved(session: SQLiteSession) -> None:
    store = session.run_store()
    assert "runs" in abilities(session)
    assert isinstance(store, RunStore)
    assert await store.load_run("r") is None
    tails = {"items": LogTail(0, [b"0", b"1\x00\xff", b"2"]), "calls": LogTail(0, [b"c"]), "empty": LogTail(0, [])}
    assert await save(store, "r", 0, tails=tails) == 1
    assert await save(store, "r", 1, b"head 2", tails={"items": LogTail(2, [b"2b", b"3"])}) == 2
    found = await store.load_run("r")
    assert found is not None
    assert (found.revision, found.head) == (2, b"head 2")
    assert found.logs == {"items": (b"0", b"1\x00\xff", b"2b", b"3"), "calls": (b"c",)}


async def test_of_two_who_save_on_one_revision_one_is_told_and_a_lost_acknowledgement_is_no_conflict(
    session: SQLiteSession,
) -> None:
    store = session.run_store()
    await save(store, "r", 0)
    results = await asyncio.gather(
        *(save(store, "r", 1, f"claim {n}".encode()) for n in range(5)), return_exceptions=True
    )
    assert sorted(type(result).__name__ for result in results) == ["RunClaimedError"] * 4 + ["int"]
    winner = next(n for n, result in enumerate(results) if result == 2)
    assert await save(store, "r", 1, f"claim {winner}".encode()) == 2
    with pytest.raises(RunClaimedError):
        await save(store, "other", 3)


async def test_a_tail_behind_a_gap_is_refused_and_nothing_is_written(session: SQLiteSession) -> None:
    store = session.run_store()
    await save(store, "r", 0, tails={"a": LogTail(0, [b"0"])})
    with pytest.raises(NotFoundError):
        await save(store, "r", 1, b"x", tails={"a": LogTail(1, [b"1"]), "b": LogTail(1, [b"?"])})
    found = await store.load_run("r")
    assert found is not None
    assert (found.revision, found.head, found.logs) == (1, b"head", {"a": (b"0",)})


async def test_runs_are_listed_newest_change_first_and_pruned_only_when_ended(session: SQLiteSession) -> None:
    store = session.run_store()
    for number in range(7):
        status = ("running", "paused", "done", "failed", "cancelled", "done", "done")[number]
        await save(store, f"r{number}", 0, status=status, session_id=None if number == 0 else f"s{number % 2}")
    await save(store, "r1", 1, b"again", status="paused", session_id="s1")
    listed, cursor, seen = *(await store.list_runs(limit=3)), []
    while True:
        seen += [run.run_id for run in listed]
        if cursor is None:
            break
        listed, cursor = await store.list_runs(limit=3, after=cursor)
    assert seen == ["r1", "r6", "r5", "r4", "r3", "r2", "r0"]
    assert [run.run_id for run in (await store.list_runs(status="done"))[0]] == ["r6", "r5", "r2"]
    assert [run.run_id for run in (await store.list_runs(session_id="s1"))[0]] == ["r1", "r5", "r3"]
    newest = (await store.list_runs(limit=1))[0][0]
    assert newest.created_at < newest.updated_at
    assert (newest.revision, newest.agent, newest.status) == (2, "helper", "paused")
    assert await store.prune_runs(keep=2) == 3
    assert [run.run_id for run in (await store.list_runs())[0]] == ["r1", "r6", "r5", "r0"]
    assert await store.prune_runs(older_than_s=3600) == 0
    assert await store.prune_runs(older_than_s=0) == 2
    assert await store.delete_run("r0") is True
    assert await store.delete_run("r0") is False
    with pytest.raises(NotFoundError):
        await store.list_runs(after="nonsense")


async def test_clearing_a_session_removes_its_runs_and_nobody_elses(session: SQLiteSession) -> None:
    """A saved run holds the turn that is open: that is part of everything stored for the id (A12)."""
    store = session.run_store()
    await save(store, "mine", 0, tails={"items": LogTail(0, [b"x"])})
    await save(store, "other", 0, tails={"items": LogTail(0, [b"y"])}, session_id="t")
    await session.clear_session()
    assert await store.load_run("mine") is None
    kept = await store.load_run("other")
    assert kept is not None
    assert kept.logs == {"items": (b"y",)}


async def test_a_run_that_clears_its_own_session_goes_on(session: SQLiteSession) -> None:
    """Its lease shows that it lives. A run that merely says running, and died, is removed with the rest."""
    store = session.run_store()
    await save(store, "mine", 0, tails={"items": LogTail(0, [b"x"])})
    await save(store, "paused", 0, status="paused")
    async with await session.lease(ttl_s=60, wait_s=5):
        await session.clear_session()
        assert await save(store, "mine", 1, b"on", tails={"items": LogTail(1, [b"y"])}) == 2
    assert [run.run_id for run in (await store.list_runs())[0]] == ["mine"]
    await session.clear_session()
    assert await store.list_runs() == ([], None)


async def test_a_run_and_a_turn_saved_at_once_share_a_commit_and_neither_fails_for_the_other(tmp_path: Path) -> None:
    session = SQLiteSession("s", tmp_path / "s.db")
    store = session.run_store()
    await save(store, "r", 0)
    results = await asyncio.gather(
        save(store, "r", 1, tails={"items": LogTail(0, [b"a"])}), session.add_items([{"a": 1}]),
        save(store, "r", 0, b"late"), session.append([{"b": 1}], writer="r", start=5), session.add_items([{"c": 1}]),
        return_exceptions=True,
    )  # fmt: skip
    assert [type(result).__name__ for result in results] == [
        "int", "NoneType", "RunClaimedError", "AppendGapError", "NoneType",
    ]  # fmt: skip
    assert await session.get_items() == [{"a": 1}, {"c": 1}]
    run = await store.load_run("r")
    assert run is not None
    assert run.logs == {"items": (b"a",)}
    session.close()
