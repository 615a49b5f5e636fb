"""Items and Chat messages say the same thing: what goes there comes back, in an order the API accepts."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._kits.testing.loopback.chat import check_chat
from standfast._src.base.errors import UserError
from standfast._src.models.chat_format import (
    LEFT_OUT,
    assistant_items,
    messages_from_items,
)
from standfast._src.models.chat_stream import ChatStream


def items_from_messages(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A conversation written as messages, as items: what `messages_from_items` is checked against."""
    return [item for message in messages for item in _items_of(message)]


def _items_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    role = message["role"]
    if role == "tool":
        content = message["content"]
        parts = content if isinstance(content, str) else [_text_part(part) for part in content]
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": parts}]
    if role == "assistant":
        return assistant_items(message)
    content = message["content"]
    parts = content if isinstance(content, str) else [_part_of_input(part) for part in content]
    return [{"type": "message", "role": role, "content": parts}]


def _text_part(part: dict[str, Any]) -> dict[str, Any]:
    return {"type": "input_text", "text": part["text"]}


def _part_of_input(part: dict[str, Any]) -> dict[str, Any]:
    match part["type"]:
        case "text":
            return _text_part(part)
        case "image_url":
            image = part["image_url"]
            return {
                "type": "input_image",
                "image_url": image["url"],
                **{k: v for k, v in image.items() if k == "detail"},
            }
        case "input_audio":
            return {"type": "input_audio", "input_audio": dict(part["input_audio"])}
        case "file":
            return {"type": "input_file", **part["file"]}
    raise AssertionError(part)


texts = st.text(min_size=1, max_size=12)


def input_parts() -> st.SearchStrategy[Any]:
    plain = texts.map(lambda text: {"type": "input_text", "text": text})
    image = st.sampled_from(["low", "high", None]).map(
        lambda detail: {"type": "input_image", "image_url": "http://x/y.png"} | ({"detail": detail} if detail else {})
    )
    audio = st.just({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}})
    file = st.just({"type": "input_file", "file_id": "file_1"})
    return st.lists(plain | image | audio | file, min_size=1, max_size=3)


user = st.builds(
    lambda role, content: {"type": "message", "role": role, "content": content},
    st.sampled_from(["user", "system", "developer"]),
    texts | input_parts(),
)


def said(parts: list[str], refusal: str | None) -> dict[str, Any]:
    content = [{"type": "output_text", "text": part, "annotations": []} for part in parts]
    content += [{"type": "refusal", "refusal": refusal}] if refusal is not None else []
    return {"type": "message", "role": "assistant", "status": "completed", "content": content}


assistant = st.one_of(
    st.lists(texts, min_size=1, max_size=2).map(lambda parts: said(parts, None)),
    texts.map(lambda why: said([], why)),
    st.tuples(texts, texts).map(lambda pair: said([pair[0]], pair[1])),
)


@st.composite
def turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """A conversation in the order a run stores it: input, what the model said, its calls, their outputs."""
    items: list[dict[str, Any]] = []
    numbers = count(1)
    for _ in range(draw(st.integers(1, 4))):
        items += draw(st.lists(user, min_size=1, max_size=2))
        if draw(st.booleans()):
            items.append(draw(assistant))
        names = draw(st.lists(texts, max_size=3))
        calls = [
            {
                "type": "function_call",
                "call_id": f"c{next(numbers)}",
                "name": name,
                "arguments": "{}",
                "status": "completed",
            }
            for name in names
        ]
        items += calls
        items += [{"type": "function_call_output", "call_id": call["call_id"], "output": draw(texts)} for call in calls]
    return items


@given(turns())
def test_items_come_back_from_messages_as_they_were(items: list[dict[str, Any]]):
    assert items_from_messages(messages_from_items(items)) == items


@given(turns(), st.randoms(use_true_random=False))
def test_messages_are_in_an_order_the_api_accepts(items: list[dict[str, Any]], random: Any):
    """Whatever stands between a call and its output: the tool message is moved to where the API wants it."""
    shuffled = list(items)
    outputs = [item for item in shuffled if item["type"] == "function_call_output"]
    for output in outputs:
        place = shuffled.index(output)
        shuffled.insert(random.randint(place, len(shuffled) - 1), shuffled.pop(place))
    messages = messages_from_items(shuffled, instructions="Be brief.")
    assert check_chat({"model": "m", "messages": messages})
    assert messages[0] == {"role": "system", "content": "Be brief."}
    answered = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert sorted(answered) == sorted(output["call_id"] for output in outputs)


