"""A function of the caller decides what of a new input is stored, before anything else sees it (C1)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemorySession,
    RunConfig,
    Runner,
    SessionClosedError,
    SQLiteSession,
    UserError,
    function_tool,
    input_guardrail,
)
from standfast.testing import ScriptedModel, final, function_call

SECRET = "4711-0815"


def redact(new: list[Any]) -> list[Any]:
    return [{**item, "content": item["content"].replace(SECRET, "[card]")} for item in new]


@pytest.mark.clause("C1", backend="runs")
async def test_what_a_filter_takes_out_reaches_no_file_model_guardrail_or_result(tmp_path: Path) -> None:
    """The run pauses for a person, so that it is saved, too, and goes on: the filter is called once in all."""
    calls: list[list[Any]] = []
    judged: list[Any] = []

    def chosen(new: list[Any]) -> list[Any]:
        calls.append(new)
        return redact(new)

    @input_guardrail
    def looks(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        judged.append(given)
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    @function_tool(needs_approval=True)
    def pay() -> str:
        return "paid"

    model = ScriptedModel([[function_call("pay", "{}", call_id="c1")], final("Done.")])
    agent = Agent(name="Clerk", model=model, tools=[pay], input_guardrails=[looks])
    session = SQLiteSession("guest", tmp_path / "talks.db")
    config = RunConfig(stored_input_filter=chosen)
    paused = await Runner.run(agent, f"pay with {SECRET}", session=session, run_config=config)
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    result = await Runner.run(agent, state, session=session, run_config=config)

    assert [item["content"] for new in calls for item in new] == [f"pay with {SECRET}"]
    assert judged == ["pay with [card]"]
    assert all(SECRET not in str(call.input) for call in model.calls)
    assert SECRET not in str(result.to_input_list())
    assert (await session.get_items())[0]["content"] == "pay with [card]"
    await session.close()
    for file in tmp_path.iterdir():
        assert SECRET.encode() not in file.read_bytes()


@pytest.mark.clause("C1", backend="runs")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_callback_for_the_model_gets_the_filtered_items_and_history_is_not_stored_again(streamed: bool) -> None:
    session = InMemorySession("s")
    await session.add_items([{"role": "user", "content": "before"}])

    async def chosen(new: list[Any]) -> list[Any]:
        return [*redact(new), {"role": "user", "content": "twice"}, {"role": "user", "content": "twice"}]

    given: list[Any] = []

    def callback(history: list[Any], new: list[Any]) -> list[Any]:
        given.extend(new)
        return [*new, *history, *history]

    config = RunConfig(stored_input_filter=chosen, session_input_callback=callback)
    agent = Agent(name="A", model=ScriptedModel([final("ok")]))
    if streamed:
        result = Runner.run_streamed(agent, f"say {SECRET}", session=session, run_config=config)
        async for _ in result.stream_events():
            pass
    else:
        await Runner.run(agent, f"say {SECRET}", session=session, run_config=config)
    stored = [item.get("content") for item in await session.get_items()]
    assert stored[:4] == ["before", "say [card]", "twice", "twice"]
    assert len(stored) == 5
    assert [item["content"] for item in given] == ["say [card]", "twice", "twice"]


@pytest.mark.clause("C1", backend="runs")
@pytest.mark.parametrize("wrong", ["text", None, [1], ({"role": "user", "content": "a"},)])
async def test_a_filter_that_returns_no_list_of_items_ends_the_run_before_anything_is_stored(wrong: Any) -> None:
    session = InMemorySession("s")
    agent = Agent(name="A", model=ScriptedModel([final("never")]))
    with pytest.raises(UserError, match="stored_input_filter returned"):
        await Runner.run(agent, "hi", session=session, run_config=RunConfig(stored_input_filter=lambda new: wrong))
    assert await session.get_items() == []


async def test_a_run_repeated_under_its_id_is_known_by_its_filtered_input() -> None:
    session = InMemorySession("s")
    config = RunConfig(stored_input_filter=redact, run_id="pays")
    agent = Agent(name="A", model=ScriptedModel([final("ok")]))
    first = await Runner.run(agent, f"say {SECRET}", session=session, run_config=config)
    again = await Runner.run(agent, f"say {SECRET}", session=session, run_config=config)
    assert first.final_output == again.final_output == "ok"
    assert len(await session.get_items()) == 2


async def test_a_filter_that_raises_ends_the_run_and_lets_the_session_go() -> None:
    session = InMemorySession("s")
    agent = Agent(name="A", model=ScriptedModel([final("ok")]))

    def broken(new: list[Any]) -> list[Any]:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await Runner.run(agent, "hi", session=session, run_config=RunConfig(stored_input_filter=broken))
    assert (await Runner.run(agent, "hi", session=session)).final_output == "ok"
    config = RunConfig(stored_input_filter=broken, close_session=True)
    with pytest.raises(ZeroDivisionError):
        await Runner.run(agent, "hi", session=session, run_config=config)
    with pytest.raises(SessionClosedError):
        await session.get_items()
