"""OpenAIResponsesModel over the real client: exactly what is received is asserted on the server's side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import openai
import pytest
from models.providers.asking import Handoff, Schema, Tool, ask, items, said
from openai import AsyncOpenAI
from openai.types.shared import Reasoning

from standfast._src.base.errors import ModelReplyError, SettingTypeError, UserError
from standfast._src.models.model_settings import MCPToolChoice, ModelSettings
from standfast._src.models.providers.responses_model import OpenAIResponsesModel
from standfast._src.models.retry import ModelRetryAdviceRequest, ModelRetrySettings
from standfast.testing.loopback import (
    Cut,
    Drop,
    ErrorEvent,
    Failed,
    Incomplete,
    LoopbackServer,
    Malformed,
    OmitIds,
    Reply,
    Script,
    Status,
    call,
    conversation_locked,
    rate_limited,
    reasoning,
    text,
)

both_modes = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


@pytest.fixture
def model(client: AsyncOpenAI) -> OpenAIResponsesModel:
    return OpenAIResponsesModel("gpt-test", client)


# --- what is sent ----------------------------------------------------------------------------------------------------


@both_modes
async def test_a_plain_question_sends_nothing_that_was_not_said(server: LoopbackServer, model: Any, streamed: bool):
    reply = await ask(model, "hi", streamed=streamed)
    assert said(reply) == "You said: hi"
    body = server.requests[-1].body
    assert body.pop("stream", False) is streamed
    assert body == {"model": "gpt-test", "input": [{"role": "user", "content": "hi"}]}
    assert reply.usage.requests == 1
    assert reply.usage.total_tokens == 15


@both_modes
async def test_every_setting_reaches_the_service(server: LoopbackServer, model: Any, streamed: bool):
    settings = ModelSettings(
        temperature=0.5,
        top_p=0.9,
        truncation="auto",
        max_tokens=100,
        reasoning=Reasoning(effort="low"),
        verbosity="low",
        metadata={"k": "v"},
        store=False,
        prompt_cache_retention="24h",
        prompt_cache_options={"mode": "explicit"},
        response_include=["reasoning.encrypted_content"],
        top_logprobs=3,
        context_management=[{"type": "compaction", "compact_threshold": 1000}],
        parallel_tool_calls=False,
        tool_choice="required",
        extra_args={"service_tier": "flex"},
        extra_headers={"x-mine": "1"},
        extra_query={"q": "2"},
        extra_body={"safety_identifier": "u1"},
    )
    await ask(model, "hi", streamed=streamed, instructions="Be brief.", settings=settings, tools=[Tool("add")])
    received = server.requests[-1]
    body = {name: value for name, value in received.body.items() if name not in ("tools", "stream", "input", "model")}
    assert body == {
        "instructions": "Be brief.",
        "temperature": 0.5,
        "top_p": 0.9,
        "truncation": "auto",
        "max_output_tokens": 100,
        "reasoning": {"effort": "low"},
        "text": {"verbosity": "low"},
        "metadata": {"k": "v"},
        "store": False,
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"mode": "explicit"},
        "include": ["reasoning.encrypted_content", "message.output_text.logprobs"],
        "top_logprobs": 3,
        "context_management": [{"type": "compaction", "compact_threshold": 1000}],
        "parallel_tool_calls": False,
        "tool_choice": "required",
        "service_tier": "flex",
        "safety_identifier": "u1",
    }
    assert received.headers["x-mine"] == "1"
    assert received.query == {"q": ["2"]}


async def test_tools_handoffs_and_the_output_schema_are_described(server: LoopbackServer, model: Any):
    settings = ModelSettings(tool_choice="add", verbosity="high")
    await ask(model, "hi", settings=settings, tools=[Tool("add")], handoffs=[Handoff("to_boss")], schema=Schema())
    body = server.requests[-1].body
    assert [(tool["type"], tool["name"], tool["strict"]) for tool in body["tools"]] == [
        ("function", "add", True),
        ("function", "to_boss", False),
    ]
    assert body["tool_choice"] == {"type": "function", "name": "add"}
    assert body["text"]["verbosity"] == "high"
    assert body["text"]["format"] | {"schema": None} == {
        "type": "json_schema",
        "name": "final_output",
        "schema": None,
        "strict": True,
    }


@dataclass
class WebSearch:
    name: str = "web_search"
    search_context_size: str = "medium"
    user_location: Any = None
    filters: Any = None


@dataclass
class Configured:
    tool_config: dict[str, Any]
    name: str = "mcp"


async def test_hosted_tools_are_described_by_their_own_fields(server: LoopbackServer, model: Any):
    mcp = {"type": "mcp", "server_label": "docs", "server_url": "http://127.0.0.1:1"}
    settings = ModelSettings(tool_choice=MCPToolChoice("docs", "search"))
    await ask(model, "hi", settings=settings, tools=[WebSearch(), Configured(mcp), {"type": "code_interpreter"}])
    body = server.requests[-1].body
    assert body["tools"] == [
        {"type": "web_search", "search_context_size": "medium"},
        mcp,
        {"type": "code_interpreter"},
    ]
    assert body["tool_choice"] == {"type": "mcp", "server_label": "docs", "name": "search"}


@both_modes
async def test_the_ids_of_a_server_owned_conversation_are_forwarded(server: LoopbackServer, model: Any, streamed: bool):
    first = await ask(model, "one", streamed=streamed)
    await ask(model, "two", streamed=streamed, previous_response_id=first.response_id)
    conversation = server.new_conversation()
    await ask(model, "three", streamed=streamed, conversation_id=conversation)
    ids = [(received.previous_response_id, received.conversation_id) for received in server.requests]
    assert ids == [(None, None), (first.response_id, None), (None, conversation)]
    assert [len(received.input) for received in server.requests] == [1, 1, 1]


async def test_two_owners_are_refused_before_anything_is_sent(server: LoopbackServer, model: Any):
    with pytest.raises(UserError, match="one owner"):
        await ask(model, "x", previous_response_id="resp_1", conversation_id="conv_1")
    assert server.requests == []


async def test_a_prompt_brings_its_own_model_and_tools(server: LoopbackServer, client: AsyncOpenAI):
    prompt = {"id": "pmpt_1", "version": "2", "variables": {"name": "Ada"}}
    by_default = OpenAIResponsesModel("gpt-default", client, model_is_explicit=False)
    await ask(by_default, "hi", prompt=prompt)
    assert server.requests[-1].body["prompt"] == prompt
    assert not {"model", "tools"} & set(server.requests[-1].body)
    await ask(OpenAIResponsesModel("gpt-mine", client), "hi", prompt=prompt)
    assert server.requests[-1].body["model"] == "gpt-mine"


async def test_what_extra_args_says_again_is_refused(server: LoopbackServer, model: Any):
    with pytest.raises(SettingTypeError, match="temperature"):
        await ask(model, "x", settings=ModelSettings(temperature=1.0, extra_args={"temperature": 0.2}))
    assert server.requests == []


# --- what comes back -------------------------------------------------------------------------------------------------


@both_modes
async def test_a_tool_turn_can_be_replayed_with_all_its_items(server: LoopbackServer, model: Any, streamed: bool):
    """Client-owned history: what the model said goes back as it came, ids and reasoning included."""
    server.rule = Script([[reasoning("hm"), text("Adding."), call("add", {"a": 1}, call_id="c1")], "Three."])
    first = await ask(model, "add", streamed=streamed, tools=[Tool("add")])
    history = [{"role": "user", "content": "add"}, *first.to_input_items()]
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    second = await ask(model, [*history, output], streamed=streamed, tools=[Tool("add")])
    assert said(second) == "Three."
    assert [item["type"] for item in server.requests[-1].input[1:]] == [
        "reasoning",
        "message",
        "function_call",
        "function_call_output",
    ]


@both_modes
async def test_items_and_fields_of_unknown_kinds_pass_through(server: LoopbackServer, model: Any, streamed: bool):
    """A kind that this release does not know is kept as it came and sent back as it was (D2: nothing is lost)."""
    strange = {
        "type": "telepathy_call",
        "id": "tp_1",
        "content": "a str where a list would stand",
        "nested": {"deep": [1, 2.5, None, {"x": "y"}]},
        "arguments": {"not": "a str"},
    }
    extended = {**text("hi"), "mood": "good"}
    server.rule = Script([Reply((strange, extended))])
    reply = await ask(model, "x", streamed=streamed)
    assert items(reply)[0] == strange
    assert items(reply)[1]["mood"] == "good"
    assert reply.to_input_items()[0] == strange


@both_modes
async def test_a_provider_without_ids_gives_none(server: LoopbackServer, model: Any, streamed: bool):
    server.fault(OmitIds())
    reply = await ask(model, "x", streamed=streamed)
    assert reply.response_id is None
    assert "id" not in items(reply)[0]


async def test_raw_usage_and_the_request_id_are_kept_when_asked_for(server: LoopbackServer, model: Any):
    reply = await ask(model, "x", settings=ModelSettings(preserve_raw_usage=True))
    assert reply.raw_usage["total_tokens"] == 15
    assert reply.request_id == f"req_{reply.response_id}"
    assert (await ask(model, "x")).raw_usage is None


# --- what is not a reply ---------------------------------------------------------------------------------------------

NOT_WHOLE = {
    "failed": (Failed(code="server_error"), "failed", "server_error"),
    "incomplete": (Incomplete(), "incomplete", "max_output_tokens"),
    "filtered": (Incomplete("content_filter"), "incomplete", "content_filter"),
}


@both_modes
@pytest.mark.parametrize("case", NOT_WHOLE)
async def test_a_response_that_did_not_complete_is_an_error_with_its_ids(
    case: str, streamed: bool, server: LoopbackServer, model: Any
):
    fault, status, code = NOT_WHOLE[case]
    server.fault(fault)
    with pytest.raises(ModelReplyError) as caught:
        await ask(model, "x", streamed=streamed)
    assert (caught.value.status, caught.value.code) == (status, code)
    assert caught.value.response_id == server.requests[-1].response_id
    assert caught.value.request_id == f"req_{caught.value.response_id}"


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (Cut(after_events=1), "cut"),
        (Cut(after_events=1, clean=True), "cut"),
        (Cut(after_events=5, clean=True), "cut"),
        (Malformed(after_events=1), "malformed"),
        (ErrorEvent(after_events=1), "failed"),
    ],
    ids=str,
)
async def test_a_stream_without_its_last_event_is_an_error_with_the_id_that_was_seen(
    fault: Any, status: str, server: LoopbackServer, model: Any
):
    server.fault(fault)
    with pytest.raises(ModelReplyError) as caught:
        await ask(model, "x", streamed=True)
    assert caught.value.status == status
    assert caught.value.response_id == server.requests[-1].response_id
    assert caught.value.output_begun is (fault == Cut(after_events=5, clean=True))


async def test_a_body_that_is_not_json_is_an_error(server: LoopbackServer, model: Any):
    server.fault(Malformed())
    with pytest.raises(ModelReplyError, match="does not parse") as caught:
        await ask(model, "x")
    assert caught.value.status == "malformed"


# --- retries: whose they are -----------------------------------------------------------------------------------------


@both_modes
@pytest.mark.parametrize("owner", ["conversation", "chain", "policy", "nobody"])
async def test_the_clients_own_retries_are_off_where_the_runners_rules_apply(
    owner: str, streamed: bool, server: LoopbackServer
):
    """D5: a silent second try after a lost answer could double a turn."""
    async with server.client(max_retries=2) as eager:
        model = OpenAIResponsesModel("m", eager)
        settings = ModelSettings(retry=ModelRetrySettings(max_retries=1)) if owner == "policy" else ModelSettings()
        ids: dict[str, Any] = {}
        if owner == "conversation":
            ids = {"conversation_id": server.new_conversation()}
        if owner == "chain":
            ids = {"previous_response_id": (await ask(model, "first")).response_id}
        before = len(server.requests)
        server.fault(Status(500, headers={"retry-after-ms": "1"}))
        if owner == "nobody":
            assert said(await ask(model, "x", streamed=streamed, settings=settings, **ids))
        else:
            with pytest.raises(openai.InternalServerError):
                await ask(model, "x", streamed=streamed, settings=settings, **ids)
        assert len(server.requests) - before == (2 if owner == "nobody" else 1)
        assert eager.max_retries == 2


async def advice_about(model: Any, fault: Any, server: LoopbackServer, *, streamed: bool = False) -> Any:
    if fault is not None:
        server.fault(fault)
    conversation = server.new_conversation() if fault is not None else "conv_1"
    with pytest.raises(Exception) as caught:
        await ask(model, "x", streamed=streamed, conversation_id=conversation)
    request = ModelRetryAdviceRequest(error=caught.value, attempt=1, stream=streamed, conversation_id=conversation)
    return model.get_retry_advice(request)


@both_modes
@pytest.mark.parametrize(
    ("fault", "suggested", "safety", "retry_after"),
    [
        (rate_limited(1.5), True, "safe", 1.5),
        (conversation_locked(), True, "safe", None),
        (Status(400, code="bad"), False, "safe", None),
        (Status(429, headers={"x-should-retry": "false", "retry-after-ms": "250"}), False, "safe", 0.25),
        (Status(500), True, None, None),
        (Status(503, headers={"x-should-retry": "true"}), True, None, None),
        (Drop(committed=True), True, None, None),
        (Drop(committed=False), True, None, None),
        (Failed(), True, None, None),
        (Incomplete(), False, None, None),
    ],
    ids=str,
)
async def test_advice_tells_useful_from_safe(
    fault: Any, suggested: Any, safety: Any, retry_after: Any, streamed: bool, server: LoopbackServer, model: Any
):
    """D5: refused is evidence; server errors, cut connections and failed responses are none, whatever is suggested."""
    advice = await advice_about(model, fault, server, streamed=streamed)
    assert (advice.suggested, advice.replay_safety, advice.retry_after) == (suggested, safety, retry_after)


async def test_a_refused_connection_never_left(server: LoopbackServer):
    async with server.client(max_retries=0) as client:
        model = OpenAIResponsesModel("m", client)
        server.stop()
        advice = await advice_about(model, None, server)
    assert advice.replay_safety == "safe"
    assert advice.normalized.never_sent
    assert advice.suggested


@both_modes
async def test_a_request_that_could_not_be_made_was_not_sent(server: LoopbackServer, model: Any, streamed: bool):
    settings = ModelSettings(temperature=1.0, extra_args={"temperature": 0.2})
    with pytest.raises(SettingTypeError) as caught:
        await ask(model, "x", streamed=streamed, settings=settings, conversation_id="conv_1")
    advice = model.get_retry_advice(ModelRetryAdviceRequest(error=caught.value, attempt=1, stream=streamed))
    assert (advice.suggested, advice.replay_safety) == (False, "safe")


@both_modes
async def test_an_owner_that_the_server_forgot_is_named_with_what_to_do(
    server: LoopbackServer, model: Any, streamed: bool
):
    first = await ask(model, "one")
    server.forget(first.response_id)
    with pytest.raises(openai.BadRequestError) as gone:
        await ask(model, "two", streamed=streamed, previous_response_id=first.response_id)
    assert "to_input_list()" in gone.value.__notes__[0]
    with pytest.raises(openai.NotFoundError) as missing:
        await ask(model, "two", streamed=streamed, conversation_id="conv_gone")
    assert "start_openai_conversations_session" in missing.value.__notes__[0]
    with pytest.raises(openai.NotFoundError) as unmarked:
        await model.mark("conv_gone")
    assert missing.value.__notes__ == unmarked.value.__notes__
    with pytest.raises(openai.BadRequestError) as other:
        await ask(model, "two", streamed=streamed, settings=ModelSettings(extra_body={"colour": 1}))
    assert not hasattr(other.value, "__notes__")


def test_a_mistake_of_the_program_gets_no_advice(server: LoopbackServer):
    model = OpenAIResponsesModel("m")
    assert model.get_retry_advice(ModelRetryAdviceRequest(error=KeyError("x"), attempt=1, stream=False)) is None


# --- clients ---------------------------------------------------------------------------------------------------------


async def test_a_client_that_was_given_stays_open(server: LoopbackServer, client: AsyncOpenAI):
    model = OpenAIResponsesModel("m", client)
    await ask(model, "x", conversation_id=server.new_conversation())
    await model.close()
    assert not client.is_closed()
    assert said(await ask(model, "y"))


async def test_streams_leave_the_connection_usable(server: LoopbackServer, model: Any):
    """A stream that was read to its end gives its connection back: ten turns need no ten handshakes."""
    for _ in range(5):
        await ask(model, "x", streamed=True)
    assert server.connection_count == 1


async def test_a_consumer_that_stops_at_the_last_event_leaves_nothing_open(server: LoopbackServer, model: Any):
    stream = model.stream_response(None, "x", ModelSettings(), [], None, [])
    async for event in stream:
        if event.type == "response.completed":
            break
    await stream.aclose()
    assert said(await ask(model, "y"))
