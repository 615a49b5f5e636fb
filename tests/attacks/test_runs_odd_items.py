"""Odd items and odd data, from a model, a caller or a tool: refused before anything runs, or kept whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    HandoffInputData,
    InMemorySession,
    ItemNotStorableError,
    ModelBehaviorError,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    SQLiteSession,
    UserError,
    function_tool,
    handoff,
)
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call, handoff_call

REQUEST = {"type": "mcp_approval_request", "id": "r1", "name": "x", "arguments": "{}", "server_label": "L"}


def kinds(items: list[Any]) -> list[str]:
    return [str(item.get("type") or item.get("role")) for item in items]


def counting(ran: list[str]) -> Any:
    @function_tool
    async def act() -> str:
        """Act."""
        ran.append("act")
        return "acted"

    return act


async def test_a_hosted_request_that_comes_twice_in_one_reply_is_asked_once_and_can_be_resumed(tmp_path: Path) -> None:
    model = ScriptedModel([[REQUEST, dict(REQUEST)], [assistant_message("done")]])
    agent: Agent[Any] = Agent(name="A", model=model)
    session = SQLiteSession("s", tmp_path / "a.db")
    paused = await Runner.run(agent, "go", session=session)
    state = await RunState.from_string(agent, paused.to_state().to_string())
    (interruption,) = state.get_interruptions()
    state.approve(interruption)
    result = await Runner.run(agent, state, session=session)
    assert result.final_output == "done"
    assert kinds(await session.get_items()) == ["user", "mcp_approval_request", "mcp_approval_response", "message"]


async def test_one_id_for_a_hosted_request_and_a_call_is_refused_before_either_runs() -> None:
    ran: list[str] = []
    model = ScriptedModel([[REQUEST, function_call("act", {}, call_id="r1")]])
    with pytest.raises(ModelBehaviorError, match="two different calls"):
        await Runner.run(Agent(name="A", model=model, tools=[counting(ran)]), "go", session=InMemorySession("s"))
    assert ran == []


@pytest.mark.parametrize("odd", [float("nan"), {1: 2}, object()], ids=["nan", "number as key", "object"])
async def test_a_reply_that_no_store_could_take_is_refused_before_its_calls_run(odd: Any) -> None:
    """Otherwise the tool has run, and its turn can never be stored."""
    ran: list[str] = []
    reply = ModelStep(output=[{"type": "news", "x": odd}, function_call("act", {}, call_id="c1")])
    session = InMemorySession("s")
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel([reply]), tools=[counting(ran)])
    with pytest.raises(ModelBehaviorError, match="not JSON"):
        await Runner.run(agent, "go", session=session)
    assert ran == []
    assert await session.get_items() == []


async def test_a_placeholder_in_the_input_or_the_reply_shifts_no_ordinal(tmp_path: Path) -> None:
    """It is never stored (C5); if it were counted, the next turn would leave a gap and be lost."""
    placeholder = {"type": "tool_approval_item", "name": "x"}
    replies = [[placeholder, function_call("act", {}, call_id="c1")], [assistant_message("done")]]
    model = ScriptedModel([ModelStep(output=reply) for reply in replies])
    agent: Agent[Any] = Agent(name="A", model=model, tools=[counting([])])
    session = SQLiteSession("s", tmp_path / "a.db")
    given = [{"role": "user", "content": "one"}, placeholder, {"role": "user", "content": "two"}]
    await Runner.run(agent, given, session=session)
    stored = await session.get_items()
    assert kinds(stored) == ["user", "user", "function_call", "function_call_output", "message"]
    assert all(placeholder not in call.input for call in model.calls)


async def test_custom_data_that_is_not_json_costs_no_history(tmp_path: Path) -> None:
    """The tool has run: whatever is wrong beside it, its call is stored."""

    @function_tool(custom_data_extractor=lambda _: {"live": object()})
    async def act() -> str:
        """Act."""
        return "acted"

    model = ScriptedModel([[function_call("act", {}, call_id="c1")]])
    session = SQLiteSession("s", tmp_path / "a.db")
    with pytest.raises(UserError, match="custom_data_extractor of tool 'act'"):
        await Runner.run(Agent(name="A", model=model, tools=[act]), "go", session=session)
    assert kinds(await session.get_items()) == ["user", "function_call", "function_call_output"]


@pytest.mark.parametrize("streamed", [False, True])
async def test_observers_that_change_what_they_are_given_change_no_history(streamed: bool) -> None:
    class Meddling(RunHooks[Any]):
        async def on_agent_start(self, context: Any, agent: Any) -> None:
            context.turn_input[0]["content"] = "forged"

        async def on_llm_start(self, context: Any, agent: Any, system_prompt: Any, input_items: Any) -> None:
            for item in input_items:
                item["forged"] = True
            input_items.clear()

    model = ScriptedModel([[function_call("act", {}, call_id="c1")], [assistant_message("done")]])
    agent: Agent[Any] = Agent(name="A", model=model, tools=[counting([])])
    session = InMemorySession("s")
    if streamed:
        stream = Runner.run_streamed(agent, "go", session=session, hooks=Meddling())
        _ = [event async for event in stream.stream_events()]
    else:
        await Runner.run(agent, "go", session=session, hooks=Meddling())
    stored = await session.get_items()
    assert stored[0] == {"role": "user", "content": "go"}
    assert not any("forged" in item for item in stored)
    assert model.calls[1].input == stored[:3]


async def test_a_session_that_does_not_close_hides_no_error() -> None:
    class Stuck(InMemorySession):
        def close(self) -> Any:
            raise RuntimeError("it does not close")

    model = ScriptedModel([ModelStep.raise_error(ValueError("the first"))])
    with pytest.raises(ValueError, match="the first") as caught:
        await Runner.run(
            Agent(name="A", model=model), "go", session=Stuck("s"), run_config=RunConfig(close_session=True)
        )
    assert "it does not close" in caught.value.__notes__[0]


async def test_a_watcher_that_changes_the_items_it_is_shown_changes_no_history() -> None:
    model = ScriptedModel([[function_call("act", {}, call_id="c1")], [assistant_message("done")]])
    agent: Agent[Any] = Agent(name="A", model=model, tools=[counting([])])
    session = InMemorySession("s")
    stream = Runner.run_streamed(agent, "go", session=session)
    async for event in stream.stream_events():
        if event.type == "run_item_stream_event" and isinstance(event.item.raw_item, dict):
            event.item.raw_item["output"] = "forged"
    assert (await session.get_items())[2]["output"] == "acted"
    assert model.calls[1].input[2]["output"] == "acted"


async def test_a_handoff_filter_that_changes_the_items_it_is_given_changes_no_history() -> None:
    def forge(data: HandoffInputData) -> HandoffInputData:
        for item in (*data.pre_handoff_items, *data.new_items):
            if isinstance(item.raw_item, dict) and "output" in item.raw_item:
                item.raw_item["output"] = "forged"
        return data

    other: Agent[Any] = Agent(name="B", model=ScriptedModel([[assistant_message("done")]]))
    replies = [[function_call("act", {}, call_id="c1")], [handoff_call(other, call_id="h1")]]
    agent: Agent[Any] = Agent(
        name="A", model=ScriptedModel(replies), tools=[counting([])], handoffs=[handoff(other, input_filter=forge)]
    )
    session = InMemorySession("s")
    result = await Runner.run(agent, "go", session=session)
    assert "forged" not in [item.get("output") for item in await session.get_items()]
    assert "forged" not in [item.get("output") for item in result.to_input_list()]


@pytest.mark.parametrize("odd", [float("nan"), object()], ids=["nan", "object"])
async def test_input_that_no_session_takes_is_refused_before_a_tool_runs(odd: Any) -> None:
    ran: list[str] = []
    model = ScriptedModel([[function_call("act", {}, call_id="c1")]])
    given = [{"role": "user", "content": "go", "odd": odd}]
    with pytest.raises(ItemNotStorableError):
        await Runner.run(Agent(name="A", model=model, tools=[counting(ran)]), given, session=InMemorySession("s"))
    assert ran == []
    assert model.calls == ()
