"""A lost answer is settled by asking the server, and never guessed (D5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, strategies as st
from models.providers.asking import Tool, ask, said
from openai import AsyncOpenAI

from standfast._src.base.errors import ModelReplyError
from standfast._src.models.outcome_query import ModelSettlement, SendEvidence, Settled, alike, find_sent
from standfast._src.models.providers.responses_model import OpenAIResponsesModel
from standfast.testing.loopback import (
    Cut,
    Drop,
    Failed,
    Gate,
    Incomplete,
    LoopbackServer,
    Script,
    Status,
    call,
)

YES = {"role": "user", "content": "yes"}


@pytest.fixture
def model(client: AsyncOpenAI) -> OpenAIResponsesModel:
    return OpenAIResponsesModel("m", client)


async def lose(model: Any, given: list[Any], *, streamed: bool = False, **ids: Any) -> BaseException:
    with pytest.raises(Exception) as caught:
        await ask(model, given, streamed=streamed, tools=[Tool("add")], **ids)
    return caught.value


def test_the_adapter_offers_settlement():
    assert isinstance(OpenAIResponsesModel("m"), ModelSettlement)


# --- conversations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [Drop(committed=True), Status(502, committed=True), Cut(after_bytes=40)], ids=str)
async def test_a_request_that_was_taken_is_found_with_its_reply(fault: Any, server: LoopbackServer, model: Any):
    conversation = server.new_conversation([YES])
    mark = await model.mark(conversation)
    server.fault(fault)
    await lose(model, [YES], conversation_id=conversation)
    found = await model.settle(SendEvidence([YES], conversation_id=conversation, after_item_id=mark))
    assert found.taken
    assert said(found.response) == "You said: yes"
    assert found.response.response_id is None
    # what was settled can be continued from
    assert said(await ask(model, "and now?", conversation_id=conversation)) == "You said: and now?"


@pytest.mark.parametrize(
    "fault", [Drop(committed=False), Status(502), Cut(after_bytes=40, committed=False), Failed()], ids=str
)
async def test_a_request_that_was_not_taken_is_known_not_to_be(fault: Any, server: LoopbackServer, model: Any):
    """The conversation ends with an equal message: with a mark that is not mistaken for ours."""
    conversation = server.new_conversation([YES])
    mark = await model.mark(conversation)
    server.fault(fault)
    await lose(model, [YES], conversation_id=conversation)
    assert await model.settle(SendEvidence([YES], conversation_id=conversation, after_item_id=mark)) == Settled(False)


async def test_without_a_mark_equal_words_prove_nothing(server: LoopbackServer, model: Any):
    conversation = server.new_conversation([YES, {"role": "assistant", "content": "ok"}])
    assert await model.settle(SendEvidence([YES], conversation_id=conversation)) is None
    no = {"role": "user", "content": "no"}
    assert await model.settle(SendEvidence([no], conversation_id=conversation)) == Settled(False)


async def test_a_tool_output_identifies_itself(server: LoopbackServer, model: Any):
    server.rule = Script([call("add", call_id="c1"), "Three."])
    conversation = server.new_conversation()
    await ask(model, "add", conversation_id=conversation, tools=[Tool("add")])
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    server.fault(Drop(committed=True))
    await lose(model, [output], conversation_id=conversation)
    found = await model.settle(SendEvidence([output], conversation_id=conversation))
    assert found.taken
    assert said(found.response) == "Three."


async def test_an_incomplete_reply_is_taken_but_no_reply(server: LoopbackServer, model: Any):
    conversation = server.new_conversation()
    server.fault(Incomplete())
    error = await lose(model, [YES], conversation_id=conversation)
    assert isinstance(error, ModelReplyError)
    evidence = SendEvidence([YES], conversation_id=conversation, response_id=error.response_id, after_item_id="")
    assert await model.settle(evidence) == Settled(taken=True, is_over=True)


async def test_other_writers_do_not_confuse_it(server: LoopbackServer, model: Any, client: AsyncOpenAI):
    conversation = server.new_conversation()
    server.fault(Drop(committed=True))
    await lose(model, [YES], conversation_id=conversation)
    await client.responses.create(model="m", input="somebody else", conversation=conversation)
    found = await model.settle(SendEvidence([YES], conversation_id=conversation, after_item_id=""))
    assert said(found.response) == "You said: yes"


async def test_long_conversations_are_listed_whole(server: LoopbackServer, model: Any):
    conversation = server.new_conversation([{"role": "user", "content": str(n)} for n in range(230)])
    server.fault(Drop(committed=True))
    await lose(model, [YES], conversation_id=conversation)
    found = await model.settle(SendEvidence([YES], conversation_id=conversation, after_item_id=""))
    assert found.taken


async def test_a_server_that_cannot_be_asked_leaves_it_unknown(server: LoopbackServer, model: Any):
    server.fault(Status(500), on="/conversations")
    assert await model.settle(SendEvidence([YES], conversation_id=server.new_conversation(), after_item_id="")) is None


# --- chains ----------------------------------------------------------------------------------------------------------


async def test_a_response_seen_in_a_cut_stream_is_retrieved(server: LoopbackServer, model: Any):
    first = await ask(model, "one")
    server.fault(Cut(after_events=3))
    error: Any = await lose(model, [YES], streamed=True, previous_response_id=first.response_id)
    evidence = SendEvidence([YES], previous_response_id=first.response_id, response_id=error.response_id)
    found = await model.settle(evidence)
    assert said(found.response) == "You said: yes"
    assert found.response.response_id == error.response_id
    again = await ask(model, "next", previous_response_id=found.response.response_id)
    assert [item["role"] for item in server.history(again.response_id)] == ["user", "assistant"] * 3


async def test_a_response_that_never_came_to_be_was_not_taken(server: LoopbackServer, model: Any):
    first = await ask(model, "one")
    server.fault(Cut(after_events=3, committed=False))
    error: Any = await lose(model, [YES], streamed=True, previous_response_id=first.response_id)
    evidence = SendEvidence([YES], previous_response_id=first.response_id, response_id=error.response_id)
    assert await model.settle(evidence) == Settled(taken=False)


async def test_a_chain_without_a_seen_response_stays_unknown(server: LoopbackServer, model: Any):
    first = await ask(model, "one")
    server.fault(Drop(committed=True))
    await lose(model, [YES], previous_response_id=first.response_id)
    assert await model.settle(SendEvidence([YES], previous_response_id=first.response_id)) is None


async def test_a_resend_while_the_first_is_still_active_is_refused_by_the_server(server: LoopbackServer, model: Any):
    """Why "not listed" may be taken for "not taken": a request in flight holds the conversation's lock."""
    conversation = server.new_conversation()
    gate = Gate()
    server.fault(gate)
    slow = asyncio.ensure_future(ask(model, [YES], conversation_id=conversation))
    await gate.reached()
    slow.cancel()
    assert await model.settle(SendEvidence([YES], conversation_id=conversation, after_item_id="")) == Settled(False)
    error: Any = await lose(model, [YES], conversation_id=conversation)
    assert error.code == "conversation_locked"
    gate.release()


