"""A run that has ended gives its result by its id; one that has not goes on by it, watched or with other limits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    InMemoryRunStore,
    MaxTurnsExceeded,
    NotFoundError,
    RunConfig,
    Runner,
    RunStateError,
    SQLiteSession,
    UserError,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call


@function_tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@function_tool(needs_approval=True)
def pay() -> str:
    """Pay."""
    return "paid"


def adding(call_id: str) -> list[Any]:
    return [function_call("add", {"a": 1, "b": 2}, call_id=call_id)]


def agent(*steps: Any) -> Agent[Any]:
    return Agent(name="A", tools=[add, pay], model=ScriptedModel(steps))


async def test_a_run_on_a_store_gives_its_result_again():
    store = InMemoryRunStore()
    worker = agent(adding("c1"), final("3"))
    result = await Runner.run(worker, "1 + 2?", run_config=RunConfig(run_id="r1", run_store=store))
    again = await Runner.result(agent(), "r1", run_store=store)
    assert again.final_output == "3"
    assert again.to_input_list() == result.to_input_list()
    assert [item.type for item in again.new_items] == [item.type for item in result.new_items]
    assert again.context_wrapper.usage.requests == result.context_wrapper.usage.requests == 2
    assert again.run_id == "r1"


async def test_a_run_in_a_session_gives_what_it_alone_said(tmp_path: Path):
    session = SQLiteSession("s", str(tmp_path / "talks.db"))
    await Runner.run(agent(final("before")), "First", session=session)
    config = RunConfig(run_id="r1")
    result = await Runner.run(agent(adding("c1"), final("3")), "1 + 2?", session=session, run_config=config)
    await Runner.run(agent(final("after")), "Third", session=session)
    again = await Runner.result(agent(), "r1", session=session)
    assert again.final_output == "3"
    assert [item.type for item in again.new_items] == [item.type for item in result.new_items]
    assert [item["content"] for item in again.to_input_list() if item.get("role") == "user"] == ["1 + 2?"]
    assert len(await session.get_items()) == 8  # nothing was written
    await session.close()


async def test_a_run_that_has_not_ended_says_so_and_an_unknown_one_too():
    store = InMemoryRunStore()
    waiting = agent([function_call("pay", {}, call_id="c1")])
    await Runner.run(waiting, "Pay", run_config=RunConfig(run_id="r1", run_store=store))
    with pytest.raises(RunStateError, match=r"has not ended \(paused\)"):
        await Runner.result(waiting, "r1", run_store=store)
    with pytest.raises(NotFoundError):
        await Runner.result(waiting, "r2", run_store=store)


async def test_the_result_of_a_run_in_a_session_needs_the_session(tmp_path: Path):
    session = SQLiteSession("s", str(tmp_path / "talks.db"))
    await Runner.run(agent(final("x")), "Go", session=session, run_config=RunConfig(run_id="r1"))
    with pytest.raises(UserError, match="session"):
        await Runner.result(agent(), "r1", run_store=session.run_store())
    await session.close()


async def test_a_saved_run_goes_on_and_is_watched():
    store = InMemoryRunStore()
    worker = agent([function_call("pay", {}, call_id="c1")], final("done"))
    result = await Runner.run(worker, "Pay", run_config=RunConfig(run_id="r1", run_store=store))
    state = result.to_state()
    state.approve(state.get_interruptions()[0])
    with pytest.raises(NotFoundError):
        await Runner.resume_streamed(worker, "r2", run_store=store)
    watched = Runner.run_streamed(worker, state, run_config=RunConfig(run_store=store))
    watched.cancel("after_turn")
    async for _ in watched.stream_events():
        pass
    again = await Runner.resume_streamed(worker, "r1", run_store=store)
    events = [event.type async for event in again.stream_events()]
    assert "raw_response_event" in events
    assert again.final_output == "done"
    assert (await Runner.result(worker, "r1", run_store=store)).final_output == "done"


async def test_a_run_that_used_up_its_turns_goes_on_with_more():
    store = InMemoryRunStore()
    worker = agent(adding("c1"), adding("c2"), final("3"))
    config = RunConfig(run_id="r1", run_store=store)
    with pytest.raises(MaxTurnsExceeded):
        await Runner.run(worker, "Go", max_turns=1, run_config=config)
    with pytest.raises(MaxTurnsExceeded):
        await Runner.resume(worker, "r1", run_store=store)
    with pytest.raises(MaxTurnsExceeded):
        await Runner.resume(worker, "r1", run_store=store, max_turns=2)
    result = await Runner.resume(worker, "r1", run_store=store, max_turns=None)
    assert result.final_output == "3"
    with pytest.raises(TypeError):
        await Runner.resume(worker, "r1", run_store=store, max_turns="many")  # type: ignore[arg-type]
