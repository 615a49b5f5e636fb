"""A response of the model, from `response.created` to `response.done`.

`response.created` is sent at the beginning of the response and `response.done` at its end, whatever the end; in between
it advances step by step. A stopped response ends its current item as incomplete: a tool call cut during its generation
is not a call, and only its status shows that.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any, Literal

from standfast._kits.testing.loopback.answers import DELTA_CHARS, Asked, Reply, ScriptExhausted, resolve, text_of
from standfast._kits.testing.realtime.items import Held, render_item
from standfast._kits.testing.realtime.jobs import Job, Stage, Steps
from standfast._kits.testing.realtime.speech import pieces
from standfast._src.base.json_values import Item, copy_json

Status = Literal["completed", "cancelled", "failed", "incomplete"]
Told = tuple[str, dict[str, Any]]


class Responding(Job):
    """A response under way."""

    def __init__(self, conversation: Stage, response_id: str, params: dict[str, Any], asked: Asked) -> None:
        super().__init__(conversation)
        self.id, self.params, self.asked = response_id, params, asked
        self.about = asked.last_text
        self.beside = params.get("conversation") == "none"
        """True for an out-of-band response, which leaves nothing in the conversation."""
        modalities = params.get("output_modalities") or conversation.session["output_modalities"]
        self.speaks = modalities == ["audio"]
        self.fails: tuple[Status, str] | None = None
        """Set from outside: how it ends instead of completing, and why."""
        self._modalities = modalities
        self._output: list[Held] = []
        self._open: Held | None = None
        self._reply = Reply()

    def begin(self) -> None:
        """Announce the response, and ask the rule for its content."""
        self.conversation.tell("response.created", response=self._render("in_progress"))
        try:
            self._reply = resolve(self.conversation.answering.rule, self.asked)
        except ScriptExhausted as exhausted:
            self.fails = "failed", str(exhausted)
        self.start()

    def steps(self) -> Steps:
        """Every item of the reply, and the end."""
        for item in self._reply.items:
            yield from self._item(item)
        yield "response.done"
        status, reason = self.fails or ("completed", None)
        self._finish(status, reason)

    def stop(self, status: Status, reason: str) -> None:
        """Stop the response: end the open item as incomplete, and then the response."""
        self.end()
        if self._open is not None:
            for kind, fields in self._item_ended(self._open, "incomplete"):
                self.conversation.tell(kind, **fields)
        self._finish(status, reason)

    def _finish(self, status: Status, reason: str | None) -> None:
        self.conversation.ended(self)
        self.conversation.tell("response.done", response=self._render(status, reason))
        limits = [{"name": "tokens", "limit": 40_000, "remaining": 39_000, "reset_seconds": 1.5}]
        self.conversation.tell("rate_limits.updated", rate_limits=limits)

    # --- one item ----------------------------------------------------------------------------------------------------

    def _item(self, item: Item) -> Steps:
        held = Held(self._empty(item), kind=self.conversation.output_format())
        yield "response.output_item.added"
        self._open = held
        self._output.append(held)
        self._tell("response.output_item.added", item=render_item(held))
        if not self.beside:
            # In the same breath as the event above: from now on it has a place in the conversation.
            self.conversation.add(held)
        if held.item["type"] == "function_call":
            yield from self._write_arguments(held, item["arguments"])
        elif self.speaks:
            yield from self._speak(held, text_of(item))
        else:
            yield from self._write(held, text_of(item))
        for kind, fields in self._item_ended(held, "completed"):
            yield kind
            self._open = None
            self.conversation.tell(kind, **fields)

    def _empty(self, item: Item) -> Item:
        new_id = self.conversation.new_id
        made: Item = {"id": new_id("item"), "object": "realtime.item", "type": item["type"], "status": "in_progress"}
        if item["type"] == "function_call":
            call_id = item.get("call_id") or new_id("call")
            return {**made, "name": item["name"], "call_id": call_id, "arguments": ""}
        return {**made, "role": "assistant", "content": []}

    def _speak(self, held: Held, words: str) -> Steps:
        at = self._locate(held)
        yield "response.content_part.added"
        held.item["content"] = [{"type": "output_audio"}]
        held.text = ""
        self._tell("response.content_part.added", **at, part={"type": "audio", "transcript": ""})
        for piece, sounds in self._sounds(held, words):
            yield "response.output_audio_transcript.delta"
            held.text += piece
            self._tell("response.output_audio_transcript.delta", **at, delta=piece)
            for sound in sounds:
                yield "response.output_audio.delta"
                held.audio += sound
                self.conversation.has_spoken = True
                if self.conversation.attached and not self.beside:
                    self.conversation.play(self, held)
                else:
                    self._tell("response.output_audio.delta", **at, delta=base64.b64encode(sound).decode("ascii"))

    def _sounds(self, held: Held, words: str) -> Iterator[tuple[str, list[bytes]]]:
        """Yield each word with its share of the audio, in the session's format, in pieces of a delta's length.

        The voice speaks all words at the same time; the share of each word is computed by proportion.
        """
        data = held.kind.from_pcm(self.conversation.answering.voice(words))
        size = self.conversation.answering.delta_ms * held.kind.bytes_per_ms
        chars, start = 0, 0
        for piece in pieces(words):
            chars += len(piece)
            ms = held.kind.ms(data) * chars // len(words)
            end = len(data) if chars == len(words) else ms * held.kind.bytes_per_ms
            yield piece, [data[place : min(place + size, end)] for place in range(start, end, size)]
            start = end

    def _write(self, held: Held, words: str) -> Steps:
        at = self._locate(held)
        yield "response.content_part.added"
        held.item["content"] = [{"type": "output_text", "text": ""}]
        self._tell("response.content_part.added", **at, part={"type": "text", "text": ""})
        for piece in _slices(words):
            yield "response.output_text.delta"
            held.item["content"][0]["text"] += piece
            self._tell("response.output_text.delta", **at, delta=piece)

    def _write_arguments(self, held: Held, arguments: str) -> Steps:
        for piece in _slices(arguments):
            yield "response.function_call_arguments.delta"
            held.item["arguments"] += piece
            at = {**self._locate(held, content=False), "call_id": held.item["call_id"]}
            self._tell("response.function_call_arguments.delta", **at, delta=piece)

    def _item_ended(self, held: Held, status: str) -> list[Told]:
        """Set an item's final status; return the events that end it, whole or cut, with their fields."""
        held.item["status"] = status
        told: list[Told] = []
        at = {"response_id": self.id, **self._locate(held)}
        for part in held.item.get("content", ()):
            if part["type"] == "output_audio":
                if not (self.conversation.attached and not self.beside):
                    told.append(("response.output_audio.done", at))
                told.append(("response.output_audio_transcript.done", {**at, "transcript": held.text or ""}))
                ended = {"type": "audio", "transcript": held.text or ""}
            else:
                told.append(("response.output_text.done", {**at, "text": part["text"]}))
                ended = {"type": "text", "text": part["text"]}
            told.append(("response.content_part.done", {**at, "part": ended}))
        if held.item["type"] == "function_call":
            at = {"response_id": self.id, **self._locate(held, content=False)}
            written = {name: held.item[name] for name in ("call_id", "name", "arguments")}
            told.append(("response.function_call_arguments.done", {**at, **written}))
        if not self.beside:
            previous = self.conversation.previous_of(held)
            told.append(("conversation.item.done", {"previous_item_id": previous, "item": render_item(held)}))
        place = {"response_id": self.id, "output_index": self._output.index(held)}
        told.append(("response.output_item.done", {**place, "item": render_item(held)}))
        return told

    # --- small things ------------------------------------------------------------------------------------------------

    def _locate(self, held: Held, *, content: bool = True) -> dict[str, Any]:
        at = {"item_id": held.id, "output_index": self._output.index(held)}
        return {**at, "content_index": 0} if content else at

    def _tell(self, kind: str, **fields: object) -> None:
        if kind == "response.output_item.added":
            fields["output_index"] = len(self._output) - 1
        self.conversation.tell(kind, response_id=self.id, **fields)

    def _render(self, status: str, reason: str | None = None) -> dict[str, Any]:
        session = self.conversation.session
        output = session["audio"]["output"]
        echoed = self.params.get("metadata") if self.conversation.answering.habits.echoes_metadata else None
        response: dict[str, Any] = {
            "id": self.id,
            "object": "realtime.response",
            "status": status,
            "status_details": _details(status, reason),
            "output": [render_item(held) for held in self._output],
            "conversation_id": None if self.beside else self.conversation.id,
            "output_modalities": list(self._modalities),
            "max_output_tokens": session["max_output_tokens"],
            "audio": {"output": {"format": output["format"], "voice": _voice_name(output["voice"])}},
            "usage": None if status == "in_progress" else _usage(self._reply, self.speaks),
            "metadata": copy_json(echoed),
        }
        return response


