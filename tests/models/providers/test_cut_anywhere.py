"""However the network cuts a reply, it is accepted whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from models.providers.asking import Tool, ask, items

from standfast._src.models.providers.chat_model import OpenAIChatCompletionsModel
from standfast._src.models.providers.responses_model import OpenAIResponsesModel
from standfast.testing.loopback import Cut, Drip, LoopbackServer, call, reasoning, text

ANSWER = [text("Zwölf Boxkämpfer — 十二."), call("add", {"a": 1, "b": [2, 3]}, call_id="c1")]
REASONED = [reasoning("weighing it"), *ANSWER]
MODELS: dict[str, Any] = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}


@pytest.fixture(scope="module")
def running() -> Iterator[LoopbackServer]:
    with LoopbackServer(lambda asked: REASONED) as server:
        yield server


async def reply_to(server: LoopbackServer, api: str, streamed: bool) -> list[dict[str, Any]] | None:
    """What the adapter accepted, without ids; None if it raised."""
    async with server.client(max_retries=0, timeout=60.0) as client:
        model = MODELS[api]("m", client)
        try:
            reply = await ask(model, "x", streamed=streamed, tools=[Tool("add")])
        except Exception:
            return None
    return [{name: value for name, value in item.items() if name != "id"} for item in items(reply)]


@pytest.fixture(scope="module")
def whole(running: LoopbackServer) -> dict[tuple[str, bool], Any]:
    cases = [(api, streamed) for api in MODELS for streamed in (False, True)]
    return {case: asyncio.run(reply_to(running, *case)) for case in cases}


def test_streaming_or_not_the_reply_is_the_same(whole: dict[tuple[str, bool], Any]):
    for api in MODELS:
        assert whole[api, False] == whole[api, True]
        assert json.loads(whole[api, True][-1]["arguments"]) == {"a": 1, "b": [2, 3]}


@settings(max_examples=250)
@given(
    api=st.sampled_from(sorted(MODELS)),
    streamed=st.booleans(),
    clean=st.booleans(),
    after_bytes=st.integers(0, 9_000),
)
def test_a_connection_cut_at_any_byte_gives_the_whole_reply_or_an_error(
    running: LoopbackServer, whole: Any, api: str, streamed: bool, clean: bool, after_bytes: int
):
    """`clean` ends the HTTP message properly, so that only what is missing tells of the cut."""
    running.fault(Cut(after_bytes=after_bytes, clean=clean))
    accepted = asyncio.run(reply_to(running, api, streamed))
    assert accepted is None or accepted == whole[api, streamed]


@pytest.mark.parametrize("clean", [False, True])
@pytest.mark.parametrize("api", sorted(MODELS))
def test_a_stream_cut_between_any_two_events_is_whole_only_at_its_end(
    running: LoopbackServer, whole: Any, api: str, clean: bool
):
    outcomes = []
    for count in range(40):
        running.fault(Cut(after_events=count, clean=clean))
        outcomes.append(asyncio.run(reply_to(running, api, True)))
        if outcomes[-1] is not None and count > 2 and outcomes[-2] is not None:
            break
    accepted = [outcome is not None for outcome in outcomes]
    assert accepted == sorted(accepted)  # errors first, then whole replies, never one in between
    assert accepted[0] is False
    assert accepted[-1] is True
    assert all(outcome == whole[api, True] for outcome in outcomes if outcome is not None)


@settings(max_examples=15)
@given(api=st.sampled_from(sorted(MODELS)), piece_bytes=st.integers(1, 400))
def test_how_the_network_divides_a_reply_does_not_change_it(
    running: LoopbackServer, whole: Any, api: str, piece_bytes: int
):
    running.fault(Drip(piece_bytes=piece_bytes))
    assert asyncio.run(reply_to(running, api, True)) == whole[api, True]
