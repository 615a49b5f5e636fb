"""OpenAIChatCompletionsModel over the real client."""

from __future__ import annotations

from typing import Any

import pytest
from models.providers.asking import Handoff, Schema, Tool, ask, items, said
from openai import AsyncOpenAI, InternalServerError

from standfast._src.base.errors import ModelReplyError, UserError
from standfast._src.models.model_settings import MCPToolChoice, ModelSettings
from standfast._src.models.providers.chat_model import OpenAIChatCompletionsModel
from standfast.testing.loopback import (
    Failed,
    Incomplete,
    LoopbackServer,
    Malformed,
    Reply,
    Script,
    Status,
    call,
    refusal,
    text,
)

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def model(client: AsyncOpenAI) -> OpenAIChatCompletionsModel:
    return OpenAIChatCompletionsModel("chat-test", client)


@both_modes
async def test_a_tool_turn_is_understood_by_the_service(server: LoopbackServer, model: Any, streamed: bool):
    server.rule = Script(
        [["Adding.", call("add", {"a": 1}, call_id="c1"), call("add", {"a": 2}, call_id="c2")], "Three."]
    )
    first = await ask(model, "add", streamed=streamed, instructions="Be brief.", tools=[Tool("add")])
    outputs = [{"type": "function_call_output", "call_id": name, "output": "3"} for name in ("c1", "c2")]
    history = [{"role": "user", "content": "add"}, *first.to_input_items(), *outputs]
    second = await ask(model, history, streamed=streamed, tools=[Tool("add")])
    assert said(second) == "Three."
    assert [message["role"] for message in server.requests[-1].body["messages"]] == [
        "user",
        "assistant",
        "tool",
        "tool",
    ]
    assert first.response_id is None
    assert all("id" not in item for item in items(first))
    assert first.usage.total_tokens == 15


@both_modes
async def test_every_setting_reaches_the_service(server: LoopbackServer, model: Any, streamed: bool):
    settings = ModelSettings(
        temperature=0.5,
        top_p=0.9,
        frequency_penalty=0.1,
        presence_penalty=0.2,
        max_tokens=100,
        reasoning={"effort": "low"},
        verbosity="low",
        metadata={"k": "v"},
        store=True,
        top_logprobs=2,
        parallel_tool_calls=True,
        tool_choice="add",
        prompt_cache_retention="24h",
        extra_args={"seed": 7},
        extra_headers={"x-mine": "1"},
    )
    tools, handoffs = [Tool("add")], [Handoff("to_boss")]
    await ask(model, "hi", streamed=streamed, settings=settings, tools=tools, handoffs=handoffs, schema=Schema())
    body = server.requests[-1].body
    assert [tool["function"]["name"] for tool in body.pop("tools")] == ["add", "to_boss"]
    assert body.pop("response_format")["json_schema"]["name"] == "final_output"
    assert body.pop("stream", None) is (True if streamed else None)
    assert body.pop("stream_options", None) == ({"include_usage": True} if streamed else None)
    assert body == {
        "model": "chat-test",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.5,
        "top_p": 0.9,
        "frequency_penalty": 0.1,
        "presence_penalty": 0.2,
        "max_tokens": 100,
        "reasoning_effort": "low",
        "verbosity": "low",
        "metadata": {"k": "v"},
        "store": True,
        "logprobs": True,
        "top_logprobs": 2,
        "parallel_tool_calls": True,
        "tool_choice": {"type": "function", "function": {"name": "add"}},
        "prompt_cache_retention": "24h",
        "seed": 7,
    }
    assert server.requests[-1].headers["x-mine"] == "1"


@both_modes
async def test_a_refusal_and_an_empty_answer_are_told_apart(server: LoopbackServer, model: Any, streamed: bool):
    server.rule = Script([refusal("I will not."), text(""), Reply(())])
    assert items(await ask(model, "x", streamed=streamed))[0]["content"] == [
        {"type": "refusal", "refusal": "I will not."}
    ]
    assert items(await ask(model, "x", streamed=streamed))[0]["content"][0]["text"] == ""
    assert items(await ask(model, "x", streamed=streamed)) == []


async def test_usage_can_be_switched_off_for_servers_that_refuse_it(server: LoopbackServer, model: Any):
    reply = await ask(model, "x", streamed=True, settings=ModelSettings(include_usage=False))
    assert "stream_options" not in server.requests[-1].body
    assert (reply.usage.requests, reply.usage.total_tokens) == (1, 0)


@both_modes
@pytest.mark.parametrize(
    "ids", [{"conversation_id": "conv_1"}, {"previous_response_id": "resp_1"}, {"prompt": {"id": "p"}}], ids=str
)
async def test_what_needs_a_server_with_memory_is_refused_before_sending(
    ids: dict[str, Any], streamed: bool, server: LoopbackServer, model: Any
):
    """The API would ignore it, and the model would answer without the history it stands for."""
    with pytest.raises(UserError, match="Chat Completions has no"):
        await ask(model, "x", streamed=streamed, **ids)
    assert server.requests == []


async def test_hosted_tools_are_refused_before_sending(server: LoopbackServer, model: Any):
    with pytest.raises(UserError, match="hosted tools"):
        await ask(model, "x", tools=[{"type": "web_search"}])
    with pytest.raises(UserError, match="MCP"):
        await ask(model, "x", settings=ModelSettings(tool_choice=MCPToolChoice("a", "b")))
    assert server.requests == []


@both_modes
async def test_a_reply_cut_short_is_an_error(server: LoopbackServer, model: Any, streamed: bool):
    server.fault(Incomplete())
    with pytest.raises(ModelReplyError) as caught:
        await ask(model, "x", streamed=streamed)
    assert (caught.value.status, caught.value.code) == ("incomplete", "length")
    assert caught.value.response_id == server.requests[-1].response_id


@both_modes
async def test_what_does_not_parse_is_an_error(server: LoopbackServer, model: Any, streamed: bool):
    server.fault(Malformed())
    with pytest.raises(ModelReplyError) as caught:
        await ask(model, "x", streamed=streamed)
    assert caught.value.status == "malformed"


@both_modes
async def test_a_stateless_call_may_use_the_clients_own_retries(server: LoopbackServer, streamed: bool):
    async with server.client(max_retries=1) as client:
        server.fault(Status(503, headers={"retry-after-ms": "1"}))
        assert said(await ask(OpenAIChatCompletionsModel("m", client), "x", streamed=streamed))
        server.fault(Failed())
        strict = ModelSettings(retry={"max_retries": 1})
        with pytest.raises(InternalServerError, match="failed to generate"):
            await ask(OpenAIChatCompletionsModel("m", client), "x", streamed=streamed, settings=strict)
    assert [received.status for received in server.requests] == [503, 200, 500]
