"""A turn that no saved run has is stored before the next request leaves (C3)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, RunConfig, SQLiteSession, function_tool
from standfast.testing import ScriptedModel, function_call

from .observing import SeedSession
from .whole_runs import RecordingPlain, add, adding, go, kinds, said

TURN = ["user", "function_call", "function_call_output"]

both_ways = pytest.mark.parametrize("streamed", [False, True], ids=["run", "streamed"])


class Slow(SeedSession):
    """A plain session that takes a turn only some moments after it was asked."""

    async def add_items(self, items: list[Any]) -> None:
        for _ in range(20):
            await asyncio.sleep(0)
        await super().add_items(items)


@both_ways
async def test_a_plain_session_has_the_turn_when_the_next_request_leaves(streamed: bool) -> None:
    """A process that died in that request lost a turn whose tools had run."""
    session, seen = Slow("s"), list[list[str]]()

    async def note(data: Any) -> Any:
        seen.append(kinds(await session.get_items()))
        return data.model_data

    agent = Agent("Clerk", tools=[add], model=ScriptedModel([[adding(1, "c1")], [adding(2, "c2")], said("done")]))
    await go(agent, "add", session=session, streamed=streamed, run_config=RunConfig(call_model_input_filter=note))
    assert seen == [[], TURN, TURN + TURN[1:]]


@both_ways
async def test_an_append_that_failed_is_noticed_before_another_request_is_paid_for(streamed: bool) -> None:
    model = ScriptedModel([[adding(1, "c1")], said("done")])
    session = RecordingPlain(fail={1: "refused"})
    with pytest.raises(OSError, match="refused"):
        await go(Agent("Clerk", tools=[add], model=model), "add", session=session, streamed=streamed)
    assert len(model.calls) == 1


async def test_a_session_of_ours_has_the_turn_too_where_the_run_is_never_saved(tmp_path: Path) -> None:
    session, is_locked, asked_while_locked = SQLiteSession("s", tmp_path / "s.db"), False, list[bool]()
    await session.add_items([{"role": "user", "content": "hello"}])
    with closing(sqlite3.connect(tmp_path / "s.db", isolation_level=None)) as other:

        def unlock() -> None:
            nonlocal is_locked
            other.execute("ROLLBACK")
            is_locked = False

        @function_tool
        async def lock() -> str:
            """Keep the session from being written for a moment."""
            nonlocal is_locked
            other.execute("BEGIN IMMEDIATE")
            is_locked = True
            asyncio.get_running_loop().call_later(0.2, unlock)
            return "locked"

        def note(data: Any) -> Any:
            asked_while_locked.append(is_locked)
            return data.model_data

        model = ScriptedModel([[function_call("lock", {}, call_id="c1")], said("done")])
        config = RunConfig(call_model_input_filter=note, save="never")
        await go(Agent("Clerk", tools=[lock], model=model), "go", session=session, run_config=config)
    assert asked_while_locked == [False, False]
