"""Models by name, and whose clients they use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from models.providers.asking import ask, said

from standfast._src.base.errors import UserError
from standfast._src.models.interface import Model, ModelProvider
from standfast._src.models.providers.chat_model import OpenAIChatCompletionsModel
from standfast._src.models.providers.client import (
    get_default_model,
    set_default_openai_api,
    set_default_openai_client,
    set_default_openai_key,
)
from standfast._src.models.providers.provider import MultiProvider, MultiProviderMap, OpenAIProvider
from standfast._src.models.providers.responses_model import OpenAIResponsesModel
from standfast.testing.loopback import LoopbackServer


@pytest.fixture(autouse=True)
def fresh_defaults(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_DEFAULT_MODEL"):
        monkeypatch.delenv(name, raising=False)
    yield
    set_default_openai_key(None)
    set_default_openai_client(None)
    set_default_openai_api("responses")


async def test_a_base_url_reaches_any_compatible_server(server: LoopbackServer):
    provider = OpenAIProvider(api_key="k1", base_url=server.base_url)
    assert said(await ask(provider.get_model("gpt-x"), "hi")) == "You said: hi"
    assert server.requests[-1].body["model"] == "gpt-x"
    assert server.requests[-1].headers["authorization"] == "Bearer k1"
    await provider.aclose()
    assert said(await ask(provider.get_model("gpt-x"), "again"))  # a closed provider opens a new client
    await provider.aclose()


def test_one_provider_serves_one_event_loop_after_another(server: LoopbackServer):
    """A pooled connection belongs to its loop: `asyncio.run` twice must not meet the first one's."""
    provider = OpenAIProvider(api_key="k", base_url=server.base_url)

    async def once() -> str:
        answer = said(await ask(provider.get_model("m"), "hi"))
        await provider.aclose()
        return answer

    assert [asyncio.run(once()) for _ in range(3)] == ["You said: hi"] * 3


async def test_a_given_client_is_used_and_stays_open(server: LoopbackServer):
    async with server.client() as client:
        provider = OpenAIProvider(openai_client=client)
        await ask(provider.get_model("m"), "hi")
        await provider.aclose()
        assert not client.is_closed()
    with pytest.raises(UserError, match="base_url"):
        OpenAIProvider(openai_client=client, base_url="http://127.0.0.1:1")


async def test_defaults_of_the_process(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch):
    provider = OpenAIProvider()
    with pytest.raises(UserError, match="OPENAI_API_KEY") as refused:
        await ask(provider.get_model("m"), "hi")
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    set_default_openai_key("from-default")
    provider = OpenAIProvider()
    await ask(provider.get_model("m"), "hi")
    await provider.aclose()
    assert server.requests[-1].headers["authorization"] == "Bearer from-default"
    async with server.client(api_key="from-client") as client:
        set_default_openai_client(client)
        await ask(OpenAIProvider().get_model("m"), "hi")
        assert server.requests[-1].headers["authorization"] == "Bearer from-client"
    assert ".." not in str(refused.value)


def test_the_api_is_chosen_once_for_the_process_or_for_the_provider():
    assert isinstance(OpenAIProvider().get_model("m"), OpenAIResponsesModel)
    set_default_openai_api("chat_completions")
    assert isinstance(OpenAIProvider().get_model("m"), OpenAIChatCompletionsModel)
    assert isinstance(OpenAIProvider(use_responses=True).get_model("m"), OpenAIResponsesModel)
    with pytest.raises(UserError, match="responses"):
        set_default_openai_api("telegraph")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "given",
    [
        {"use_responses_websocket": True},
        {"websocket_base_url": "wss://x"},
        {"responses_websocket_options": {"max_size": None}},
    ],
)
def test_options_of_a_websocket_are_refused_for_requests_go_over_http(given: dict[str, Any]):
    with pytest.raises(UserError, match="go over HTTP"):
        OpenAIProvider(**given)
    with pytest.raises(UserError, match="go over HTTP"):
        MultiProvider(**{f"openai_{name}": value for name, value in given.items()})
    assert OpenAIProvider(use_responses_websocket=False, websocket_base_url=None)


def test_the_default_model_can_be_set_from_outside(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_DEFAULT_MODEL", "My-Model")
    assert get_default_model() == "my-model"
    model: Any = OpenAIProvider().get_model(None)
    assert model.model == "my-model"


class Recorder(ModelProvider):
    def __init__(self) -> None:
        self.asked: list[str | None] = []
        self.closed = 0

    def get_model(self, model_name: str | None) -> Model:
        self.asked.append(model_name)
        return OpenAIResponsesModel("m")

    async def aclose(self) -> None:
        self.closed += 1


async def test_prefixes_lead_to_providers():
    mine, providers = Recorder(), MultiProviderMap()
    providers.add_provider("mine", mine)
    multi = MultiProvider(provider_map=providers)
    names = {name: multi.get_model(name) for name in ("gpt-x", "openai/gpt-y", "mine/some/model")}
    assert [getattr(model, "model", None) for model in names.values()] == ["gpt-x", "gpt-y", "m"]
    assert mine.asked == ["some/model"]
    await multi.aclose()
    assert mine.closed == 1
    with pytest.raises(UserError, match="prefix 'other'"):
        multi.get_model("other/x")


def test_names_with_a_slash_can_be_handed_on_whole():
    multi = MultiProvider(openai_prefix_mode="model_id", unknown_prefix_mode="model_id")
    models: list[Any] = [multi.get_model(name) for name in ("openai/gpt-x", "router/meta/llama")]
    assert [model.model for model in models] == ["openai/gpt-x", "router/meta/llama"]
    with pytest.raises(UserError, match="unknown_prefix_mode"):
        MultiProvider(unknown_prefix_mode="maybe")  # type: ignore[arg-type]


def test_a_map_of_prefixes_can_be_read_and_changed() -> None:
    first, second = OpenAIProvider(api_key="a"), OpenAIProvider(api_key="b")
    table = MultiProviderMap()
    table.add_provider("one", first)
    assert table.has_prefix("one")
    assert not table.has_prefix("two")
    table.get_mapping().clear()
    assert table.get_provider("one") is first
    table.set_mapping({"two": second})
    assert not table.has_prefix("one")
    table.remove_provider("two")
    assert table.get_mapping() == {}
