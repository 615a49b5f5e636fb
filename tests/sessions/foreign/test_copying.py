"""A conversation changes its owner: nothing is lost unseen, and the source stays as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from openai import AsyncOpenAI

from standfast import Agent, InMemorySession, OpenAIResponsesModel, Runner, UserError, function_tool
from standfast._src.base.errors import StoreError
from standfast._src.sessions.backends.openai_conversations import OpenAIConversationsSession
from standfast._src.sessions.foreign.copy_history import copy_history
from standfast._src.sessions.protocol import SessionSettings
from standfast.testing.loopback import LoopbackServer, Script, call, reasoning


@function_tool
def look() -> str:
    """Look."""
    return "saw it"


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


async def test_a_conversation_goes_to_the_server_and_back(server: LoopbackServer, client: AsyncOpenAI):
    """The story of a long-lived conversation: begun locally, continued on the server, brought home."""
    server.rule = Script(
        [[reasoning("hm", encrypted_content="sealed"), call("look")], "I looked.", "On the server.", "Home."]
    )
    agent = Agent(name="A", tools=[look], model=OpenAIResponsesModel("m", client))
    local = InMemorySession("local", session_settings=SessionSettings(limit=1))
    await Runner.run(agent, "Look!", session=local)

    remote = OpenAIConversationsSession(openai_client=client)
    there = await copy_history(local, remote)
    assert (there.copied, there.not_carried) == (5, ())
    await Runner.run(agent, "And now?", conversation_id=remote.session_id)
    assert server.model_calls[-1].input == [user("And now?")]
    assert len(server.history(remote.session_id)) == 7

    home = InMemorySession("home")
    back = await copy_history(remote, home)
    assert (back.copied, back.not_carried, back.reworded) == (7, (), ())
    result = await Runner.run(agent, "Still there?", session=home)
    assert result.final_output == "Home."
    assert len(server.model_calls[-1].input) == 8


async def test_what_cannot_come_along_is_reported_and_stays_at_the_source(server: LoopbackServer, client: AsyncOpenAI):
    items = [
        user("one"),
        {"type": "reasoning", "summary": []},
        {"type": "function_call_output", "call_id": "gone", "output": "x"},
        {"role": "assistant", "content": "two"},
        {"type": "function_call", "call_id": "open", "name": "look", "arguments": "{}"},
    ]
    local = InMemorySession("local")
    await local.add_items(items)
    remote = OpenAIConversationsSession(openai_client=client)
    report = await copy_history(local, remote)
    assert report.copied == 2
    assert [(one.index, one.item) for one in report.not_carried] == [(index, items[index]) for index in (1, 2, 4)]
    assert all(one.reason for one in report.not_carried)
    assert report.reworded == (3,)  # an assistant's text comes back as parts
    assert await local.get_items() == items
    model = OpenAIResponsesModel("m", client)
    assert (await Runner.run(Agent(name="A", model=model), "three", conversation_id=remote.session_id)).final_output


async def test_a_target_that_is_not_empty_is_refused(client: AsyncOpenAI, server: LoopbackServer):
    source, target = InMemorySession("source"), InMemorySession("target")
    await source.add_items([user("new")])
    await target.add_items([user("old")])
    with pytest.raises(UserError, match="into_existing"):
        await copy_history(source, target)
    report = await copy_history(source, target, into_existing=True)
    assert report.copied == 1
    assert await target.get_items() == [user("old"), user("new")]


class Forgetful(InMemorySession):
    """A store that says it took everything and keeps only the last item."""

    async def add_items(self, items: list[Any]) -> None:
        await super().add_items(items[-1:])


async def test_a_target_that_lost_something_is_noticed():
    source = InMemorySession("source")
    await source.add_items([user("one"), user("two")])
    with pytest.raises(StoreError, match="shows 1 items after a copy of 2"):
        await copy_history(source, Forgetful("target"))
    assert len(await source.get_items()) == 2


@settings(max_examples=30)
@given(st.lists(st.text(max_size=8), max_size=50))
def test_any_history_of_messages_is_carried_whole(texts: list[str]):
    import asyncio

    async def scenario() -> None:
        source = InMemorySession("source")
        await source.add_items([user(text) for text in texts])
        with LoopbackServer() as server:
            async with server.client() as client:
                remote, home = OpenAIConversationsSession(openai_client=client), InMemorySession("home")
                assert (await copy_history(source, remote)).copied == len(texts)
                assert (await copy_history(remote, home)).reworded == ()
                assert await home.get_items() == await source.get_items()

    asyncio.run(scenario())
