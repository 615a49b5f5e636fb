"""Headers of the current task reach the provider; the long signature of a model is called by position too."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import ModelSettings, ModelTracing, OpenAIChatCompletionsModel, OpenAIResponsesModel
from standfast.models.chatcmpl_helpers import HEADERS_OVERRIDE
from standfast.models.openai_responses import _HEADERS_OVERRIDE
from standfast.testing.loopback import LoopbackServer

from .asking import ask


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize(
    ("kind", "own", "other"),
    [
        (OpenAIResponsesModel, _HEADERS_OVERRIDE, HEADERS_OVERRIDE),
        (OpenAIChatCompletionsModel, HEADERS_OVERRIDE, _HEADERS_OVERRIDE),
    ],
)
async def test_headers_of_the_task_replace_those_of_the_settings(
    kind: Any, own: Any, other: Any, streamed: bool
) -> None:
    settings = ModelSettings(extra_headers={"x-mine": "1", "x-both": "setting"})
    async with LoopbackServer(["a", "b"]) as server, server.client() as client:
        tokens = own.set({"x-both": "task"}), other.set({"x-other": "1"})
        await ask(kind("m", client), "hi", streamed=streamed, settings=settings)
        own.reset(tokens[0])
        other.reset(tokens[1])
        await ask(kind("m", client), "hi", streamed=streamed, settings=settings)
        first, second = (request.headers for request in server.requests)
    assert (first["x-mine"], first["x-both"], second["x-both"]) == ("1", "task", "setting")
    assert "x-other" not in first
    assert settings.extra_headers == {"x-mine": "1", "x-both": "setting"}


async def test_a_model_takes_every_argument_by_position() -> None:
    """Wrappers of models pass on what they were given in the order of the SDK's interface."""
    async with LoopbackServer(["one", "two"]) as server, server.client() as client:
        model = OpenAIResponsesModel("m", client)
        given: tuple[Any, ...] = (None, "hi", ModelSettings(), [], None, [], ModelTracing.DISABLED)
        first = await model.get_response(*given, None, None, None)
        async for _ in model.stream_response(*given, first.response_id, None, None):
            pass
        assert server.requests[-1].body["previous_response_id"] == first.response_id