def _details(status: str, reason: str | None) -> dict[str, Any] | None:
    if status in ("completed", "in_progress"):
        return None
    if status == "failed":
        message = reason or "The server had an error while processing your request."
        return {"type": "failed", "error": {"type": "server_error", "code": "server_error", "message": message}}
    return {"type": status, "reason": reason}


def _usage(reply: Reply, speaks: bool) -> dict[str, Any]:
    spoken = {"text_tokens": 0, "audio_tokens": reply.output_tokens} if speaks else None
    return {
        "input_tokens": reply.input_tokens,
        "output_tokens": reply.output_tokens,
        "total_tokens": reply.input_tokens + reply.output_tokens,
        "input_token_details": {
            "text_tokens": reply.input_tokens,
            "audio_tokens": 0,
            "image_tokens": 0,
            "cached_tokens": reply.cached_tokens,
            "cached_tokens_details": {"text_tokens": reply.cached_tokens, "audio_tokens": 0, "image_tokens": 0},
        },
        "output_token_details": spoken or {"text_tokens": reply.output_tokens, "audio_tokens": 0},
    }


def _voice_name(voice: object) -> object:
    return voice["id"] if isinstance(voice, dict) else voice


def _slices(text: str) -> list[str]:
    return [text[start : start + DELTA_CHARS] for start in range(0, len(text), DELTA_CHARS)]
