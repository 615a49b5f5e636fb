"""A run that ends owing the server something says so, and hands it over (D11)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import InMemorySession, MaxTurnsExceeded, ModelBehaviorError, RunConfig, Runner
from standfast.testing.loopback import LoopbackServer, Script, call
from tests.runs.owners.stories import AUTOMATIC, CONVERSATION, GIVEN
from tests.runs.owners.world import World, both_modes, touch, words

pytestmark = pytest.mark.clause("D11", backend="runs")
server_owned = pytest.mark.parametrize("strategy", [CONVERSATION, GIVEN, AUTOMATIC])


async def brought_along(world: World, owed: list[Any], last_response_id: str | None) -> list[str]:
    """What the server has after a next run that brings along what was owed."""
    world.server.rule = Script(["ok"])
    owner = (
        {"conversation_id": world.conversation} if world.conversation else {"previous_response_id": last_response_id}
    )
    await world.run([*owed, {"role": "user", "content": "next"}], **owner)
    return words(world.history())


@both_modes
@server_owned
async def test_max_turns_names_the_outputs_that_were_not_sent(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """Without them the server refuses every later request of that conversation."""
    world = World(server, client, strategy, streamed)
    await world.begin()
    server.rule = Script([[call("look", call_id="c1"), call("look", call_id="c2")]])
    with pytest.raises(MaxTurnsExceeded, match="2 items") as caught:
        await world.say("hi", max_turns=1)
    assert "owed_items" in caught.value.remedy
    data: Any = caught.value.run_data
    assert words(data.owed_items) == ["O1", "O2"]
    seen = await brought_along(world, data.owed_items, data.raw_responses[-1].response_id)
    assert seen == ["U(hi)", "C1", "C2", "O1", "O2", "U(next)", "A"]


@both_modes
@server_owned
async def test_a_final_output_that_was_a_tools_is_owed_and_said_to_be(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI, caplog: pytest.LogCaptureFixture
):
    world = World(server, client, strategy, streamed, tool_use_behavior="stop_on_first_tool")
    await world.begin()
    server.rule = Script([call("look", call_id="c1")])
    with caplog.at_level(logging.WARNING, "standfast"):
        result = await world.say("hi")
    assert result.final_output == "saw "
    assert any("owed_items" in line for line in caplog.messages)
    assert words(result.owed_items) == ["O1"]
    seen = await brought_along(world, result.owed_items, result.last_response_id)
    assert seen == ["U(hi)", "C1", "O1", "U(next)", "A"]


@both_modes
async def test_a_handler_of_max_turns_leaves_what_is_owed_in_the_result(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed)
    server.rule = Script([call("look", call_id="c1")])
    result = await world.say("hi", max_turns=1, error_handlers={"max_turns": lambda data: "enough"})
    assert result.final_output == "enough"
    assert words(result.owed_items) == ["O1", "A"]


@pytest.mark.parametrize("strategy", [CONVERSATION, AUTOMATIC])
async def test_a_run_that_is_given_up_hands_over_the_rejections(
    strategy: str, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed=False)
    store = InMemorySession("runs").run_store()
    world.config = RunConfig(run_store=store, run_id="r")
    server.rule = Script([call("touch", call_id="c1")])
    result = await world.say("hi")
    assert [one.name for one in result.interruptions] == [touch.name]
    owed = await Runner.cancel_run(world.agent, "r", run_store=store)
    assert words(owed) == ["O1"]
    world.config = RunConfig()
    seen = await brought_along(world, owed, result.last_response_id)
    assert seen == ["U(hi)", "C1", "O1", "U(next)", "A"]


@both_modes
async def test_a_reply_that_is_refused_here_is_owed_the_outputs_of_its_calls(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The conversation has the calls, whatever is thought of them here: without outputs it takes nothing any more."""
    world = World(server, client, CONVERSATION, streamed)
    server.rule = Script([[call("look", call_id="c1"), call("no_such_tool", call_id="c2")]])
    with pytest.raises(ModelBehaviorError, match="no_such_tool") as caught:
        await world.say("hi")
    data: Any = caught.value.run_data
    assert words(data.owed_items) == ["O1", "O2"]
    assert all("did not run" in item["output"] for item in data.owed_items)
    assert any("owed_items" in note for note in caught.value.__notes__)
    seen = await brought_along(world, data.owed_items, None)
    assert seen == ["U(hi)", "C1", "C2", "O1", "O2", "U(next)", "A"]


@both_modes
@server_owned
async def test_a_run_that_waits_does_not_say_that_the_server_lacks_what_it_has_answered(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """Given to another run, as what is owed is, the message would be there twice."""
    world = World(server, client, strategy, streamed)
    await world.begin()
    server.rule = Script([call("touch", call_id="c1")])
    result = await world.say("hi")
    assert len(result.interruptions) == 1
    assert result.owed_items == []


@both_modes
@server_owned
async def test_an_answer_that_does_not_fit_its_type_was_an_answer(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed, output_type=int)
    await world.begin()
    server.rule = Script(["no number"])
    with pytest.raises(ModelBehaviorError) as caught:
        await world.say("hi")
    data: Any = caught.value.run_data
    assert data.owed_items == []


@both_modes
@pytest.mark.parametrize("strategy", ["replay", "session"])
async def test_a_client_owned_run_owes_nobody_anything(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI, caplog: pytest.LogCaptureFixture
):
    world = World(server, client, strategy, streamed, tool_use_behavior="stop_on_first_tool")
    server.rule = Script([call("look", call_id="c1")])
    with caplog.at_level(logging.WARNING, "standfast"):
        result = await world.say("hi")
    assert result.owed_items == []
    assert not any("owed_items" in line for line in caplog.messages)
