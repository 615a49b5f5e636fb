"""The adapters also work against a server that is not ours, so that we do not only agree with ourselves.

llmock is somebody else's reading of the same protocol, with faults of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from llmock.scenarios import Fail, Reply, StreamFault
from llmock.testing import LLMockServer
from models.providers.asking import Tool, ask, items, said

from standfast._src.base.errors import ModelReplyError
from standfast._src.models.model_settings import ModelSettings
from standfast._src.models.providers.chat_model import OpenAIChatCompletionsModel
from standfast._src.models.providers.responses_model import OpenAIResponsesModel
from standfast._src.models.retry import ModelRetryAdviceRequest

MODELS: dict[str, Any] = {"responses": OpenAIResponsesModel, "chat": OpenAIChatCompletionsModel}
WEATHER = Tool(
    "get_weather",
    "Get the weather of a city.",
    {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
both_apis = pytest.mark.parametrize("api", sorted(MODELS))
both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture(scope="module")
def other() -> Iterator[LLMockServer]:
    with LLMockServer() as running:
        yield running


@pytest.fixture
async def client(other: LLMockServer) -> Any:
    async with openai.AsyncOpenAI(base_url=other.base_url("openai"), api_key="k", max_retries=0) as real:
        yield real


@both_apis
@both_modes
async def test_a_scripted_answer_arrives(api: str, streamed: bool, other: LLMockServer, client: Any):
    other.state.scenarios.add(Reply(text="A scripted answer, in several pieces."))
    reply = await ask(MODELS[api]("gpt-4o", client), "hello", streamed=streamed)
    assert said(reply) == "A scripted answer, in several pieces."
    assert reply.usage.total_tokens > 0


@both_apis
@both_modes
async def test_a_tool_turn_goes_round(api: str, streamed: bool, other: LLMockServer, client: Any):
    """The other server makes a call from the schema it was given, and answers in words once it has the result."""
    model = MODELS[api]("gpt-4o", client)
    question = {"role": "user", "content": "What is the weather in Paris?"}
    first = await ask(model, [question], streamed=streamed, tools=[WEATHER])
    calls = [item for item in items(first) if item["type"] == "function_call"]
    assert [call["name"] for call in calls] == ["get_weather"]
    output = {"type": "function_call_output", "call_id": calls[0]["call_id"], "output": "21 C"}
    second = await ask(model, [question, *first.to_input_items(), output], streamed=streamed, tools=[WEATHER])
    assert said(second)
    assert not [item for item in items(second) if item["type"] == "function_call"]


@both_apis
@pytest.mark.parametrize("kind", ["disconnect", "truncate", "malformed"])
async def test_a_broken_stream_is_never_accepted(api: str, kind: Any, other: LLMockServer, client: Any):
    """The library raises nothing for a stream that ends early; the adapter does."""
    other.state.scenarios.add(StreamFault(kind, after_chunks=3))
    with pytest.raises(ModelReplyError) as caught:
        await ask(MODELS[api]("gpt-4o", client), "hello", streamed=True)
    assert caught.value.status == {"disconnect": "cut", "truncate": "cut", "malformed": "malformed"}[kind]
    assert said(await ask(MODELS[api]("gpt-4o", client), "hello", streamed=True))


@both_apis
@both_modes
async def test_its_rate_limit_is_understood(api: str, streamed: bool, other: LLMockServer, client: Any):
    model = MODELS[api]("gpt-4o", client)
    other.state.scenarios.add(Fail(429, retry_after=2))
    with pytest.raises(openai.RateLimitError) as caught:
        await ask(model, "hello", streamed=streamed)
    advice = model.get_retry_advice(ModelRetryAdviceRequest(error=caught.value, attempt=1, stream=streamed))
    assert (advice.suggested, advice.replay_safety, advice.retry_after) == (True, "safe", 2.0)


@both_apis
async def test_settings_do_not_disturb_it(api: str, client: Any):
    settings = ModelSettings(temperature=0.2, top_p=0.5, max_tokens=50, metadata={"k": "v"}, parallel_tool_calls=False)
    assert items(await ask(MODELS[api]("gpt-4o", client), "hello", settings=settings, tools=[WEATHER]))


@both_apis
@both_modes
async def test_its_incomplete_answer_is_an_error(api: str, streamed: bool, other: LLMockServer, client: Any):
    other.state.scenarios.add(Reply(text="as far as it goe", finish_reason="length"))
    # llmock ends such a Responses stream with `response.completed`; what counts is the status inside.
    with pytest.raises(ModelReplyError) as caught:
        await ask(MODELS[api]("gpt-4o", client), "hello", streamed=streamed)
    assert caught.value.status == "incomplete"
