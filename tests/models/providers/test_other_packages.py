"""Models through packages that offer Chat Completions as a function: the function is called, the same adapter reads it.

The packages themselves are not installed here (they bring some forty others along); `tools/other_providers.py` runs the
real ones against the loopback provider in an environment of their own.
"""

from __future__ import annotations

import importlib.util
import inspect
import sys
from types import SimpleNamespace
from typing import Any

import agents
import agents.models.multi_provider
import pytest

import standfast
from standfast import Agent, ModelReplyError, ModelRetrySettings, ModelSettings, MultiProvider, UserError, function_tool
from standfast._src.models.providers.client import get_default_model
from standfast._src.models.providers.litellm_and_any_llm import CompletionModel
from standfast.extensions.models.any_llm_model import AnyLLMModel
from standfast.extensions.models.any_llm_provider import AnyLLMProvider
from standfast.extensions.models.litellm_model import LitellmModel
from standfast.extensions.models.litellm_provider import LitellmProvider
from standfast.testing.loopback import LoopbackServer, call
from tests.runs.whole_runs import go, outputs


@function_tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


class OverAFunction(CompletionModel):
    """A model over the `openai` client's own function, which answers as those packages do."""

    def __init__(self, client: Any) -> None:
        super().__init__("some-model")
        self.client = client
        self.retries: list[bool] = []

    def completion_function(self, *, retries: bool) -> Any:
        self.retries.append(retries)
        return self.client.chat.completions.create


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_a_run_goes_through_the_function(streamed: bool):
    with LoopbackServer([call("add", {"a": 1, "b": 2}), "Three."]) as server:
        async with server.client() as client:
            model = OverAFunction(client)
            result = await go(Agent(name="a", model=model, tools=[add]), "1 + 2?", streamed=streamed)
    assert result.final_output == "Three."
    assert outputs(result.to_input_list()) == ["3"]
    assert result.context_wrapper.usage.requests == 2
    assert result.context_wrapper.usage.total_tokens > 0
    assert {request.body["model"] for request in server.requests} == {"some-model"}
    assert not any("prompt_cache_key" in request.body for request in server.requests)
    assert model.retries == [True, True]


async def test_the_package_does_not_retry_where_the_run_does():
    with LoopbackServer(["Hello."]) as server:
        async with server.client() as client:
            model = OverAFunction(client)
            settings = ModelSettings(retry=ModelRetrySettings(max_retries=2))
            await go(Agent(name="a", model=model, model_settings=settings), "Hi")
    assert model.retries == [False]


class StreamOfLitellm:
    """Chunks as LiteLLM gives them: the last one says "stop" whether or not the provider did."""

    def __init__(self, chunks: Any, *, received_finish_reason: str | None) -> None:
        self._chunks, self.received_finish_reason = chunks, received_finish_reason

    async def __aiter__(self) -> Any:
        async for chunk in self._chunks:
            yield chunk


@pytest.mark.parametrize("said", ["stop", None])
async def test_an_end_that_litellm_made_up_is_no_end(said: str | None, monkeypatch: pytest.MonkeyPatch):
    with LoopbackServer(["Hello there."]) as server:
        async with server.client() as client:

            async def acompletion(*, num_retries: int = 0, max_retries: int = 0, **arguments: Any) -> Any:
                chunks = await client.chat.completions.create(**arguments)
                return StreamOfLitellm(chunks, received_finish_reason=said)

            # As much of the package as the model uses; the real one is tried by tools/other_providers.py.
            monkeypatch.setitem(sys.modules, "litellm", SimpleNamespace(acompletion=acompletion))
            running = go(Agent(name="a", model=LitellmModel("some-model")), "Hi", streamed=True)
            if said is not None:
                assert (await running).final_output == "Hello there."
                return
            with pytest.raises(ModelReplyError) as told:
                await running
    assert told.value.status == "cut"


@pytest.mark.parametrize(
    ("name", "kind", "model"),
    [
        ("litellm/anthropic/claude", LitellmModel, "anthropic/claude"),
        ("any-llm/mistral/small", AnyLLMModel, "mistral/small"),
    ],
)
def test_prefixes_lead_to_the_packages_as_in_the_sdk(name: str, kind: Any, model: str):
    for _ in range(2):
        found = MultiProvider().get_model(name)
        assert (type(found), found.model) == (kind, model)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="prefix 'other'"):
        MultiProvider().get_model("other/x")
    assert type(MultiProvider(unknown_prefix_mode="model_id").get_model(name)) is kind
    assert agents.models.multi_provider.MultiProvider()._get_prefix_and_model_name(name)[1] == model


@pytest.mark.parametrize("name", ["MultiProvider", "OpenAIProvider"])
def test_a_provider_takes_what_the_sdks_takes(name: str):
    def options(of: Any) -> dict[str, Any]:
        return {one.name: one.default for one in inspect.signature(getattr(of, name)).parameters.values()}

    assert options(standfast) == options(agents)


def test_the_default_model_has_a_name_there_too():
    assert LitellmProvider().get_model(None).model == get_default_model()  # type: ignore[attr-defined]
    assert AnyLLMProvider().get_model(None).model.startswith("openai/")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("model", "package", "extra"), [(LitellmModel("x"), "litellm", "litellm"), (AnyLLMModel("x"), "any_llm", "any-llm")]
)
async def test_a_missing_package_is_named_with_the_command_that_installs_it(model: Any, package: str, extra: str):
    assert importlib.util.find_spec(package) is None, "installed after all: then this test means nothing"
    with pytest.raises(ImportError, match=rf"pip install 'standfast\[{extra}\]'"):
        await go(Agent(name="a", model=model), "Hi")


def test_what_cannot_be_done_is_refused_at_once():
    with pytest.raises(UserError, match="reasoning content"):
        LitellmModel("x", should_replay_reasoning_content=lambda context: True)
    with pytest.raises(UserError, match="OpenAIResponsesModel"):
        AnyLLMModel("x", api="responses")
