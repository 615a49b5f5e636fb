"""Conversion of frames of the Realtime protocol to the SDK's model events.

An unknown frame is not an error: newer servers send more than older clients understand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from standfast._src.items.usage import Usage
from standfast._src.realtime.machine.call_items import call_item_of, item_of
from standfast._src.realtime.machine.model_events import (
    RealtimeModelAudioDoneEvent,
    RealtimeModelAudioEvent,
    RealtimeModelCachedTokensDetails,
    RealtimeModelErrorEvent,
    RealtimeModelEvent,
    RealtimeModelInputAudioTimeoutTriggeredEvent,
    RealtimeModelInputAudioTranscriptionCompletedEvent,
    RealtimeModelInputTokensDetails,
    RealtimeModelItemDeletedEvent,
    RealtimeModelItemUpdatedEvent,
    RealtimeModelOtherEvent,
    RealtimeModelOutputTextDeltaEvent,
    RealtimeModelOutputTokensDetails,
    RealtimeModelToolCallEvent,
    RealtimeModelTranscriptDeltaEvent,
    RealtimeModelTurnEndedEvent,
    RealtimeModelTurnStartedEvent,
    RealtimeModelUsageEvent,
)

ITEM = ("conversation.item.added", "conversation.item.created", "conversation.item.retrieved")
OTHER = (
    "input_audio_buffer.dtmf_event_received",
    "input_audio_buffer.speech_started",
    "input_audio_buffer.speech_stopped",
    "conversation.item.input_audio_transcription.delta",
    "conversation.item.input_audio_transcription.failed",
)


def model_events(frame: Mapping[str, Any]) -> list[RealtimeModelEvent]:
    """Return the model events of a frame."""
    kind = frame.get("type")
    match kind:
        case "response.output_audio.delta":
            data = msgspec.convert(frame["delta"], bytes)  # base64, in a third of the time of binascii
            return [RealtimeModelAudioEvent(data, frame["response_id"], frame["item_id"], frame["content_index"])]
        case "response.output_audio_transcript.delta":
            return [RealtimeModelTranscriptDeltaEvent(frame["item_id"], frame["delta"], frame["response_id"])]
        case "response.output_text.delta":
            return [RealtimeModelOutputTextDeltaEvent(frame["item_id"], frame["delta"], frame["response_id"])]
        case "response.output_audio.done":
            return [RealtimeModelAudioDoneEvent(frame["item_id"], frame["content_index"])]
        case "response.created":
            return [RealtimeModelTurnStartedEvent(response_id=_id(frame.get("response")))]
        case "response.done":
            return _turn_ended_events(frame.get("response") or {})
        case "response.output_item.added" | "response.output_item.done":
            return _output_item(frame.get("item") or {}, str(kind).endswith("done"))
        case "conversation.item.deleted":
            return [RealtimeModelItemDeletedEvent(frame["item_id"])]
        case "conversation.item.input_audio_transcription.completed":
            text = frame.get("transcript") or ""
            return [RealtimeModelInputAudioTranscriptionCompletedEvent(frame["item_id"], text)]
        case "input_audio_buffer.timeout_triggered":
            times = frame.get("audio_start_ms") or 0, frame.get("audio_end_ms") or 0
            return [RealtimeModelInputAudioTimeoutTriggeredEvent(frame["item_id"], *times)]
        case "error":
            return [RealtimeModelErrorEvent(frame.get("error"))]
    if kind in ITEM:
        return _item(frame.get("item") or {}, frame.get("previous_item_id"))
    return [RealtimeModelOtherEvent(dict(frame))] if kind in OTHER else []


def _id(response: object) -> str | None:
    return response.get("id") if isinstance(response, Mapping) else None


def _item(item: dict[str, Any], previous: str | None) -> list[RealtimeModelEvent]:
    if item.get("type") != "message":
        return []
    made = item_of(item, previous_item_id=previous)
    return [] if made is None else [RealtimeModelItemUpdatedEvent(made)]


def _output_item(item: dict[str, Any], done: bool) -> list[RealtimeModelEvent]:
    if item.get("type") == "function_call":
        if item.get("status") != "completed" or not done:
            return []
        call = RealtimeModelToolCallEvent(
            item.get("name") or "", item.get("call_id") or "", item.get("arguments") or "", item.get("id")
        )
        return [RealtimeModelItemUpdatedEvent(call_item_of(item)), call]
    status = item.get("status")
    if status not in ("in_progress", "completed", "incomplete"):
        status = "completed" if done else "in_progress"
    made = item_of({**item, "role": item.get("role") or "assistant"}, status=status)
    return [] if made is None else [RealtimeModelItemUpdatedEvent(made)]


def _turn_ended_events(response: Mapping[str, Any]) -> list[RealtimeModelEvent]:
    ended: list[RealtimeModelEvent] = [RealtimeModelTurnEndedEvent(response_id=response.get("id"))]
    usage = response.get("usage")
    return [_usage(usage), *ended] if isinstance(usage, Mapping) else ended


def _usage(usage: Mapping[str, Any]) -> RealtimeModelUsageEvent:
    given, taken = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    heard, spoken = usage.get("input_token_details"), usage.get("output_token_details")
    total = Usage(
        requests=1, input_tokens=given, output_tokens=taken, total_tokens=usage.get("total_tokens") or given + taken
    )
    into = outof = None
    if isinstance(heard, Mapping):
        total.input_tokens_details.cached_tokens = heard.get("cached_tokens") or 0
        cached = heard.get("cached_tokens_details")
        names = ("text_tokens", "audio_tokens", "image_tokens")
        into = RealtimeModelInputTokensDetails(
            text_tokens=heard.get("text_tokens"),
            audio_tokens=heard.get("audio_tokens"),
            image_tokens=heard.get("image_tokens"),
            cached_tokens=heard.get("cached_tokens"),
            cached_tokens_details=(
                RealtimeModelCachedTokensDetails(*map(cached.get, names)) if isinstance(cached, Mapping) else None
            ),
        )
    if isinstance(spoken, Mapping):
        outof = RealtimeModelOutputTokensDetails(spoken.get("text_tokens"), spoken.get("audio_tokens"))
    return RealtimeModelUsageEvent(total, into, outof)
