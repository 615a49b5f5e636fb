"""Part D on the wire: every owner × every situation × both modes, asserted on what the server received."""

from __future__ import annotations

from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import OpenAIChatCompletionsModel, OpenAIConversationsSession, RunState
from standfast._src.items.items import to_json_item
from standfast.testing.loopback import Drop, LoopbackServer, Script, call, rate_limited, reasoning
from tests.runs.owners.stories import CLIENT_OWNED, PAGE, STORIES, STRATEGIES, expected, page, whole
from tests.runs.owners.world import World, both_modes, words

TWO_CALLS = [call("touch", {"what": "it"}, call_id="c1"), call("look", {"what": "it"}, call_id="c2")]
SCRIPTS: dict[str, list[Any]] = {
    "first turn": ["ok"],
    "follow-up": ["ok", "ok"],
    "two equal messages": ["ok", "ok"],
    "tool turn": [call("look", call_id="c1"), "ok"],
    "tool turn, then a follow-up": [call("look", call_id="c1"), "ok", "ok"],
    "three tool turns": [*(call("look", call_id=f"c{number}") for number in (1, 2, 3)), "ok"],
    "two calls at once": [[call("look", call_id="c1"), call("look", call_id="c2")], "ok"],
    "reasoning before a call": [[reasoning("hm"), call("look", call_id="c1")], "ok"],
    "handoff": [call("transfer_to_other", call_id="c1"), "ok"],
    "handoff, then a follow-up": [call("transfer_to_other", call_id="c1"), "ok", "ok"],
    "retry of the first request": ["ok"],
    "retry of a tool turn": [call("look", call_id="c1"), "ok"],
    "interruption and resume": [TWO_CALLS, "ok"],
    "interruption, saved as text and resumed": [TWO_CALLS, "ok"],
    "interruption, rejected": [TWO_CALLS, "ok"],
    "interruption, resumed with more input": [TWO_CALLS, "ok"],
    "interruption, then a follow-up": [TWO_CALLS, "ok", "ok"],
}


async def play(world: World, story: str) -> None:
    """Act the story out."""
    await world.begin()
    world.server.rule = Script(SCRIPTS[story])
    if story == "retry of the first request":
        world.server.fault(rate_limited(0.001))
    if story == "retry of a tool turn":
        world.server.fault(rate_limited(0.001), skip=1, times=2)
    result = await world.say("hi")
    if story.startswith("interruption"):
        assert words(to_json_item(item.raw_item) for item in result.interruptions) == ["C1"]
        state = result.to_state()
        if "saved as text" in story:
            state = await RunState.from_string(world.agent, state.to_string())
        for interruption in state.get_interruptions():
            state.reject(interruption) if "rejected" in story else state.approve(interruption)
        if "more input" in story:
            state.add_input("more")
        await world.resume(state)
    if "follow-up" in story:
        await world.say("next")
    if story == "two equal messages":
        await world.say("hi")


@pytest.mark.clause("D2", "D4", backend="runs")
@both_modes
@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("story", STORIES)
async def test_what_is_sent(story: str, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI):
    """Only what the owner has not seen, under the right id, once; and at the end all agree about what was said."""
    world = World(server, client, strategy, streamed)
    await play(world, story)
    assert world.last.final_output == "ok"
    assert world.received() == expected(strategy, story)
    world.assert_agreement(whole(story))
    assert world.last.owed_items == []
    if world.session is not None:
        assert words(await world.session.get_items()) == whole(story)


def test_the_page_shows_what_is_tested():
    """If this fails: python tests/runs/owners/stories.py"""
    assert PAGE.read_text(encoding="utf-8") == page()


def test_every_story_has_a_script():
    assert list(SCRIPTS) == list(STORIES)


# --- other ways to keep or reach the same conversation ---------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("lost", [False, True], ids=["calm", "an answer of the store is lost"])
async def test_a_session_in_the_conversations_api_is_a_session(
    lost: bool, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The session owns the conversation: the model gets the whole history, and each turn is stored once."""
    world = World(server, client, "session", streamed)
    world.session = OpenAIConversationsSession(openai_client=client)
    server.rule = Script([[reasoning("hm", encrypted_content="x"), call("look", call_id="c1")], "ok", "ok"])
    if lost:
        adding = "/items"
        server.fault(Drop(committed=True), on=lambda one: one.method == "POST" and one.path.endswith(adding), times=2)
    await world.say("hi")
    await world.say("next")
    assert world.received() == ["U(hi)", "U(hi) R C1 O1", "U(hi) R C1 O1 A U(next)"]
    assert words(await world.session.get_items()) == ["U(hi)", "R", "C1", "O1", "A", "U(next)", "A"]


@both_modes
@pytest.mark.parametrize("strategy", CLIENT_OWNED)
async def test_chat_completions_gets_the_whole_history(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    world.agent.model = OpenAIChatCompletionsModel("m", client)
    server.rule = Script([call("look", call_id="c1"), "ok", "ok"])
    await world.say("hi")
    await world.say("next")
    roles = [[message["role"] for message in received.body["messages"]] for received in server.model_calls]
    first = ["user", "assistant", "tool"]
    assert roles == [["user"], first, [*first, "assistant", "user"]]