# --- finding, purely -------------------------------------------------------------------------------------------------

words = st.sampled_from(["yes", "no", "ok"])
user = words.map(lambda word: {"role": "user", "content": word})
assistant = words.map(
    lambda word: {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": word}]}
)


def listed(item: dict[str, Any]) -> dict[str, Any]:
    kind = "output_text" if item["role"] == "assistant" else "input_text"
    content = item["content"]
    parts = [{"type": kind, "text": content, "annotations": []}] if isinstance(content, str) else content
    return {"type": "message", "id": "msg_1", "status": "completed", "role": item["role"], "content": parts}


@given(
    before=st.lists(user | assistant, max_size=4),
    sent=st.lists(user, min_size=1, max_size=3),
    reply=st.lists(assistant, max_size=2),
)
def test_what_was_sent_is_found_at_the_end_with_what_follows(before: Any, sent: Any, reply: Any):
    listing = [listed(item) for item in [*before, *sent, *reply]]
    found = find_sent(sent, listing)
    assert found is not None
    assert list(found.output) == [listed(item) for item in reply]


@given(item=user | assistant, other=user | assistant)
def test_likeness_is_about_meaning(item: Any, other: Any):
    def meaning(one: Any) -> Any:
        content = one["content"]
        return one["role"], content if isinstance(content, str) else content[0]["text"]

    assert alike(item, listed(item))
    assert alike(item, listed(other)) == (meaning(item) == meaning(other))
