"""What is refused, and when: before anything is read or sent, with what to do (D1, D6, D10)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    InMemorySession,
    InputGuardrailTripwireTriggered,
    OpenAIChatCompletionsModel,
    OwnerError,
    RunConfig,
    RunHooks,
    Runner,
    RunState,
    UserError,
    handoff,
    input_guardrail,
    output_guardrail,
)
from standfast.testing.loopback import LoopbackServer, Script, call
from tests.runs.owners.stories import AUTOMATIC, CONVERSATION, GIVEN, STRATEGIES
from tests.runs.owners.world import World, both_modes, look

D1 = pytest.mark.clause("D1", backend="runs")
D6 = pytest.mark.clause("D6", backend="runs")
D10 = pytest.mark.clause("D10", backend="runs")


class Untouchable(InMemorySession):
    """A session that nobody may read or write."""

    def __init__(self) -> None:
        super().__init__("s")

    async def get_items(self, limit: int | None = None) -> list[Any]:
        raise AssertionError("the session was read")

    async def append(self, *args: Any, **named: Any) -> Any:
        raise AssertionError("the session was written")


# --- two owners ------------------------------------------------------------------------------------------------------

TWO = [
    ("session", "conversation_id"),
    ("session", "previous_response_id"),
    ("session", "auto_previous_response_id"),
    ("conversation_id", "previous_response_id"),
    ("conversation_id", "auto_previous_response_id"),
]
GIVEN_AS: dict[str, Any] = {
    "conversation_id": "conv_1",
    "previous_response_id": "resp_1",
    "auto_previous_response_id": True,
}


@D1
@both_modes
@pytest.mark.parametrize("names", TWO, ids=" and ".join)
async def test_two_owners_are_refused_before_anything_is_read_or_sent(
    names: tuple[str, str], streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "replay", streamed)
    owners = {name: Untouchable() if name == "session" else GIVEN_AS[name] for name in names}
    with pytest.raises(OwnerError) as caught:
        await world.run("hi", **owners)
    assert all(name in str(caught.value) for name in names)
    assert "Keep one" in caught.value.remedy
    assert server.requests == []


@D1
async def test_run_streamed_refuses_at_once(server: LoopbackServer, client: AsyncOpenAI):
    """Not only when somebody watches."""
    world = World(server, client, "replay", streamed=True)
    with pytest.raises(OwnerError):
        Runner.run_streamed(world.agent, "hi", session=Untouchable(), conversation_id="conv_1")


@D1
@pytest.mark.parametrize("names", [names for names in TWO if names[1] != AUTOMATIC], ids=" and ".join)
async def test_an_agent_tool_has_one_owner_too(names: tuple[str, str], server: LoopbackServer, client: AsyncOpenAI):
    world = World(server, client, "replay", streamed=False)
    owners = {name: Untouchable() if name == "session" else GIVEN_AS[name] for name in names}
    with pytest.raises(OwnerError):
        world.other.as_tool("ask", "Ask.", **owners)


@D1
@pytest.mark.parametrize("name", ["conversation_id", "previous_response_id"])
async def test_an_empty_id_is_no_owner(name: str, server: LoopbackServer, client: AsyncOpenAI):
    """It would be sent as none at all, and the model would answer as if nothing had been said before."""
    world = World(server, client, "replay", streamed=False)
    with pytest.raises(OwnerError, match=name):
        await world.run("hi", **{name: ""})
    assert server.requests == []


# --- another owner at resume -----------------------------------------------------------------------------------------


async def paused(world: World) -> RunState:
    await world.begin()
    world.server.rule = Script([call("touch", call_id="c1"), "ok"])
    await world.say("hi")
    state = await RunState.from_string(world.agent, world.last.to_state().to_string())
    state.approve(state.get_interruptions()[0])
    return state


OTHERS: dict[str, dict[str, Any]] = {
    "a session": {"session": Untouchable()},
    "a conversation": {"conversation_id": "conv_other"},
    "a chain": {"previous_response_id": "resp_other"},
}


@D1
@both_modes
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("other", OTHERS)
async def test_a_run_is_not_resumed_under_another_owner(
    other: str, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """Half of the conversation would be with the one, half with the other."""
    world = World(server, client, strategy, streamed)
    state = await paused(world)
    requests = len(server.requests)
    if strategy == "session" and other == "a session":
        given: dict[str, Any] = {"session": InMemorySession("another")}
    else:
        given = OTHERS[other]
    with pytest.raises(OwnerError, match="owned by") as caught:
        await world.run(state, **given)
    assert "own owner" in caught.value.remedy
    assert len(server.requests) == requests


@D1
@both_modes
async def test_a_run_of_a_session_is_not_resumed_without_it(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "session", streamed)
    state = await paused(world)
    with pytest.raises(OwnerError):
        await world.run(state)


@D1
@both_modes
async def test_a_run_that_the_caller_replays_does_not_become_an_automatic_chain(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "replay", streamed)
    state = await paused(world)
    with pytest.raises(OwnerError):
        await world.run(state, auto_previous_response_id=True)


# --- what a server cannot undo ---------------------------------------------------------------------------------------


def trimmed(data: Any) -> Any:
    return data.clone(input_history=())


@output_guardrail
def polite(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    return GuardrailFunctionOutput(None, False)


server_owned = pytest.mark.parametrize("strategy", [CONVERSATION, GIVEN, AUTOMATIC])


@D6
@both_modes
@server_owned
@pytest.mark.parametrize("where", ["run config", "first handoff", "far handoff", "output guardrail", "far guardrail"])
async def test_what_a_server_cannot_undo_is_refused_before_a_model_call_is_paid_for(
    where: str, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    await world.begin()
    far = Agent(name="Far", model=world.model)
    match where:
        case "run config":
            world.config = RunConfig(handoff_input_filter=trimmed)
        case "first handoff":
            world.agent.handoffs = [handoff(world.other, input_filter=trimmed)]
        case "far handoff":
            world.other.handoffs = [handoff(far, input_filter=trimmed)]
        case "output guardrail":
            world.agent.output_guardrails = [polite]
        case "far guardrail":
            world.other.handoffs, far.output_guardrails = [handoff(far)], [polite]
    requests = len(server.requests)
    with pytest.raises(UserError, match="server") as caught:
        await world.say("hi")
    assert "session" in caught.value.remedy
    assert len(server.requests) == requests


@D6
@both_modes
@server_owned
async def test_nesting_is_switched_off_with_a_warning(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI, caplog: pytest.LogCaptureFixture
):
    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = RunConfig(nest_handoff_history=True)
    server.rule = Script([call("transfer_to_other", call_id="c1"), "ok"])
    with caplog.at_level(logging.WARNING, "standfast"):
        await world.say("hi")
    assert any("nest_handoff_history" in line for line in caplog.messages)
    assert [line.split(" [")[0] for line in world.received()] == ["U(hi)", "O1"]
    world.assert_agreement(["U(hi)", "C1", "O1", "A"])


@D6
@both_modes
async def test_an_agent_that_runs_as_a_tool_has_a_conversation_of_its_own(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """What it guards and filters there does not concern the server that owns the outer one."""
    world = World(server, client, CONVERSATION, streamed)
    inner = Agent(
        name="Inner",
        model=world.model,
        output_guardrails=[polite],
        handoffs=[handoff(world.other, input_filter=trimmed)],
    )
    world.agent.tools = [look, inner.as_tool("ask_inner", "Ask.")]
    server.rule = Script([call("ask_inner", {"input": "?"}, call_id="c1"), "inner", "ok"])
    await world.say("hi")
    assert world.last.final_output == "ok"
    world.assert_agreement(["U(hi)", "C1", "O1", "A"])


@D6
@both_modes
@pytest.mark.parametrize("owner", [{"conversation_id": "conv_1"}, {"previous_response_id": "resp_1"}], ids=str)
async def test_the_server_of_an_agent_tool_is_refused_as_early(
    owner: dict[str, Any], streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """Known before the outer model call is paid for."""
    world = World(server, client, "replay", streamed)
    inner = Agent(name="Inner", model=world.model, output_guardrails=[polite])
    world.agent.tools = [inner.as_tool("ask_inner", "Ask.", **owner)]
    with pytest.raises(UserError, match="Inner"):
        await world.say("hi")
    assert server.requests == []


@D6
@both_modes
@pytest.mark.parametrize("owner", [{"conversation_id": "conv_1"}, {"previous_response_id": "resp_1"}], ids=str)
async def test_chat_completions_with_a_server_owner_is_refused_before_anything_is_sent(
    owner: dict[str, Any], streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "replay", streamed)
    world.agent.model = OpenAIChatCompletionsModel("m", client)
    with pytest.raises(UserError, match="Chat Completions has no"):
        await world.run("hi", **owner)
    assert server.requests == []


# --- what has been taken cannot be taken back ------------------------------------------------------------------------


@D10
@both_modes
@pytest.mark.parametrize("run_in_parallel", [True, False], ids=["parallel", "sequential"])
async def test_a_conversation_gets_nothing_before_the_input_guardrails_have_passed(
    run_in_parallel: bool, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    steps: list[str] = []

    class Noting(RunHooks[Any]):
        async def on_llm_start(self, *_: Any) -> None:
            steps.append("the model is asked")

    @input_guardrail(run_in_parallel=run_in_parallel)
    async def slow(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        for _ in range(20):  # in the run's own loop: what is not held back begins within a few of its turns
            await asyncio.sleep(0)
        steps.append("passed")
        return GuardrailFunctionOutput(None, False)

    world = World(server, client, CONVERSATION, streamed, input_guardrails=[slow])
    await world.say("hi", hooks=Noting())
    assert steps == ["passed", "the model is asked"]
    world.assert_agreement(["U(hi)", "A"])


@D10
@both_modes
@pytest.mark.parametrize("run_in_parallel", [True, False], ids=["parallel", "sequential"])
async def test_a_trip_leaves_the_conversation_as_it_was(
    run_in_parallel: bool, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    @input_guardrail(run_in_parallel=run_in_parallel)
    async def never(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asyncio.sleep(0)
        return GuardrailFunctionOutput(None, True)

    world = World(server, client, CONVERSATION, streamed, input_guardrails=[never])
    with pytest.raises(InputGuardrailTripwireTriggered):
        await world.say("hi")
    assert server.requests == []
    assert server.history(world.conversation or "") == []


@D10
@both_modes
async def test_staged_input_is_judged_before_the_conversation_gets_it(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    seen: list[Any] = []

    @input_guardrail
    async def no_more(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        seen.append(given)
        return GuardrailFunctionOutput(None, "more" in str(given))

    world = World(server, client, CONVERSATION, streamed, input_guardrails=[no_more])
    state = await paused(world)
    state.add_input("more")
    requests = len(server.requests)
    with pytest.raises(InputGuardrailTripwireTriggered):
        await world.resume(state)
    assert len(seen) == 2
    assert len(server.requests) == requests
