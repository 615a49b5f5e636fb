"""Events of a streamed response, in the order and with the numbers of the service.

`response_events` is a pure function of the finished response, so that streaming and not streaming cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from standfast._kits.testing.loopback.answers import DELTA_CHARS
from standfast._src.base.json_values import Item

Event = dict[str, Any]


def response_events(response: dict[str, Any]) -> Iterator[Event]:
    """Yield every event of the stream of a finished response; `sequence_number` counts from 0."""
    number = count()
    begun = {
        **response,
        "status": "in_progress",
        "output": [],
        "usage": None,
        "error": None,
        "incomplete_details": None,
    }
    yield _event(number, "response.created", response=begun)
    yield _event(number, "response.in_progress", response=begun)
    if response["status"] != "failed":
        for index, item in enumerate(response["output"]):
            yield from _item_events(number, index, item)
    yield _event(number, f"response.{response['status']}", response=response)


def _item_events(number: Iterator[int], index: int, item: Item) -> Iterator[Event]:
    yield _event(number, "response.output_item.added", output_index=index, item=_empty(item))
    at = {"output_index": index, **({"item_id": item["id"]} if "id" in item else {"item_id": ""})}
    match item["type"]:
        case "message":
            for place, part in enumerate(item["content"]):
                yield from _part_events(number, {**at, "content_index": place}, part)
        case "function_call":
            for piece in _pieces(item["arguments"]):
                yield _event(number, "response.function_call_arguments.delta", **at, delta=piece)
            done = {"name": item["name"], "arguments": item["arguments"]}
            yield _event(number, "response.function_call_arguments.done", **at, **done)
        case "custom_tool_call":
            for piece in _pieces(item["input"]):
                yield _event(number, "response.custom_tool_call_input.delta", **at, delta=piece)
            yield _event(number, "response.custom_tool_call_input.done", **at, input=item["input"])
        case "reasoning":
            for place, part in enumerate(item.get("summary") or ()):
                yield from _summary_events(number, {**at, "summary_index": place}, part)
    yield _event(number, "response.output_item.done", output_index=index, item=item)


def _part_events(number: Iterator[int], at: Event, part: dict[str, Any]) -> Iterator[Event]:
    if part["type"] == "refusal":
        yield _event(number, "response.content_part.added", **at, part={**part, "refusal": ""})
        for piece in _pieces(part["refusal"]):
            yield _event(number, "response.refusal.delta", **at, delta=piece)
        yield _event(number, "response.refusal.done", **at, refusal=part["refusal"])
    else:
        yield _event(number, "response.content_part.added", **at, part={**part, "text": "", "annotations": []})
        for piece in _pieces(part["text"]):
            yield _event(number, "response.output_text.delta", **at, delta=piece, logprobs=[])
        yield _event(number, "response.output_text.done", **at, text=part["text"], logprobs=[])
    yield _event(number, "response.content_part.done", **at, part=part)


def _summary_events(number: Iterator[int], at: Event, part: dict[str, Any]) -> Iterator[Event]:
    yield _event(number, "response.reasoning_summary_part.added", **at, part={**part, "text": ""})
    for piece in _pieces(part["text"]):
        yield _event(number, "response.reasoning_summary_text.delta", **at, delta=piece)
    yield _event(number, "response.reasoning_summary_text.done", **at, text=part["text"])
    yield _event(number, "response.reasoning_summary_part.done", **at, part=part)


def _empty(item: Item) -> Item:
    """Return the item in its initial state."""
    begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
    empties: dict[str, Any] = {"message": {"content": []}, "function_call": {"arguments": ""}}
    empties |= {"custom_tool_call": {"input": ""}, "reasoning": {"summary": []}}
    return {**begun, **empties.get(item["type"], {})}


def _pieces(text: str) -> list[str]:
    return [text[start : start + DELTA_CHARS] for start in range(0, len(text), DELTA_CHARS)]


def _event(number: Iterator[int], kind: str, **fields: object) -> Event:
    return {"type": kind, "sequence_number": next(number), **fields}
