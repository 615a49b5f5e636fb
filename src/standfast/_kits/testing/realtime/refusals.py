"""Refusals of the service, in its own words if reported.

A check raises `Refused`; the conversation turns it into an `error` event and continues: a refused frame changes nothing
and ends nothing. Messages marked "modelled" are ours: no report quotes the service there.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Refused(Exception):
    """A client event refused by the service."""

    def __init__(
        self,
        code: str,
        message: str,
        *,
        param: str | None = None,
        names_event: bool = True,
        type: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.param, self.type = code, message, param, type
        self.names_event = names_event
        """True if the error carries the refused event's id. Reports show several errors without it."""

    def error(self, event_id: str | None) -> dict[str, Any]:
        """Return the `error` object of the event for the client."""
        named = event_id if self.names_event else None
        return {
            "type": self.type,
            "code": self.code,
            "message": self.message,
            "param": self.param,
            "event_id": named,
        }


def missing(param: str) -> Refused:
    """Refusal of a missing parameter."""
    return Refused("missing_required_parameter", f"Missing required parameter: '{param}'.", param=param)


def unknown(param: str) -> Refused:
    """Refusal of an unknown parameter."""
    return Refused("unknown_parameter", f"Unknown parameter: '{param}'.", param=param)


def wrong_type(param: str, expected: str, value: object) -> Refused:
    """Refusal of a parameter of the wrong JSON type."""
    got = JSON_NAMES.get(type(value), "an object")
    message = f"Invalid type for '{param}': expected {expected}, but got {got} instead."
    return Refused("invalid_type", message, param=param)


def wrong_value(param: str, value: object, supported: Iterable[str]) -> Refused:
    """Refusal of a parameter outside its allowed values."""
    names = [f"'{one}'" for one in supported]
    listed = names[0] if len(names) == 1 else ", ".join(names[:-1]) + f", and {names[-1]}"
    return Refused("invalid_value", f"Invalid value: '{value}'. Supported values are: {listed}.", param=param)


def too_long(param: str, value: str, chars_max: int) -> Refused:
    """An id or name with too many characters."""
    message = (
        f"Invalid '{param}': string too long. Expected a string with maximum length {chars_max}, "
        f"but got a string with length {len(value)} instead."
    )
    return Refused("string_above_max_length", message, param=param)


def wrong_pattern(param: str, pattern: str) -> Refused:
    """Refusal of an id with forbidden characters."""
    message = (
        f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern '{pattern}'."
    )
    return Refused("invalid_value", message, param=param)


def duplicate_item(item_id: str) -> Refused:
    """Refusal of an item id that the conversation has seen before."""
    message = f"Error adding item: an item with id '{item_id}' already exists."
    return Refused("item_create_duplicate_item_id", message, names_event=False)


def no_previous_item(item_id: str) -> Refused:
    """A place behind an item that is not there (the code is modelled)."""
    message = f"Error adding item: the previous item with id '{item_id}' does not exist."
    return Refused("item_create_invalid_previous_item_id", message, param="previous_item_id")


def no_item(doing: str, item_id: str) -> Refused:
    """Deleting, truncating or retrieving what is not there. `doing` is "delete", "truncate" or "retrieve"."""
    verb = {"delete": "deleting", "truncate": "truncating", "retrieve": "retrieving"}[doing]
    message = f"Error {verb} item: the item with id '{item_id}' does not exist."
    return Refused(f"item_{doing}_invalid_item_id", message, param="item_id")


def no_call(call_id: str) -> Refused:
    """Refusal of an output without its call in the conversation."""
    return Refused("invalid_tool_call_id", f"Tool call ID '{call_id}' not found in conversation.", names_event=False)


def not_truncatable() -> Refused:
    """Refusal to truncate an item without audio of the model."""
    return Refused("unsupported_content_type", "Only model output audio messages can be truncated", names_event=False)


def already_shorter(audio_ms: int, asked_ms: int) -> Refused:
    """Truncating behind the end of the audio."""
    message = f"Audio content of {audio_ms}ms is already shorter than {asked_ms}ms"
    return Refused("invalid_value", message, names_event=False)


def active_response(response_id: str, *, names_event: bool) -> Refused:
    """Refusal of a second response during another."""
    message = (
        f"Conversation already has an active response in progress: {response_id}. "
        "Wait until the response is finished before creating a new one."
    )
    return Refused("conversation_already_has_active_response", message, names_event=names_event)


def nothing_to_cancel() -> Refused:
    """Cancelling without a response under way."""
    return Refused("response_cancel_not_active", "Cancellation failed: no active response found")


def empty_buffer(buffer_ms: float) -> Refused:
    """Committing less audio than an item must have."""
    message = (
        "Error committing input audio buffer: buffer too small. Expected at least 100ms of audio, "
        f"but buffer only has {buffer_ms:.2f}ms of audio."
    )
    return Refused("input_audio_buffer_commit_empty", message)


def voice_is_fixed() -> Refused:
    """Refusal of another voice after the first one was heard."""
    message = "Cannot update a conversation's voice if assistant audio is present."
    return Refused("cannot_update_voice", message, names_event=False)


def model_is_fixed() -> Refused:
    """Another model than the session was made with (modelled: documented as impossible, words unknown)."""
    message = "Cannot update the model of a session. Open another session for another model."
    return Refused("cannot_update_model", message, param="session.model")


def not_json() -> Refused:
    """Refusal of a frame that is not a JSON object (modelled)."""
    return Refused("invalid_json", "We could not parse the JSON body of your event.", names_event=False)


def session_expired(minutes: int) -> Refused:
    """The time limit."""
    message = f"Your session hit the maximum duration of {minutes} minutes."
    return Refused("session_expired", message, names_event=False)


JSON_NAMES: dict[type, str] = {
    str: "a string",
    int: "an integer",
    float: "a decimal number",
    bool: "a boolean",
    list: "an array",
    dict: "an object",
    type(None): "null",
}
