"""The response chain (D4): it follows the latest response that has an id, and never loses what an id does not cover."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from openai import APIStatusError, AsyncOpenAI

from standfast import ModelSettings, RunState, UserError
from standfast.testing.loopback import LoopbackServer, OmitIds, Script, call
from tests.runs.owners.stories import AUTOMATIC, BOTH, CHAINS, GIVEN
from tests.runs.owners.world import World, both_modes, words

pytestmark = pytest.mark.clause("D4", backend="runs")

THREE_CALLS = [*(call("look", call_id=f"c{number}") for number in (1, 2, 3)), "ok"]
chains = pytest.mark.parametrize("strategy", CHAINS)


@both_modes
async def test_a_provider_that_gives_no_ids_gets_the_whole_history(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """With no id to continue from, the automatic chain sends what is needed instead of losing it."""
    world = World(server, client, AUTOMATIC, streamed)
    server.rule = Script(THREE_CALLS)
    server.fault(OmitIds(), times=4)
    await world.say("hi")
    assert world.received() == ["U(hi)", "U(hi) C1 O1", "U(hi) C1 O1 C2 O2", "U(hi) C1 O1 C2 O2 C3 O3"]
    assert world.last.last_response_id is None


@both_modes
@pytest.mark.parametrize("strategy", [GIVEN, BOTH])
async def test_a_reply_without_an_id_is_sent_again_behind_the_last_that_had_one(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The mark belongs to the id: a reply without one moves neither."""
    world = World(server, client, strategy, streamed)
    await world.begin()
    server.rule = Script(THREE_CALLS)
    server.fault(OmitIds(), skip=1)
    await world.say("hi")
    assert world.received() == ["U(hi) [prev=r0]", "O1 [prev=r1]", "O1 C2 O2 [prev=r1]", "O3 [prev=r3]"]


@pytest.fixture(scope="module")
def shared() -> Any:
    with LoopbackServer() as running:
        yield running


@settings(max_examples=20)
@given(
    omitted=st.lists(st.booleans(), min_size=4, max_size=4), streamed=st.booleans(), strategy=st.sampled_from(CHAINS)
)
def test_whichever_replies_have_no_id_the_server_sees_everything_once(
    shared: LoopbackServer, omitted: list[bool], streamed: bool, strategy: str
):
    """What a reply without an id left behind is in the next request, behind the newest id there is."""

    async def scenario() -> None:
        async with shared.client(max_retries=0) as client:
            shared.rule = lambda asked: "before"
            world = World(shared, client, strategy, streamed)
            await world.begin()
            world.before = len(shared.model_calls)
            shared.rule = Script(THREE_CALLS)
            for place, omit in enumerate(omitted):
                if omit:
                    # Faults are queued in order, each counting requests from the one before it.
                    shared.fault(OmitIds(), on=_number(shared, world.before + place + 1))
            await world.say("hi")
            last = shared.model_calls[-1]
            behind = shared.history(last.previous_response_id) if last.previous_response_id else []
            seen = words([*behind, *last.input])[2 if world.begun_at else 0 :]
            assert seen == ["U(hi)", "C1", "O1", "C2", "O2", "C3", "O3"]

    asyncio.run(scenario())


def _number(server: LoopbackServer, wanted: int) -> Any:
    """Matches the model call with this number (the first is 1)."""
    return lambda received: received.is_model_call and len(server.model_calls) == wanted


@both_modes
@chains
async def test_a_chain_goes_on_from_a_resumed_state_without_being_told(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The state carries the newest id; neither the first id nor `auto` need to be given again, and both may be."""
    world = World(server, client, strategy, streamed)
    await world.begin()
    server.rule = Script([call("touch", call_id="c1"), call("touch", call_id="c2"), "ok"])
    again = [{}, {} if strategy == GIVEN else {"auto_previous_response_id": True}]
    await world.say("hi")
    for more in again:
        state = await RunState.from_string(world.agent, world.last.to_state().to_string())
        state.approve(state.get_interruptions()[0])
        await world.resume(state, **more)
    assert world.last.final_output == "ok"
    ids = [one.previous_response_id for one in server.model_calls[world.before :]]
    assert ids == [world.begun_at, *(one.response_id for one in server.model_calls[world.before : -1])]


# --- ids the server does not have ------------------------------------------------------------------------------------


@both_modes
async def test_a_chain_that_the_server_forgot_is_an_error_that_says_what_to_do(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """It was refused, so nothing is in doubt. The remedy is a note: programs catch the library's error as before."""
    world = World(server, client, GIVEN, streamed)
    await world.begin()
    assert world.begun_at is not None
    server.forget(world.begun_at)
    with pytest.raises(APIStatusError, match="not found") as caught:
        await world.say("hi")
    assert caught.value.code == "previous_response_not_found"
    assert any("to_input_list()" in note for note in caught.value.__notes__)
    assert len(world.received()) == 1


@both_modes
async def test_a_chain_that_is_forgotten_in_the_middle_loses_nothing_of_the_run(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, AUTOMATIC, streamed)
    server.rule = Script([call("touch", call_id="c1"), "ok"])
    state = (await world.say("hi")).to_state()
    server.forget(world.last.last_response_id)
    state.approve(state.get_interruptions()[0])
    with pytest.raises(APIStatusError, match="not found") as caught:
        await world.resume(state)
    run_data = RunState.to_json(caught.value.run_state)  # type: ignore[attr-defined]
    assert "touched" in str(run_data)


@both_modes
async def test_a_conversation_that_the_server_does_not_have_is_refused_before_anything_is_said(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "conversation_id", streamed)
    world.conversation = "conv_nowhere"
    with pytest.raises(APIStatusError, match="not found") as caught:
        await world.say("hi")
    assert any("start_openai_conversations_session" in note for note in caught.value.__notes__)
    assert server.model_calls == []


@both_modes
@chains
@pytest.mark.parametrize("where", ["agent", "handoff target", "run config"])
async def test_store_false_with_a_chain_is_refused_before_anything_is_sent(
    where: str, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The second request would name a response that was not stored."""
    world = World(server, client, strategy, streamed)
    await world.begin()
    unstored = ModelSettings(store=False)
    match where:
        case "agent":
            world.agent.model_settings = unstored
        case "handoff target":
            world.other.model_settings = unstored
        case "run config":
            world.config.model_settings = unstored
    with pytest.raises(UserError, match="store=False") as caught:
        await world.say("hi")
    assert "session" in caught.value.remedy
    assert world.received() == []


@both_modes
async def test_store_false_is_fine_where_nothing_is_kept_on_the_server(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "session", streamed, settings=ModelSettings(store=False))
    server.rule = Script([call("look", call_id="c1"), "ok"])
    await world.say("hi")
    assert world.received() == ["U(hi)", "U(hi) C1 O1"]
