"""Conversion of a streamed Chat completion, chunk by chunk, to the events of a Responses stream.

`ChatStream` reads the chunks as plain dicts and returns events as plain dicts, without any I/O. Its final reply equals
that of the same answer without streaming: `assistant_items` builds both from one message. Text and calls may come in
any mixture; every part stays open until the end of the reply, because any chunk could extend it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from standfast._src.base.json_values import Item
from standfast._src.models.chat_format import Message, assistant_items

Event = dict[str, Any]


@dataclass(slots=True)
class _Call:
    call_id: str
    name: str
    arguments: str
    output_index: int


@dataclass(slots=True)
class ChatStream:
    """State of a streamed completion. `new_call_id` names calls of servers without call ids."""

    new_call_id: Callable[[], str]
    response_id: str = ""
    model: str = ""
    created: float = 0.0
    text: str | None = None
    refusal: str | None = None
    finish_reason: str | None = None
    usage: Mapping[str, Any] | None = None
    _calls: dict[int, _Call] = field(default_factory=dict)
    _outputs: int = 0
    _message_index: int | None = None
    _number: int = -1
    _begun: bool = False
    _said_nothing: bool = False

    @property
    def output_begun(self) -> bool:
        """True once a part of the answer was emitted."""
        return self._outputs > 0

    def feed(self, chunk: Mapping[str, Any]) -> list[Event]:
        """Return the events of a chunk."""
        events = self._begin(chunk) if not self._begun else []
        if chunk.get("usage") is not None:
            self.usage = chunk["usage"]
        for choice in chunk.get("choices") or ():
            if choice.get("index", 0) == 0:
                events += self._delta(choice.get("delta") or {})
                self.finish_reason = choice.get("finish_reason") or self.finish_reason
        return events

    def finish(self) -> list[Event]:
        """Return the events that close all open parts, ending with `response.completed`."""
        message = self.message()
        items = assistant_items(message)
        by_index = self._by_index(items)
        events: list[Event] = []
        for index in sorted(by_index):
            events += self._close(index, by_index[index])
        events.append(self._event("response.completed", response=self._response("completed", items)))
        return events

    def message(self) -> Message:
        """The whole assistant message, as the API would have given it unstreamed."""
        silent = self.text is None and self.refusal is None and not self._calls and self._said_nothing
        message: Message = {"role": "assistant", "content": "" if silent else self.text, "refusal": self.refusal}
        if self._calls:
            calls = [self._calls[place] for place in sorted(self._calls)]
            message["tool_calls"] = [
                {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in calls
            ]
        return message

    # --- one delta -----------------------------------------------------------------------------------------------

    def _begin(self, chunk: Mapping[str, Any]) -> list[Event]:
        self._begun = True
        self.response_id, self.model = chunk.get("id") or "", chunk.get("model") or ""
        self.created = float(chunk.get("created") or 0)
        return [self._event("response.created", response=self._response("in_progress", []))]

    def _delta(self, delta: Mapping[str, Any]) -> list[Event]:
        events: list[Event] = []
        if delta.get("content"):
            if self.text is None:
                events += self._open_part("output_text")
                self.text = ""
            self.text += delta["content"]
            at = self._part_at("output_text")
            events.append(self._event("response.output_text.delta", **at, delta=delta["content"], logprobs=[]))
        elif delta.get("content") == "":
            self._said_nothing = True  # the first chunk of most servers, or all that the model has to say
        if delta.get("refusal"):
            if self.refusal is None:
                events += self._open_part("refusal")
                self.refusal = ""
            self.refusal += delta["refusal"]
            events.append(self._event("response.refusal.delta", **self._part_at("refusal"), delta=delta["refusal"]))
        for call in delta.get("tool_calls") or ():
            events += self._call_delta(call)
        return events

    def _open_part(self, kind: str) -> list[Event]:
        events: list[Event] = []
        if self._message_index is None:
            self._message_index = self._next_output()
            begun = {"type": "message", "role": "assistant", "status": "in_progress", "content": []}
            events.append(self._event("response.output_item.added", output_index=self._message_index, item=begun))
        part = {"type": "refusal", "refusal": ""} if kind == "refusal" else _text_part("")
        events.append(self._event("response.content_part.added", **self._part_at(kind), part=part))
        return events

    def _part_at(self, kind: str) -> Event:
        # Text always comes before a refusal in the finished message, so only a refusal behind text stands second.
        index = 1 if kind == "refusal" and self.text is not None else 0
        return {"output_index": self._message_index, "item_id": "", "content_index": index}

    def _call_delta(self, delta: Mapping[str, Any]) -> list[Event]:
        place = int(delta.get("index") or 0)
        function = delta.get("function") or {}
        events: list[Event] = []
        call = self._calls.get(place)
        if call is None:
            call_id = delta.get("id") or self.new_call_id()
            call = self._calls[place] = _Call(call_id, "", "", self._next_output())
            begun = _call_item(call, "in_progress") | {"name": function.get("name") or ""}
            events.append(self._event("response.output_item.added", output_index=call.output_index, item=begun))
        call.name += function.get("name") or ""
        piece = function.get("arguments") or ""
        call.arguments += piece
        if piece:
            at = {"output_index": call.output_index, "item_id": ""}
            events.append(self._event("response.function_call_arguments.delta", **at, delta=piece))
        return events

    # --- closing -------------------------------------------------------------------------------------------------

    def _by_index(self, items: list[Item]) -> dict[int, Item]:
        """Map the output indexes of begun items to the finished items."""
        places: dict[int, Item] = {}
        indexes = {call.call_id: call.output_index for call in self._calls.values()}
        for item in items:
            if item["type"] == "function_call":
                places[indexes[item["call_id"]]] = item
            else:
                places[self._outputs if self._message_index is None else self._message_index] = item
        return places

    def _close(self, index: int, item: Item) -> list[Event]:
        events: list[Event] = []
        at: Event = {"output_index": index, "item_id": ""}
        if item["type"] == "function_call":
            done = {"name": item["name"], "arguments": item["arguments"]}
            events.append(self._event("response.function_call_arguments.done", **at, **done))
        else:
            for place, part in enumerate(item["content"]):
                events += self._close_part({**at, "content_index": place}, part)
        events.append(self._event("response.output_item.done", output_index=index, item=item))
        return events

    def _close_part(self, at: Event, part: Event) -> list[Event]:
        if part["type"] == "refusal":
            done = self._event("response.refusal.done", **at, refusal=part["refusal"])
        else:
            done = self._event("response.output_text.done", **at, text=part["text"], logprobs=[])
        return [done, self._event("response.content_part.done", **at, part=part)]

    def _response(self, status: str, output: list[Item]) -> Event:
        response: Event = {
            "id": "",  # a completion's id leads to no stored response, so it must not look as if it did
            "object": "response",
            "created_at": self.created,
            "model": self.model,
            "status": status,
            "output": output,
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
        }
        if status == "completed" and self.usage is not None:
            response["usage"] = _usage(self.usage)
        return response

    def _next_output(self) -> int:
        self._outputs += 1
        return self._outputs - 1

    def _event(self, kind: str, **fields: object) -> Event:
        self._number += 1
        return {"type": kind, "sequence_number": self._number, **fields}


def _text_part(text: str) -> Event:
    return {"type": "output_text", "text": text, "annotations": []}


def _call_item(call: _Call, status: str) -> Event:
    return {
        "type": "function_call",
        "call_id": call.call_id,
        "name": call.name,
        "arguments": call.arguments,
        "status": status,
    }


def _usage(usage: Mapping[str, Any]) -> Event:
    """Chat token counts in the words of the Responses API."""
    cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    reasoned = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    tokens_in, tokens_out = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    return {
        "input_tokens": tokens_in,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
        "output_tokens": tokens_out,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": usage.get("total_tokens") or tokens_in + tokens_out,
    }
