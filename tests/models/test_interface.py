"""The smallest model and provider: what a user must write, and what they get without writing it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from standfast._src.items.items import ModelResponse
from standfast._src.items.usage import Usage
from standfast._src.models.interface import Model, ModelProvider, ModelTracing
from standfast._src.models.model_settings import ModelSettings
from standfast._src.models.retry import ModelRetryAdviceRequest
from standfast.testing import assistant_message, stream_of


class Echo(Model):
    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:
        return ModelResponse([assistant_message(str(input))], Usage(requests=1), None)

    async def stream_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> AsyncIterator[Any]:
        for piece in stream_of([assistant_message(str(input))]):
            yield piece


class Echoes(ModelProvider):
    def get_model(self, model_name: str | None) -> Model:
        return Echo()


async def test_two_methods_make_a_model():
    provider = Echoes()
    model = provider.get_model(None)
    ids: dict[str, Any] = {"previous_response_id": None, "conversation_id": None, "prompt": None}
    reply = await model.get_response(None, "hi", ModelSettings(), [], None, [], ModelTracing.DISABLED, **ids)
    assert reply.output == [assistant_message("hi")]
    assert model.get_retry_advice(ModelRetryAdviceRequest(ValueError(), 1, False)) is None
    await model.close()
    await provider.aclose()


def test_a_model_without_them_cannot_be_made():
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Model,), {})()


def test_tracing_says_whether_and_what():
    flags = [(t.is_disabled(), t.include_data()) for t in ModelTracing]
    assert flags == [(True, False), (False, True), (False, False)]
