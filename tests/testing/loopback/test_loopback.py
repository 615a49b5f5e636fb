"""The loopback provider is a provider: the real client cannot tell, and it refuses what the service refuses."""

from __future__ import annotations

import asyncio
import threading

import openai
import pytest
from openai import AsyncOpenAI

from standfast._src.items.items import to_json_item
from standfast.testing.loopback import (
    Asked,
    Cut,
    Drip,
    Drop,
    Gate,
    LoopbackServer,
    OmitIds,
    Reply,
    Script,
    Status,
    call,
    rate_limited,
    reasoning,
    refusal,
    text,
    unseal,
)

ADD = {"type": "function", "name": "add", "parameters": {"type": "object", "properties": {}}, "strict": False}


def output_of(call_id: str, output: str = "3") -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


# --- talking ---------------------------------------------------------------------------------------------------------


async def test_a_chain_of_responses_is_remembered(server: LoopbackServer, client: AsyncOpenAI):
    server.rule = Script([[reasoning("hm"), call("add", {"a": 1})], "Three."])
    first = await client.responses.create(model="m", input="add", tools=[ADD])
    call_id = first.output[1].call_id
    second = await client.responses.create(model="m", previous_response_id=first.id, input=[output_of(call_id)])
    assert second.output_text == "Three."
    kinds = [item["type"] for item in server.history(second.id)]
    assert kinds == ["message", "reasoning", "function_call", "function_call_output", "message"]
    assert [received.previous_response_id for received in server.model_calls] == [None, first.id]
    assert server.model_calls[1].input == [output_of(call_id)]


async def test_a_conversation_gets_input_and_output(server: LoopbackServer, client: AsyncOpenAI):
    conversation = await client.conversations.create(items=[{"role": "user", "content": "one"}])
    await client.responses.create(model="m", input="two", conversation=conversation.id)
    page = await client.conversations.items.list(conversation.id, order="asc")
    assert [item.content[0].text for item in page.data] == ["one", "two", "You said: two"]
    assert [item["id"] for item in server.history(conversation.id)] == [item.id for item in page.data]


