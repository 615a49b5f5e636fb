"""Stream of a given reply, in the Responses format.

`stream_of` turns output items into events: created, in progress, each item added, filled by deltas and done, completed.
The events are `StreamPiece`s, light records with attributes, so that no provider library is needed; what is written for
a provider's typed events reads them the same way. How the text is cut into deltas is the caller's choice, and makes no
difference to the reply.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

from standfast._src.items.items import read, readable, to_json_item, to_plain
from standfast._src.items.openai_compat import openai_class
from standfast._src.items.usage import Usage


class StreamPiece(SimpleNamespace):
    """An event of a stream, or a part of an event, with the attributes of the provider's own type."""

    def to_dict(self) -> dict[str, Any]:
        """The piece as plain JSON."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def model_dump(self, **options: object) -> dict[str, Any]:
        """Return the same as `to_dict`, under the name used by typed events."""
        return self.to_dict()

    def _apparent_class(self) -> type[Any]:
        return openai_class("ResponseStreamEvent", vars(self).get("type")) or StreamPiece

    # As with `ReadableItem`: `isinstance(event.data, ResponseTextDeltaEvent)` is how programs tell events apart.
    __class__ = property(_apparent_class)


def _plain(value: object) -> Any:
    if isinstance(value, StreamPiece):
        return value.to_dict()
    return value.to_json() if isinstance(value, Usage) else to_plain(value)


def stream_of(
    output: Sequence[Any],
    *,
    usage: object = None,
    response_id: str | None = None,
    request_id: str | None = None,
    chunk_chars: int | None = None,
) -> Iterator[StreamPiece]:
    """Yield the events of a stream with this output; `chunk_chars` cuts texts and arguments into deltas."""
    pieces = _build_pieces(output, usage, response_id, request_id, chunk_chars)
    for number, piece in enumerate(pieces):
        piece.sequence_number = number
        yield piece


def _build_pieces(
    output: Sequence[Any], usage: object, response_id: str | None, request_id: str | None, chunk_chars: int | None
) -> Iterator[StreamPiece]:
    begun = _response("in_progress", [], None, response_id, request_id)
    yield StreamPiece(type="response.created", response=begun)
    yield StreamPiece(type="response.in_progress", response=begun)
    for index, item in enumerate(output):
        yield from _item_events(index, item, chunk_chars)
    done = _response("completed", list(output), usage, response_id, request_id)
    yield StreamPiece(type="response.completed", response=done)


def _response(
    status: str, output: list[Any], usage: object, response_id: str | None, request_id: str | None
) -> StreamPiece:
    return StreamPiece(
        id=response_id,
        _request_id=request_id,
        created_at=0.0,
        model="scripted-model",
        object="response",
        output=output,
        status=status,
        usage=usage,
        error=None,
        incomplete_details=None,
        parallel_tool_calls=False,
        tool_choice="none",
        tools=[],
    )


def _item_events(index: int, item: object, chunk_chars: int | None) -> Iterator[StreamPiece]:
    kind = read(item, "type")
    yield StreamPiece(type="response.output_item.added", output_index=index, item=_as_begun(item))
    if kind == "message":
        for place, part in enumerate(read(item, "content") or ()):
            yield from _part_events(index, item, place, part, chunk_chars)
    elif kind == "function_call":
        yield from _argument_events(index, item, "arguments", "function_call_arguments", chunk_chars)
    elif kind == "custom_tool_call":
        yield from _argument_events(index, item, "input", "custom_tool_call_input", chunk_chars)
    elif kind == "reasoning":
        yield from _summary_events(index, item, chunk_chars)
    yield StreamPiece(type="response.output_item.done", output_index=index, item=item)


def _as_begun(item: object) -> dict[str, Any]:
    """Return the item before its content has arrived."""
    begun = to_json_item(item)
    empty: dict[str, tuple[str, Any]] = {
        "message": ("content", []),
        "function_call": ("arguments", ""),
        "custom_tool_call": ("input", ""),
        "reasoning": ("summary", []),
    }
    kind = begun.get("type")
    if kind in empty:
        name, value = empty[kind]
        begun[name] = value
        begun["status"] = "in_progress"
    return begun


def _part_events(index: int, item: object, place: int, part: object, chunk_chars: int | None) -> Iterator[StreamPiece]:
    where = {"output_index": index, "content_index": place, "item_id": read(item, "id")}
    name, spoken = ("refusal", "refusal") if read(part, "type") == "refusal" else ("text", "output_text")
    text = read(part, name)
    if not isinstance(text, str):
        return
    yield StreamPiece(type="response.content_part.added", part={**to_json_item(part), name: ""}, **where)
    more: dict[str, Any] = {"logprobs": []} if name == "text" else {}
    for chunk in _chunks(text, chunk_chars):
        yield StreamPiece(type=f"response.{spoken}.delta", delta=chunk, **more, **where)
    yield StreamPiece(type=f"response.{spoken}.done", **{name: text}, **more, **where)
    yield StreamPiece(type="response.content_part.done", part=part, **where)


def _argument_events(index: int, item: object, name: str, event: str, chunk_chars: int | None) -> Iterator[StreamPiece]:
    where = {"output_index": index, "item_id": read(item, "id")}
    text = read(item, name) or ""
    for chunk in _chunks(text, chunk_chars):
        yield StreamPiece(type=f"response.{event}.delta", delta=chunk, **where)
    yield StreamPiece(type=f"response.{event}.done", **{name: text}, name=read(item, "name"), **where)


def _summary_events(index: int, item: object, chunk_chars: int | None) -> Iterator[StreamPiece]:
    for place, part in enumerate(read(item, "summary") or ()):
        where = {"output_index": index, "summary_index": place, "item_id": read(item, "id")}
        text = read(part, "text") or ""
        begun, done = ({"type": "summary_text", "text": said} for said in ("", text))
        yield StreamPiece(type="response.reasoning_summary_part.added", part=readable(begun), **where)
        for chunk in _chunks(text, chunk_chars):
            yield StreamPiece(type="response.reasoning_summary_text.delta", delta=chunk, **where)
        yield StreamPiece(type="response.reasoning_summary_text.done", text=text, **where)
        yield StreamPiece(type="response.reasoning_summary_part.done", part=readable(done), **where)


def _chunks(text: str, chunk_chars: int | None) -> list[str]:
    if chunk_chars is None:
        return [text]
    return [text[start : start + chunk_chars] for start in range(0, len(text), chunk_chars)] or [""]
