"""What a fresh hour on runs found: models of people's own that change what they are given, and odd replies."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from standfast import (
    Agent,
    InMemorySession,
    Model,
    ModelResponse,
    ModelSettings,
    RunConfig,
    Runner,
    Usage,
    function_tool,
)
from standfast._src.base.errors import ModelBehaviorError
from standfast.testing import ScriptedModel, assistant_message, final, function_call, reasoning
from tests.runs.whole_runs import go

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@function_tool
async def look(place: str) -> str:
    """Look."""
    return f"saw {place}"


def change(given: Any) -> None:
    """Change everything in place, as a model does that makes its provider's words of ours."""
    if isinstance(given, list):
        for one in given:
            change(one)
        given.append({"role": "user", "content": "changed"})
    elif isinstance(given, dict):
        for name, value in given.items():
            if isinstance(value, list):
                change(value)
            elif name in ("content", "text", "output", "arguments"):
                given[name] = "changed"


class Changing(Model):
    """A model of somebody's own that asks another one and then changes all it was given."""

    def __init__(self, inner: ScriptedModel) -> None:
        self.inner = inner

    def _change(self, items: Any, settings: ModelSettings, tools: list[Any]) -> None:
        change(items)
        settings.temperature = 2.0
        tools.clear()

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        reply = await self.inner.get_response(*given, **named)
        self._change(named["input"], named["model_settings"], named["tools"])
        return reply

    async def stream_response(self, *given: Any, **named: Any) -> AsyncIterator[Any]:
        async for event in self.inner.stream_response(*given, **named):
            yield event
        self._change(given[1], given[2], given[3])


@both_modes
async def test_a_model_that_changes_its_request_changes_nothing_that_is_stored_or_sent_later(streamed: bool) -> None:
    def steps() -> list[Any]:
        first = [reasoning("hm", item_id="r1"), function_call("look", {"place": "here"}, call_id="c1")]
        return [first, [function_call("look", {"place": "there"}, call_id="c2")], final("done")]

    told = [{"role": "user", "content": [{"type": "input_text", "text": "Look."}]}]
    histories, lists, requests = [], [], []
    for make in (lambda inner: inner, Changing):
        session, inner = InMemorySession("s"), ScriptedModel(steps())
        await session.add_items([{"role": "user", "content": "before"}, {"role": "assistant", "content": "yes"}])
        settings = ModelSettings(temperature=0.5)
        agent = Agent(name="A", tools=[look], model=make(inner), model_settings=settings)
        result = await go(agent, told, streamed=streamed, session=session)
        histories.append(await session.get_items())
        lists.append(result.to_input_list())
        requests.append([(call.input, len(call.tools), call.model_settings.temperature) for call in inner.calls])
        assert settings.temperature == 0.5
    assert histories[0] == histories[1]
    assert lists[0] == lists[1]
    assert requests[0] == requests[1]


@both_modes
async def test_a_callback_whose_pieces_overlap_shows_each_call_and_output_once(streamed: bool) -> None:
    """The first few and the last few of a history that is shorter than both: a provider refuses an id it has seen."""
    session = InMemorySession("s")
    thinking = [reasoning("hm", item_id="r1"), function_call("look", {"place": "here"}, call_id="c1", item_id="f1")]
    steps = [thinking, [assistant_message("done", item_id="m1")]]
    await Runner.run(Agent(name="A", tools=[look], model=ScriptedModel(steps)), "go", session=session)
    history = await session.get_items()
    rules = {"role": "developer", "content": "Be brief."}

    def ends(old: list[Any], new: list[Any]) -> list[Any]:
        return [rules, *old[:4], rules, *old[-4:], *new]

    model = ScriptedModel([final("ok")])
    config = RunConfig(session_input_callback=ends)
    await go(Agent(name="A", model=model), "next", streamed=streamed, session=session, run_config=config)
    seen = model.calls[0].input
    assert [item for item in seen if "role" not in item] == [item for item in history if "role" not in item]
    assert seen.count(rules) == 2  # messages are never merged


class Returning(Model):
    """A model that returns what it was made with, whatever that is."""

    def __init__(self, reply: Any, stream: Any = None) -> None:
        self._reply, self._stream = reply, stream

    async def get_response(self, *given: Any, **named: Any) -> Any:
        return self._reply

    def stream_response(self, *given: Any, **named: Any) -> Any:
        return self._stream


async def _a_list() -> list[Any]:
    return [assistant_message("hello")]


@pytest.mark.parametrize("output", [None, "a text", 5], ids=repr)
async def test_a_reply_without_a_list_of_items_is_refused_with_what_to_do(output: Any) -> None:
    reply = ModelResponse(output=output, usage=Usage(), response_id=None)
    with pytest.raises(ModelBehaviorError, match=r"A Model returns ModelResponse"):
        await Runner.run(Agent(name="A", model=Returning(reply)), "hi")


@pytest.mark.parametrize("make", [_a_list, lambda: None, lambda: [1]], ids=["a coroutine", "None", "a list"])
async def test_a_stream_that_cannot_be_iterated_is_refused_with_what_to_do(make: Any) -> None:
    agent = Agent(name="A", model=Returning(None, make()))
    async with asyncio.timeout(30):
        with pytest.raises(ModelBehaviorError, match=r"async generator"):
            await go(agent, "hi", streamed=True)