def test_calls_and_words_of_one_turn_are_one_message():
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    words = {"role": "assistant", "content": "Let me see."}
    output = {"type": "function_call_output", "call_id": "c1", "output": "3"}
    for turn in ([words, call, output], [call, words, output]):
        messages = messages_from_items(turn)
        assert [message["role"] for message in messages] == ["assistant", "tool"]
        assert messages[0]["content"] == "Let me see."
        assert [one["id"] for one in messages[0]["tool_calls"]] == ["c1"]


def test_two_equal_messages_stay_two():
    assert len(messages_from_items([{"role": "user", "content": "yes"}] * 2)) == 2
    assert len(messages_from_items([{"role": "assistant", "content": "ok"}] * 2)) == 2


def test_reasoning_is_left_out_and_nothing_else_is():
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": []}
    assert messages_from_items([reasoning, {"role": "user", "content": "x"}]) == [{"role": "user", "content": "x"}]
    assert {"reasoning"} == LEFT_OUT


@pytest.mark.parametrize(
    "item",
    [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "x"},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "telepathy_call", "id": "t1"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}", "namespace": "n"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "image_url": "http://x"}]},
        {"role": "user", "content": [{"type": "input_image", "file_id": "file_1"}]},
        {"role": "assistant", "content": [{"type": "audio"}]},
    ],
    ids=lambda item: item.get("type", "message"),
)
def test_what_has_no_form_is_refused_with_what_to_do(item: dict[str, Any]):
    with pytest.raises(UserError, match=r"Use OpenAIResponsesModel|use OpenAIResponsesModel"):
        messages_from_items([item])


# --- streams ---------------------------------------------------------------------------------------------------------


def cut(draw: st.DrawFn, text: str) -> list[str]:
    places = sorted(draw(st.sets(st.integers(1, max(1, len(text) - 1)), max_size=3))) if len(text) > 1 else []
    return [text[a:b] for a, b in zip([0, *places], [*places, len(text)], strict=True) if text[a:b]]


@st.composite
def streamed(draw: st.DrawFn) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A message, and some chunking of it in which text, refusal and calls may be mixed."""
    content, refusal = draw(st.none() | texts), draw(st.none() | texts)
    if refusal is not None:
        content = None
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate(draw(st.lists(st.tuples(texts, texts | st.just("")), max_size=3)))
    ]
    strands: list[list[dict[str, Any]]] = [
        [{"content": piece} for piece in cut(draw, content or "")],
        [{"refusal": piece} for piece in cut(draw, refusal or "")],
    ]
    for index, call in enumerate(calls):
        begun = {"index": index, "id": call["id"], "type": "function", "function": {"name": call["function"]["name"]}}
        pieces = [
            {"index": index, "function": {"arguments": piece}} for piece in cut(draw, call["function"]["arguments"])
        ]
        strands.append([{"tool_calls": [one]} for one in [begun, *pieces]])
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": draw(st.sampled_from(["", None]))}]
    while strands := [strand for strand in strands if strand]:
        deltas.append(draw(st.sampled_from(strands)).pop(0))
    chunks = [
        {"id": "x", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks.append({"id": "x", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    chunks.append({"id": "x", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}})
    message: dict[str, Any] = {"role": "assistant", "content": content, "refusal": refusal}
    if not calls and content is None and refusal is None and deltas[0]["content"] == "":
        message["content"] = ""
    return (message | ({"tool_calls": calls} if calls else {})), chunks


@given(streamed())
def test_a_streamed_reply_is_the_reply_however_it_is_chunked(case: tuple[dict[str, Any], list[dict[str, Any]]]):
    message, chunks = case
    stream = ChatStream(new_call_id=lambda: "never")
    events = [event for chunk in chunks for event in stream.feed(chunk)] + stream.finish()
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[0]["type"] == "response.created"
    final = events[-1]
    assert final["type"] == "response.completed"
    assert final["response"]["output"] == assistant_items(message)
    assert final["response"]["usage"]["total_tokens"] == 7
    done = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    for kind, key in (("response.output_text.delta", "text"), ("response.refusal.delta", "refusal")):
        told = "".join(event["delta"] for event in events if event["type"] == kind)
        parts = [part.get(key, "") for item in final["response"]["output"] for part in item.get("content", ())]
        assert told == "".join(parts)
    for index, item in done.items():
        if item["type"] == "function_call":
            deltas = (e for e in events if e["type"] == "response.function_call_arguments.delta")
            assert "".join(e["delta"] for e in deltas if e["output_index"] == index) == item["arguments"]
    begun = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
    assert set(begun) <= set(done)


def test_a_call_that_a_server_gave_no_id_gets_one():
    stream = ChatStream(new_call_id=lambda: "call_made_here")
    delta = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}
    stream.feed({"choices": [{"delta": delta, "finish_reason": "tool_calls"}]})
    assert stream.finish()[-1]["response"]["output"][0]["call_id"] == "call_made_here"
