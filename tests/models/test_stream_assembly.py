"""From a stream to the reply: any provider's events, cut anywhere, tell the same thing."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given, strategies as st
from openai.types.responses import Response, ResponseCompletedEvent, ResponseFailedEvent

from standfast._src.base.errors import ModelBehaviorError, ResponseFailedError, StreamCutError
from standfast._src.items.items import to_json_item
from standfast._src.items.usage import Usage
from standfast._src.models.stream_assembly import StreamAssembler
from standfast.testing import assistant_message, function_call, reasoning, refusal, stream_of

outputs = st.lists(
    st.one_of(
        st.builds(assistant_message, st.text(max_size=12)),
        st.builds(refusal, st.text(max_size=12)),
        st.builds(lambda text, n: reasoning(text, item_id=f"r{n}"), st.text(max_size=5), st.integers(0, 9)),
        st.builds(
            lambda args, n: function_call("t", args, call_id=f"c{n}"),
            st.dictionaries(st.text(max_size=3), st.integers()),
            st.integers(),
        ),
        st.builds(lambda text: {"type": "custom_tool_call", "input": text, "call_id": "c", "name": "n"}, st.text()),
        st.just({"type": "web_search_call", "id": "w1", "status": "completed"}),
    ),
    max_size=4,
)
USAGE = Usage(requests=1, input_tokens=3, output_tokens=4, total_tokens=7)


def assemble(events: Any) -> Any:
    """The reply that a whole stream tells of."""
    assembler = StreamAssembler()
    for event in events:
        assembler.feed(event)
    return assembler.result()


@given(outputs, st.none() | st.integers(1, 5))
def test_how_a_reply_is_cut_into_deltas_does_not_change_it(output, chunk_chars):
    reply = assemble(stream_of(output, usage=USAGE, response_id="r1", request_id="q1", chunk_chars=chunk_chars))
    assert (reply.output, reply.usage, reply.response_id, reply.request_id) == (output, USAGE, "r1", "q1")


@given(outputs, st.none() | st.integers(1, 5))
def test_deltas_add_up_to_what_was_said(output, chunk_chars):
    pieces = list(stream_of(output, chunk_chars=chunk_chars))
    told = "".join(piece.delta for piece in pieces if piece.type == "response.output_text.delta")
    assert told == "".join(p.get("text", "") for i in output if i["type"] == "message" for p in i["content"])
    called = "".join(piece.delta for piece in pieces if piece.type == "response.function_call_arguments.delta")
    assert called == "".join(item["arguments"] for item in output if item["type"] == "function_call")
    assert [piece.sequence_number for piece in pieces] == list(range(len(pieces)))


@given(outputs)
def test_plain_mappings_tell_the_same_as_objects(output):
    pieces = list(stream_of(output, usage=USAGE, response_id="r1"))
    plain = [json.loads(json.dumps(piece.to_dict())) for piece in pieces]
    assert assemble(plain).output == assemble(pieces).output == output
    assert assemble(plain).usage == USAGE


@given(outputs, st.data())
def test_a_stream_cut_anywhere_is_an_error_and_says_whether_output_had_begun(output, data):
    pieces = list(stream_of(output))[:-1]
    seen = pieces[: data.draw(st.integers(0, len(pieces)))]
    assembler = StreamAssembler()
    for piece in seen:
        assembler.feed(piece)
    assert assembler.output_begun == (len(seen) > 2)
    assert not assembler.complete
    with pytest.raises(StreamCutError, match=r"without response\.completed"):
        assembler.result()


@given(outputs)
def test_items_sent_one_by_one_fill_an_empty_list_at_the_end(output):
    pieces = list(stream_of(output, usage=USAGE, response_id="r1"))
    pieces[-1].response.output = []
    done = [piece for piece in pieces if piece.type == "response.output_item.done"]
    out_of_order = [*pieces[:2], *reversed(done), pieces[-1]]
    assert assemble(pieces).output == output
    assert assemble(out_of_order).output == output


def typed_response(**fields: Any) -> Response:
    values = {
        "id": "r1",
        "created_at": 0.0,
        "model": "m",
        "object": "response",
        "output": [assistant_message("hi")],
        "parallel_tool_calls": False,
        "tool_choice": "none",
        "tools": [],
        **fields,
    }
    return Response.model_validate(values)


def test_the_providers_own_events_are_read():
    usage = {
        "input_tokens": 3,
        "output_tokens": 4,
        "total_tokens": 7,
        "input_tokens_details": {"cached_tokens": 1, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 2},
    }
    event = ResponseCompletedEvent(type="response.completed", sequence_number=0, response=typed_response(usage=usage))
    assembler = StreamAssembler()
    assembler.feed(event)
    reply = assembler.result(preserve_raw_usage=True)
    assert [to_json_item(item) for item in reply.output] == [assistant_message("hi")]
    assert (reply.usage.requests, reply.usage.total_tokens, reply.usage.input_tokens_details.cached_tokens) == (1, 7, 1)
    assert reply.raw_usage == usage
    assert reply.response_id == "r1"


def test_a_reply_whose_usage_is_not_told_still_counts_as_a_request():
    assert assemble(stream_of([])).usage == Usage(requests=1)


def test_a_failed_reply_says_why_and_under_which_id():
    response = typed_response(output=[], status="failed", error={"code": "server_error", "message": "boom"})
    event = ResponseFailedEvent(type="response.failed", sequence_number=0, response=response)
    with pytest.raises(ResponseFailedError, match=r"failed \(server_error: boom\)") as caught:
        assemble([event])
    assert (caught.value.response_id, caught.value.code, caught.value.status) == ("r1", "server_error", "failed")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.code, again.response_id) == (str(caught.value), "server_error", "r1")


CUT_SHORT = {"id": "r", "incomplete_details": {"reason": "max_output_tokens"}}


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"type": "response.incomplete", "response": CUT_SHORT}, "max_output_tokens"),
        ({"type": "error", "code": "rate_limit", "message": "slow"}, "rate_limit: slow"),
        ({"type": "response.failed", "response": {"id": "r"}}, "failed"),
    ],
)
def test_every_bad_end_is_a_model_behaviour_error_that_says_what_it_was(event, words):
    with pytest.raises(ModelBehaviorError, match=words):
        assemble([event])


def test_an_id_from_the_beginning_of_the_stream_is_kept_for_the_failure():
    with pytest.raises(ResponseFailedError) as caught:
        assemble([{"type": "response.created", "response": {"id": "r9"}}, {"type": "error", "message": "x"}])
    assert caught.value.response_id == "r9"


def test_content_that_is_no_text_is_streamed_as_an_item_only():
    item = {"type": "message", "id": "m", "content": [{"type": "output_audio"}]}
    assert [piece.type for piece in stream_of([item])][2:-1] == [
        "response.output_item.added",
        "response.output_item.done",
    ]
    assert assemble(stream_of([item])).output == [item]


def test_a_reply_without_an_id_has_none():
    assert assemble(stream_of([assistant_message("x")], response_id=None)).response_id is None


def test_completed_without_a_response_is_refused():
    with pytest.raises(ModelBehaviorError, match="without a response"):
        assemble([{"type": "response.completed"}])


def test_what_follows_the_end_is_not_looked_at():
    pieces = list(stream_of([assistant_message("x")], response_id="r1"))
    assert assemble([*pieces, {"type": "error"}]).response_id == "r1"
