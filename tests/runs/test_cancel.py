"""Stopping a run: what was done is kept, nothing is left running, and a stop comes when it was said (C8, C14)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, InMemorySession, Runner, SQLiteSession, function_tool
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call

from .observing import SESSIONS, SeedSession


class Desk:
    """Tools whose beginning and end can be waited for."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.log: list[str] = []

        @function_tool
        async def quick() -> str:
            """Return at once."""
            self.log.append("quick")
            return "quick"

        @function_tool
        async def endless() -> str:
            """Never return."""
            self.log.append("endless")
            self.begun.set()
            try:
                await asyncio.sleep(3600)
            finally:
                self.log.append("endless ended")
            return "never"

        self.tools = [quick, endless]

    def agent(self, *steps: Any) -> Agent[Any]:
        return Agent(name="A", model=ScriptedModel(list(steps)), tools=self.tools)


BOTH = [function_call("quick", {}, call_id="c1"), function_call("endless", {}, call_id="c2")]


def kinds(items: list[Any]) -> list[str]:
    return [str(item.get("type") or item.get("role")) for item in items]


@pytest.mark.parametrize("kind", [kind for kind in SESSIONS if kind != "none"])
@pytest.mark.clause("C8", backend="runs")
async def test_a_cancelled_run_stores_what_its_tools_did(kind: str, tmp_path: Path) -> None:
    """A tool ran: its turn is history, and the one that was cut says so."""
    desk, session = Desk(), SESSIONS[kind](tmp_path)
    task = asyncio.create_task(Runner.run(desk.agent(BOTH), "go", session=session))
    await desk.begun.wait()
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    items = await session.get_items()
    assert kinds(items) == ["user", "function_call", "function_call", "function_call_output", "function_call_output"]
    assert items[3]["output"] == "quick"
    assert "not completed" in items[4]["output"]
    assert desk.log[-1] == "endless ended"


async def test_cancelling_while_the_model_is_asked_leaves_nothing(tmp_path: Path) -> None:
    session = SQLiteSession("s", tmp_path / "a.db")
    result = Runner.run_streamed(Desk().agent(ModelStep.hang()), "go", session=session)
    await asyncio.sleep(0.05)
    result.cancel()
    assert [event async for event in result.stream_events()] == []
    assert result.is_complete
    assert result.current_turn == 0
    assert await session.get_items() == []
    assert result.run_loop_task is not None
    assert result.run_loop_task.done()


@pytest.mark.parametrize("kind", SESSIONS)
async def test_a_stop_said_at_a_turns_last_event_comes_before_the_next_request(kind: str, tmp_path: Path) -> None:
    desk, session = Desk(), SESSIONS[kind](tmp_path)
    steps = [[function_call("quick", {}, call_id=f"c{n}")] for n in range(3)]
    agent = desk.agent(*steps, [assistant_message("end")])
    result = Runner.run_streamed(agent, "go", session=session)
    async for event in result.stream_events():
        if event.type == "run_item_stream_event" and event.name == "tool_output":
            result.cancel("after_turn")
    assert result.current_turn == 1
    assert result.final_output is None
    assert isinstance(agent.model, ScriptedModel)
    assert len(agent.model.calls) == 1
    if session is not None:
        assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output"]
    resumed = await Runner.run(agent, result.to_state(), session=session)
    assert resumed.final_output == "end"
    assert desk.log == ["quick"] * 3


async def test_a_run_that_nobody_watches_runs_to_its_end(tmp_path: Path) -> None:
    session = InMemorySession("s")
    agent = Desk().agent([function_call("quick", {}, call_id="c1")], [assistant_message("end")])
    result = Runner.run_streamed(agent, "go", session=session)
    async for _ in result.stream_events():
        break
    assert result.run_loop_task is not None
    await result.run_loop_task
    assert result.final_output == "end"
    assert len(await session.get_items()) == 4


async def test_whoever_stops_waiting_for_events_by_cancellation_stops_the_run() -> None:
    desk = Desk()
    result = Runner.run_streamed(desk.agent(BOTH), "go", session=SeedSession("s"))

    async def watch() -> None:
        async for _ in result.stream_events():
            pass

    task = asyncio.create_task(watch())
    await desk.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert result.run_loop_task is not None
    await asyncio.wait([result.run_loop_task])
    assert desk.log[-1] == "endless ended"


async def test_no_task_is_left_after_a_run_that_was_stopped() -> None:
    before = asyncio.all_tasks()
    desk = Desk()
    result = Runner.run_streamed(desk.agent(BOTH), "go", session=InMemorySession("s"))
    await desk.begun.wait()
    result.cancel()
    async for _ in result.stream_events():
        pass
    assert asyncio.all_tasks() == before
