"""A watcher that is cut off at every update and goes on in another process, while the run pauses, dies and goes on.

Each update is told to a process of its own, which ends behind it. Nothing waits for a time: a run goes on when what it
has come to was told.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from helpers.jobs import job_agent
from helpers.processes import Child, eventually
from helpers.watching import check_order, facts, watched_in_pieces
from helpers.workers import work

from standfast import RunConfig, Runner
from standfast._kits.operators.approvals import decide
from tests.helpers.stores import SHARED, looked_at, opened, place

Told = dict[str, Any]


@pytest.mark.parametrize("kind", [*SHARED, "sqlite, and no session"])
async def test_a_watcher_that_is_cut_off_at_every_update_sees_each_once(kind: str, tmp_path: Path) -> None:
    """Two calls at once, one that a person decides about, and a nested run; C12, C16 hold as without watchers."""
    kind, without, _ = kind.partition(", and no session")
    in_session = not without
    where, told = place(kind, tmp_path), list[Told]()
    agent, session = job_agent(str(tmp_path / "book"), lambda: None), opened(where)
    store = session.run_store()
    given: Any = {"session": session} if in_session else {}
    pieces = asyncio.create_task(watched_in_pieces(where, "r", "s" if in_session else None, told.append))

    await Runner.run(agent, "0", run_config=RunConfig(run_id="r", run_store=store), **given)
    await eventually(lambda: any(one.get("status") == "paused" for one in told) or pieces.done())
    assert [call["call_id"] for call in told[-1]["waiting"]] == ["0.pay"]
    await decide(store, "r", "0.pay", approve=True, by="a person")
    await eventually(lambda: any(one.get("status") == "ready" for one in told) or pieces.done())
    await Runner.resume(agent, "r", run_store=store, **given)

    assert await pieces == told
    check_order(told)
    calm = [update.to_json() async for update in Runner.watch("r", run_store=store, **given)]
    assert sorted(facts(told)) == sorted(facts(calm))
    assert told[-1] == calm[-1]
    assert told[-1]["output"] == "finished 0"
    await session.close()


@pytest.mark.parametrize("kind", SHARED)
async def test_a_run_that_is_killed_and_taken_over_is_seen_through(kind: str, tmp_path: Path) -> None:
    """Its first worker is killed in a call, its second stands in the next one until that was told (C12)."""
    where, told = place(kind, tmp_path), list[Told]()
    order: Any = {"path": str(tmp_path / "p"), "who": "w", "where": where}
    settings = {"lease_ttl_s": 1.0, "lease_wait_s": 60.0}
    pieces = asyncio.create_task(watched_in_pieces(where, "w", "s", told.append))
    with Child(work, at="call 1 paid", config=settings, **order) as first:
        await asyncio.to_thread(first.hear_until, "here")
        await eventually(lambda: _called("call_began", told) == ["w-1", "w-2"] or pieces.done())
        first.kill()
    with Child(work, at="call 3 began", config=settings, **order) as second:
        await asyncio.to_thread(second.hear_until, "here")
        await eventually(lambda: "w-3" in _called("call_began", told) or pieces.done())
        assert [one["is_taken_over"] for one in told if "is_taken_over" in one].count(True) == 1
        second.say("go on")
        assert (await asyncio.to_thread(second.result))[0] == "ok"
    await pieces
    check_order(told)
    assert _called("call_ended", told)[-1] == "w-3"
    session = looked_at(where)
    assert [one["item"] for one in told if one["type"] == "item_saved"] == await session.get_items()
    await session.close()
    assert told[-1]["status"] == "done"


def _called(kind: str, told: list[Told]) -> list[str]:
    return [one["call_id"] for one in told if one["type"] == kind]