async def test_a_stream_tells_the_same_as_the_whole_reply(server: LoopbackServer, client: AsyncOpenAI):
    answer = [reasoning("thinking about it"), text("A somewhat longer answer, in pieces."), call("add", {"a": 12345})]
    server.rule = Script([answer, answer])
    whole = await client.responses.create(model="m", input="x", tools=[ADD])
    events = [event async for event in await client.responses.create(model="m", input="x", tools=[ADD], stream=True)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert deltas == whole.output_text == "A somewhat longer answer, in pieces."
    arguments = "".join(event.delta for event in events if event.type == "response.function_call_arguments.delta")
    assert arguments == whole.output[2].arguments
    streamed = [item.to_dict() | {"id": "", "call_id": ""} for item in events[-1].response.output]
    assert streamed == [item.to_dict() | {"id": "", "call_id": ""} for item in whole.output]


async def test_the_librarys_own_stream_helper_accepts_it(server: LoopbackServer, client: AsyncOpenAI):
    async with client.responses.stream(model="m", input="hello") as stream:
        final = await stream.get_final_response()
    assert final.output_text == "You said: hello"


async def test_chat_completions_streamed_and_not(server: LoopbackServer, client: AsyncOpenAI):
    server.rule = Script([["Let me see.", call("add", {"a": 1})], refusal("No."), "a streamed answer"])
    ask = {"model": "m", "messages": [{"role": "user", "content": "x"}]}
    first = (await client.chat.completions.create(**ask)).choices[0]
    assert first.finish_reason == "tool_calls"
    assert first.message.content == "Let me see."
    assert first.message.tool_calls[0].function.arguments == '{"a":1}'
    assert (await client.chat.completions.create(**ask)).choices[0].message.refusal == "No."
    options = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = [chunk async for chunk in await client.chat.completions.create(**ask, **options)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "a streamed answer"
    assert chunks[-1].usage.total_tokens == 15


async def test_a_rule_sees_the_whole_context_and_the_new_input(server: LoopbackServer, client: AsyncOpenAI):
    seen: list[Asked] = []

    def rule(asked: Asked) -> Reply:
        seen.append(asked)
        return Reply((text("ok"),), input_tokens=7, output_tokens=2, cached_tokens=3, reasoning_tokens=1)

    server.rule = rule
    first = await client.responses.create(model="m", input="one", tools=[ADD])
    second = await client.responses.create(model="m", input="two", previous_response_id=first.id)
    assert second.usage.total_tokens == 9
    assert second.usage.input_tokens_details.cached_tokens == 3
    assert [asked.last_text for asked in seen] == ["one", "two"]
    assert [len(asked.context) for asked in seen] == [1, 3]
    assert [len(asked.input) for asked in seen] == [1, 1]
    assert seen[0].tool_names == ("add",)


async def test_retrieving_listing_and_deleting_stored_responses(server: LoopbackServer, client: AsyncOpenAI):
    made = await client.responses.create(model="m", input=[{"role": "user", "content": str(n)} for n in range(5)])
    assert (await client.responses.retrieve(made.id)).output_text == made.output_text
    listed = [item.content[0].text async for item in client.responses.input_items.list(made.id, limit=2, order="asc")]
    assert listed == ["0", "1", "2", "3", "4"]
    await client.responses.delete(made.id)
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve(made.id)


async def test_conversations_are_paged_updated_and_deleted(server: LoopbackServer, client: AsyncOpenAI):
    conversation = await client.conversations.create(metadata={"a": "1"})
    for start in range(0, 45, 15):
        batch = [{"role": "user", "content": str(n)} for n in range(start, start + 15)]
        await client.conversations.items.create(conversation.id, items=batch)
    newest = [item.content[0].text async for item in client.conversations.items.list(conversation.id, limit=10)]
    assert newest == [str(n) for n in range(44, -1, -1)]
    first = (await client.conversations.items.list(conversation.id, order="asc", limit=1)).data[0]
    assert (await client.conversations.items.retrieve(first.id, conversation_id=conversation.id)).id == first.id
    await client.conversations.items.delete(first.id, conversation_id=conversation.id)
    assert len(server.history(conversation.id)) == 44
    updated = await client.conversations.update(conversation.id, metadata={"b": "2"})
    assert updated.metadata == {"b": "2"}
    await client.conversations.delete(conversation.id)
    with pytest.raises(openai.NotFoundError):
        await client.conversations.retrieve(conversation.id)


async def test_compaction_keeps_user_messages_and_seals_the_rest(server: LoopbackServer, client: AsyncOpenAI):
    made = await client.responses.create(model="m", input="remember me")
    compacted = await client.responses.compact(model="m", previous_response_id=made.id)
    output = [to_json_item(item) for item in compacted.output]
    assert [item["type"] for item in output] == ["message", "compaction"]
    assert [item["role"] for item in unseal(output[1])] == ["assistant"]
    again = await client.responses.create(model="m", input=[*output, {"role": "user", "content": "go on"}])
    assert again.output_text == "You said: go on"


def test_it_serves_a_synchronous_program(server: LoopbackServer):
    with server.sync_client() as client:
        assert client.responses.create(model="m", input="hi").output_text == "You said: hi"


# --- refusing --------------------------------------------------------------------------------------------------------

USER = {"role": "user", "content": "x"}
CALL = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}"}

REFUSED = {
    "an output without its call": ([USER, output_of("c1")], "No tool call found"),
    "a call without its output": ([USER, CALL], "No tool output found"),
    "the same id twice": ([{**USER, "type": "message", "id": "msg_1"}] * 2, "Duplicate item"),
    "two outputs of one call": ([CALL, output_of("c1"), output_of("c1")], "Duplicate output"),
    "an id of another kind": ([{**USER, "type": "message", "id": "__fake_id__"}], "begins with 'msg'"),
    "a field it does not know": ([{**USER, "provider_data": {}}], "Unknown parameter"),
    "a null status": ([{**CALL, "status": None}, output_of("c1")], "status"),
    "a user's part in an assistant message": (
        [{"role": "assistant", "content": [{"type": "input_text", "text": "x"}]}],
        "Invalid value",
    ),
    "reasoning that nothing follows": ([{"type": "reasoning", "id": "rs_1", "summary": []}, USER], "following item"),
    "reasoning it does not have": (
        [{"type": "reasoning", "id": "rs_1", "summary": []}, CALL, output_of("c1")],
        "not found",
    ),
    "nothing": ([], "must be provided"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_it_refuses(case: str, server: LoopbackServer, client: AsyncOpenAI):
    given, words = REFUSED[case]
    with pytest.raises(openai.APIStatusError, match=words) as caught:
        await client.responses.create(model="m", input=given)
    assert caught.value.status_code in (400, 404)
    assert not server.requests[-1].committed


async def test_it_refuses_a_call_sent_back_without_its_reasoning(server: LoopbackServer, client: AsyncOpenAI):
    server.rule = Script([[reasoning("hm"), call("add", call_id="c1")]])
    made = await client.responses.create(model="m", input="x", tools=[ADD])
    without = [USER, made.output[1].to_dict(), output_of("c1")]
    with pytest.raises(openai.BadRequestError, match="without its required 'reasoning' item"):
        await client.responses.create(model="m", input=without)


async def test_it_refuses_chains_that_do_not_exist(server: LoopbackServer, client: AsyncOpenAI):
    unstored = await client.responses.create(model="m", input="x", store=False)
    stored = await client.responses.create(model="m", input="x")
    server.forget(stored.id)
    for gone in (unstored.id, stored.id, "resp_never"):
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(model="m", input="y", previous_response_id=gone)
        assert caught.value.code == "previous_response_not_found"


async def test_it_refuses_two_owners_and_unknown_things(server: LoopbackServer, client: AsyncOpenAI):
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="m", input="x", conversation="conv_1", previous_response_id="resp_1")
    assert caught.value.code == "mutually_exclusive_parameters"
    with pytest.raises(openai.NotFoundError):
        await client.responses.create(model="m", input="x", conversation="conv_never")
    with pytest.raises(openai.BadRequestError, match="Unknown parameter: 'colour'"):
        await client.responses.create(model="m", input="x", extra_body={"colour": "red"})
    with pytest.raises(openai.BadRequestError, match="Duplicate tool name"):
        await client.responses.create(model="m", input="x", tools=[ADD, ADD])
    with pytest.raises(openai.BadRequestError, match="not found in 'tools'"):
        await client.responses.create(model="m", input="x", tool_choice={"type": "function", "name": "add"})


async def test_it_refuses_what_the_conversations_api_refuses(server: LoopbackServer, client: AsyncOpenAI):
    conversation = server.new_conversation()
    with pytest.raises(openai.BadRequestError, match="maximum length 20"):
        await client.conversations.items.create(conversation, items=[USER] * 21)
    with pytest.raises(openai.BadRequestError, match=r"items\[0\].id"):
        await client.conversations.items.create(conversation, items=[{**USER, "type": "message", "id": "msg_9"}])
    for limit in (0, 101):
        with pytest.raises(openai.BadRequestError, match="limit"):
            await client.conversations.items.list(conversation, limit=limit)
    assert server.history(conversation) == []


CHAT_REFUSED = {
    "a tool message without its call": [USER, {"role": "tool", "tool_call_id": "c1", "content": "3"}],
    "a call that is not answered": [
        USER,
        {
            "role": "assistant",
            "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
        },
        USER,
    ],
    "an assistant that says nothing": [USER, {"role": "assistant"}],
    "no messages": [],
}


@pytest.mark.parametrize("case", CHAT_REFUSED)
async def test_chat_refuses(case: str, server: LoopbackServer, client: AsyncOpenAI):
    with pytest.raises(openai.BadRequestError):
        await client.chat.completions.create(model="m", messages=CHAT_REFUSED[case])


async def test_a_script_that_has_run_out_says_so(server: LoopbackServer, client: AsyncOpenAI):
    server.rule = Script(["only one"])
    await client.responses.create(model="m", input="x")
    with pytest.raises(openai.BadRequestError, match="1 answers and this is one request more"):
        await client.responses.create(model="m", input="x")


# --- failing on cue --------------------------------------------------------------------------------------------------


async def test_a_conversation_is_locked_while_a_request_on_it_is_active(server: LoopbackServer, client: AsyncOpenAI):
    conversation = server.new_conversation()
    gate = Gate()
    server.fault(gate)
    slow = asyncio.ensure_future(client.responses.create(model="m", input="slow", conversation=conversation))
    await gate.reached()
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(model="m", input="quick", conversation=conversation)
    assert caught.value.code == "conversation_locked"
    assert server.history(conversation) == []
    gate.release()
    assert (await slow).output_text == "You said: slow"
    assert (await client.responses.create(model="m", input="next", conversation=conversation)).output_text


@pytest.mark.parametrize("committed", [True, False])
@pytest.mark.parametrize("kind", ["drop", "status", "cut"])
async def test_a_lost_answer_says_on_which_side_of_the_commit_it_was_lost(
    kind: str, committed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    conversation = server.new_conversation()
    faults = {
        "drop": Drop(committed=committed),
        "status": Status(502, committed=committed),
        "cut": Cut(after_bytes=20, committed=committed),
    }
    server.fault(faults[kind])
    with pytest.raises(openai.APIError):
        await client.responses.create(model="m", input="x", conversation=conversation)
    assert server.requests[-1].committed is committed
    assert bool(server.history(conversation)) is committed


async def test_a_rate_limit_carries_retry_after_and_the_next_request_passes(server: LoopbackServer):
    server.fault(rate_limited(0.001), times=2)
    async with server.client(max_retries=2) as patient:
        assert (await patient.responses.create(model="m", input="x")).output_text
    assert [received.status for received in server.requests] == [429, 429, 200]


async def test_faults_wait_for_the_request_they_are_meant_for(server: LoopbackServer, client: AsyncOpenAI):
    server.fault(Status(500), on="/conversations")
    server.fault(Status(503), on=lambda received: "boom" in str(received.body), skip=1)
    await client.responses.create(model="m", input="boom")
    with pytest.raises(openai.InternalServerError):
        await client.responses.create(model="m", input="boom")
    with pytest.raises(openai.InternalServerError):
        await client.conversations.create()
    assert server.faults_waiting == 0


async def test_a_slow_drip_arrives_whole(server: LoopbackServer, client: AsyncOpenAI):
    server.fault(Drip(piece_bytes=7))
    stream = await client.responses.create(model="m", input="hello", stream=True)
    events = [event async for event in stream]
    assert events[-1].response.output_text == "You said: hello"


async def test_ids_can_be_left_out(server: LoopbackServer, client: AsyncOpenAI):
    server.fault(OmitIds())
    made = await client.responses.create(model="m", input="x")
    assert made.id == ""
    assert "id" not in made.output[0].to_dict()


# --- stopping --------------------------------------------------------------------------------------------------------


async def test_stopping_leaves_nothing_running_even_with_a_request_held():
    before = set(threading.enumerate())
    gate = Gate()
    async with LoopbackServer() as server:
        server.fault(gate)
        async with server.client(max_retries=0) as client:
            held = asyncio.ensure_future(client.responses.create(model="m", input="x"))
            await gate.reached()
            await asyncio.to_thread(server.stop)
            with pytest.raises(openai.APIConnectionError):
                await held
    assert [thread for thread in set(threading.enumerate()) - before if "loopback" in thread.name] == []
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url


def test_it_can_be_started_again():
    server = LoopbackServer(["one", "two"])
    for expected in ("one", "two"):
        with server, server.sync_client() as client:
            assert client.responses.create(model="m", input="x").output_text == expected
