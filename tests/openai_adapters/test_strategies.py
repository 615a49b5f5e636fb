"""Part D on the wire: every owner × every situation × both modes, asserted on what the server received."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import AsyncOpenAI
from openai_adapters.strategies import CLIENT_OWNED, PAGE, SCENARIOS, STRATEGIES, expected, page

from holdfast import (
    Agent,
    InMemorySession,
    ModelRetrySettings,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesModel,
    Runner,
    RunState,
    SendOutcomeUnknownError,
    UserError,
    function_tool,
    retry_policies,
)
from holdfast.items import to_json_item
from holdfast.models.settle import alike
from holdfast.testing.loopback import (
    Cut,
    Drop,
    LoopbackServer,
    OmitIds,
    Script,
    Status,
    call,
    conversation_locked,
    rate_limited,
    reasoning,
)


@function_tool
def look(what: str = "") -> str:
    """Look at something."""
    return f"saw {what}"


@function_tool(needs_approval=True)
def touch(what: str = "") -> str:
    """Touch something."""
    return f"touched {what}"


class World:
    """One conversation under one strategy, against one server."""

    def __init__(self, server: LoopbackServer, client: AsyncOpenAI, strategy: str, streamed: bool) -> None:
        self.server, self.strategy, self.streamed = server, strategy, streamed
        model = OpenAIResponsesModel("m", client)
        settings = ModelSettings(retry=ModelRetrySettings(max_retries=3, policy=retry_policies.provider_suggested()))
        other = Agent(name="Other", model=model, model_settings=settings)
        self.agent = Agent(name="One", model=model, model_settings=settings, tools=[look, touch], handoffs=[other])
        self.session = InMemorySession("s") if strategy == "session" else None
        self.conversation = server.new_conversation() if strategy == "conversation_id" else None
        self.last: Any = None
        self.begun_at: str | None = None

    async def begin(self) -> None:
        """A chain that is given begins with a response that was there before."""
        if self.strategy == "previous_response_id":
            client = self.agent.model._clients.get(retries=True)  # type: ignore[union-attr]
            self.begun_at = (await client.responses.create(model="m", input="before")).id

    def owner(self) -> dict[str, Any]:
        match self.strategy:
            case "session":
                return {"session": self.session}
            case "conversation_id":
                return {"conversation_id": self.conversation}
            case "previous_response_id":
                return {"previous_response_id": self.last.last_response_id if self.last else self.begun_at}
            case "auto_previous_response_id":
                chain = {"previous_response_id": self.last.last_response_id} if self.last else {}
                return {"auto_previous_response_id": True, **chain}
        return {}

    async def say(self, words: str) -> Any:
        """A run of its own, which continues where the last one ended."""
        given: Any = words
        if self.strategy == "replay" and self.last is not None:
            given = [*self.last.to_input_list(), {"role": "user", "content": words}]
        return await self.run(given, **self.owner())

    async def resume(self, state: RunState) -> Any:
        """Go on with a paused run; the ids are in the state, the session is given again."""
        return await self.run(state, **({"session": self.session} if self.session is not None else {}))

    async def run(self, given: Any, **owner: Any) -> Any:
        if self.streamed:
            self.last = Runner.run_streamed(self.agent, given, **owner)
            async for _ in self.last.stream_events():
                pass
        else:
            self.last = await Runner.run(self.agent, given, **owner)
        return self.last


both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
every_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
server_owned = pytest.mark.parametrize("strategy", [one for one in STRATEGIES if one not in CLIENT_OWNED])

TWO_CALLS = [call("touch", {"what": "it"}, call_id="c1"), call("look", {"what": "it"}, call_id="c2")]
SCRIPTS: dict[str, list[Any]] = {
    "first turn": ["ok"],
    "follow-up": ["ok", "ok"],
    "tool turn": [call("look", call_id="c1"), "ok"],
    "two calls at once": [[call("look", call_id="c1"), call("look", call_id="c2")], "ok"],
    "reasoning before a call": [[reasoning("hm"), call("look", call_id="c1")], "ok"],
    "handoff": [call("transfer_to_other", call_id="c1"), "ok"],
    "retry of the first request": ["ok"],
    "retry of a tool turn": [call("look", call_id="c1"), "ok"],
    "interruption and resume": [TWO_CALLS, "ok"],
    "interruption, saved as text and resumed": [TWO_CALLS, "ok"],
    "interruption, then a follow-up": [TWO_CALLS, "ok", "ok"],
}


async def play(world: World, scenario: str) -> None:
    """Act the scenario out."""
    await world.begin()
    world.server.rule = Script(SCRIPTS[scenario])
    if scenario == "retry of the first request":
        world.server.fault(rate_limited(0.001))
    if scenario == "retry of a tool turn":
        world.server.fault(rate_limited(0.001), skip=1, times=2)
    result = await world.say("hi")
    if scenario.startswith("interruption"):
        assert [word_for(to_json_item(item.raw_item)) for item in result.interruptions] == ["C1"]
        state = result.to_state()
        if "saved as text" in scenario:
            state = await RunState.from_string(world.agent, state.to_string())
        for interruption in state.get_interruptions():
            state.approve(interruption)
        await world.resume(state)
    if "follow-up" in scenario:
        await world.say("next")


# --- what the server received ----------------------------------------------------------------------------------------


def received_by(server: LoopbackServer, world: World) -> list[str]:
    """Every request for a reply, in the words of the table."""
    names = {world.begun_at: "r0"} if world.begun_at else {}
    lines = []
    for received in server.model_calls[1 if world.begun_at else 0 :]:
        marks = ["[conv]"] if received.conversation_id else []
        if received.previous_response_id:
            marks = [f"[prev={names.get(received.previous_response_id, '?')}]"]
        lines.append(" ".join([*(word_for(item) for item in received.input), *marks]))
        if received.committed and received.response_id:
            names[received.response_id] = f"r{len(names) if world.begun_at else len(names) + 1}"
    return lines


def word_for(item: dict[str, Any]) -> str:
    match item.get("type", "message"):
        case "message" if item["role"] == "assistant":
            return "A"
        case "message":
            content = item["content"]
            return f"U({content if isinstance(content, str) else content[0]['text']})"
        case "function_call":
            return f"C{item['call_id'][1:]}"
        case "function_call_output":
            return f"O{item['call_id'][1:]}"
        case "reasoning":
            return "R"
    return str(item["type"])


def assert_agreement(server: LoopbackServer, world: World) -> None:
    """The client's and the server's idea of the history are one."""
    last = server.model_calls[-1]
    if world.strategy in CLIENT_OWNED:
        theirs = [*last.input, *server.history(last.response_id or "")[len(last.input) :]]
    else:
        theirs = server.history(world.conversation or last.response_id or "")
    mine = world.last.to_input_list()
    assert [word_for(item) for item in mine] == [word_for(item) for item in theirs[len(theirs) - len(mine) :]]
    assert all(alike(one, other) for one, other in zip(mine, theirs[len(theirs) - len(mine) :], strict=True))


@both_modes
@every_strategy
@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_what_is_sent(scenario: str, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI):
    """D2, D4, D7, C8: only what the owner has not seen, under the right id, once."""
    world = World(server, client, strategy, streamed)
    await play(world, scenario)
    assert world.last.final_output == "ok"
    assert received_by(server, world) == expected(strategy, scenario)
    assert_agreement(server, world)
    if world.session is not None:
        stored = await world.session.get_items()
        assert [word_for(item) for item in stored][-1] == "A"
        assert len(stored) == sum(len(step.new) + len(step.reply) for step in SCENARIOS[scenario])


def test_the_page_shows_what_is_tested():
    """If this fails: python tests/openai_adapters/strategies.py"""
    assert PAGE.read_text(encoding="utf-8") == page()


# --- answers that were lost ------------------------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running
        assert running.faults_waiting == 0


@both_modes
@pytest.mark.parametrize("turn", [0, 1], ids=["first request", "tool turn"])
@pytest.mark.parametrize("fault", [Drop(committed=True), Status(502, committed=True), Cut(after_bytes=30)], ids=str)
async def test_a_conversations_lost_answer_is_found_and_not_asked_for_again(
    fault: Any, turn: int, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """D5 (b): the server is asked what it has."""
    world = World(server, client, "conversation_id", streamed)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    server.fault(fault, skip=turn)
    await world.say("hi")
    assert world.last.final_output == "ok"
    assert received_by(server, world) == expected("conversation_id", "tool turn")
    assert_agreement(server, world)


@both_modes
async def test_a_request_that_was_not_taken_is_sent_again_after_the_server_said_so(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "conversation_id", streamed)
    server.fault(Drop(committed=False))
    await world.say("hi")
    assert received_by(server, world) == ["U(hi) [conv]"] * 2
    assert len(server.history(world.conversation or "")) == 2


@both_modes
async def test_a_locked_conversation_is_waited_for(streamed: bool, server: LoopbackServer, client: AsyncOpenAI):
    world = World(server, client, "conversation_id", streamed)
    server.fault(conversation_locked())
    await world.say("hi")
    assert received_by(server, world) == ["U(hi) [conv]"] * 2


@both_modes
async def test_a_chains_lost_answer_is_said_to_be_unknown(streamed: bool, server: LoopbackServer, client: AsyncOpenAI):
    """D5: nothing can be listed behind a response, so the request is not sent again and the error says why."""
    world = World(server, client, "previous_response_id", streamed)
    await world.begin()
    server.fault(Drop(committed=True))
    with pytest.raises(SendOutcomeUnknownError, match="approve_unsafe_replay"):
        await world.say("hi")
    assert received_by(server, world) == ["U(hi) [prev=r0]"]


async def test_a_chains_answer_that_was_seen_to_begin_is_retrieved(server: LoopbackServer, client: AsyncOpenAI):
    world = World(server, client, "previous_response_id", streamed=True)
    await world.begin()
    server.fault(Cut(after_events=2))
    await world.say("hi")
    assert world.last.final_output == "You said: hi"
    assert received_by(server, world) == ["U(hi) [prev=r0]"]
    assert_agreement(server, world)


@both_modes
@pytest.mark.parametrize("owner", [{"conversation_id": "conv_1"}, {"previous_response_id": "resp_1"}], ids=str)
async def test_chat_completions_with_a_server_owner_is_refused_before_anything_is_sent(
    owner: dict[str, Any], streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "replay", streamed)
    world.agent = Agent(name="One", model=OpenAIChatCompletionsModel("m", client))
    with pytest.raises(UserError, match="Chat Completions has no"):
        await world.run("hi", **owner)
    assert server.requests == []


@both_modes
async def test_chat_completions_replays_and_works_with_a_session(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "session", streamed)
    world.agent = Agent(name="One", model=OpenAIChatCompletionsModel("m", client), tools=[look])
    server.rule = Script([call("look", call_id="c1"), "ok", "ok"])
    await world.say("hi")
    await world.say("next")
    roles = [[message["role"] for message in received.body["messages"]] for received in server.model_calls]
    assert roles == [
        ["user"],
        ["user", "assistant", "tool"],
        ["user", "assistant", "tool", "assistant", "user"],
    ]


@both_modes
@pytest.mark.parametrize("lost", [False, True], ids=["calm", "an answer of the store is lost"])
async def test_a_session_in_the_conversations_api(
    lost: bool, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The session owns the conversation: the model gets the whole history, and each turn is stored once."""
    world = World(server, client, "session", streamed)
    world.session = OpenAIConversationsSession(openai_client=client)  # type: ignore[assignment]
    server.rule = Script([[reasoning("hm", encrypted_content="x"), call("look", call_id="c1")], "ok", "ok"])
    if lost:
        adding = "/items"
        server.fault(Drop(committed=True), on=lambda one: one.method == "POST" and one.path.endswith(adding), times=2)
    await world.say("hi")
    await world.say("next")
    assert received_by(server, world) == ["U(hi)", "U(hi) R C1 O1", "U(hi) R C1 O1 A U(next)"]
    stored = [word_for(item) for item in await world.session.get_items()]  # type: ignore[union-attr]
    assert stored == ["U(hi)", "R", "C1", "O1", "A", "U(next)", "A"]


@both_modes
async def test_a_provider_without_ids_gets_the_whole_history(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """D4: with no id to continue from, the automatic chain sends what is needed instead of losing it."""
    world = World(server, client, "auto_previous_response_id", streamed)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    server.fault(OmitIds(), times=2)
    await world.say("hi")
    assert received_by(server, world) == ["U(hi)", "U(hi) C1 O1"]
