"""Validation of client events by the service.

Every function either returns its argument, in the form in which it is kept, or raises `Refused`. Nothing here looks at
a conversation: the conversation itself knows its items.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from standfast._kits.testing.realtime.refusals import (
    Refused,
    missing,
    not_json,
    too_long,
    unknown,
    wrong_pattern,
    wrong_type,
    wrong_value,
)
from standfast._src.base.json_values import Item, copy_json

ID_CHARS_MAX = 32
ID_PATTERN = "^[a-zA-Z0-9_-]+$"
APPEND_BYTES_MAX = 15 * 1024 * 1024

# Each client event with the parameters it may have besides `type` and `event_id`.
EVENTS: dict[str, tuple[str, ...]] = {
    "session.update": ("session",),
    "input_audio_buffer.append": ("audio",),
    "input_audio_buffer.commit": (),
    "input_audio_buffer.clear": (),
    "output_audio_buffer.clear": (),
    "conversation.item.create": ("item", "previous_item_id"),
    "conversation.item.delete": ("item_id",),
    "conversation.item.retrieve": ("item_id",),
    "conversation.item.truncate": ("item_id", "content_index", "audio_end_ms"),
    "response.create": ("response",),
    "response.cancel": ("response_id",),
}
# The content parts that a message may be created with, by its role, and the field each must have.
PARTS: dict[str, dict[str, str]] = {
    "system": {"input_text": "text"},
    "user": {"input_text": "text", "input_audio": "audio", "input_image": "image_url"},
    # The service speaks, it does not take speech of its own back: "output_audio" is refused for want of a text.
    "assistant": {"output_text": "text", "output_audio": "text"},
}
FIELDS: dict[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("name", "arguments", "call_id"),
    "function_call_output": ("call_id", "output"),
}


def event(value: object) -> dict[str, Any]:
    """A client event with a known type and no unknown parameters."""
    if not isinstance(value, dict):
        raise not_json()
    kind = value.get("type")
    if kind is None:
        raise missing("type")
    if kind not in EVENTS:
        raise wrong_value("type", kind, EVENTS)
    for name in value.keys() - {"type", "event_id", *EVENTS[kind]}:
        raise unknown(name)
    if value.get("event_id") is not None:
        text(value["event_id"], "event_id", chars_max=512)
    return value


def item(value: object, param: str = "item") -> Item:
    """Validate an item created by a client, and return its stored form, without an id if none was given."""
    value = mapping(value, param)
    kind = one_of(value, "type", FIELDS, param)
    made: Item = {"object": "realtime.item", "type": kind, "status": "completed"}
    if value.get("id") is not None:
        made["id"] = identifier(value["id"], f"{param}.id")
    if kind == "message":
        role = one_of(value, "role", PARTS, param)
        content = require_field(value, "content", param)
        return {**made, "role": role, "content": parts(content, role, f"{param}.content")}
    if value.get("call_id") is not None or kind == "function_call_output":
        made["call_id"] = identifier(require_field(value, "call_id", param), f"{param}.call_id")
    for name in set(FIELDS[kind]) - {"call_id"}:
        made[name] = text(require_field(value, name, param), f"{param}.{name}")
    return made


def parts(value: object, role: str, param: str) -> list[dict[str, Any]]:
    """The content of a message."""
    found = []
    for place, part in enumerate(array(value, param)):
        where = f"{param}[{place}]"
        part = mapping(part, where)
        field = PARTS[role][one_of(part, "type", PARTS[role], where)]
        text(require_field(part, field, where), f"{where}.{field}")
        found.append(copy_json(part))
    return found


def audio(value: object) -> bytes:
    """The bytes of an append."""
    given = text(value, "audio")
    try:
        data = base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        message = "Invalid 'audio'. Expected base64-encoded audio bytes, but got an invalid value."
        raise Refused("invalid_value", message, param="audio") from None
    if len(data) > APPEND_BYTES_MAX:
        message = f"Audio chunk is too large: at most {APPEND_BYTES_MAX} bytes can be appended at once."
        raise Refused("invalid_value", message, param="audio")
    return data


def response(value: object) -> dict[str, Any]:
    """The parameters of a `response.create`."""
    if value is None:
        return {}
    params = mapping(value, "response")
    known = (
        "audio conversation input instructions max_output_tokens metadata output_modalities parallel_tool_calls prompt "
        "reasoning tool_choice tools"
    )
    for name in params.keys() - set(known.split()):
        raise unknown(f"response.{name}")
    metadata = params.get("metadata")
    if metadata is not None:
        mapping(metadata, "response.metadata")
        if len(metadata) > 16:
            raise Refused(
                "invalid_value", "Invalid 'response.metadata': too many properties.", param="response.metadata"
            )
        for key, content in metadata.items():
            text(key, "response.metadata", chars_max=64)
            text(content, f"response.metadata.{key}", chars_max=512)
    if params.get("conversation") is not None:
        one_of(params, "conversation", ("auto", "none"), "response")
    if params.get("output_modalities") is not None:
        modalities(params["output_modalities"], "response.output_modalities")
    return params


def modalities(value: object, param: str) -> None:
    """`["text"]` or `["audio"]`: the service does not take both at once."""
    given = array(value, param)
    if given not in (["text"], ["audio"]):
        shown = ", ".join(map(str, given))
        raise wrong_value(param, f"[{shown}]", ("text", "audio"))


# --- small things ---------------------------------------------------------------------------------------------------


def require_field(value: Mapping[str, Any], name: str, param: str) -> Any:
    """Return a required field."""
    if value.get(name) is None:
        raise missing(f"{param}.{name}" if param else name)
    return value[name]


def mapping(value: object, param: str) -> dict[str, Any]:
    """A JSON object."""
    if not isinstance(value, dict):
        raise wrong_type(param, "an object", value)
    return value


def array(value: object, param: str) -> Sequence[Any]:
    """A JSON array."""
    if not isinstance(value, list):
        raise wrong_type(param, "an array", value)
    return value


def text(value: object, param: str, *, chars_max: int | None = None) -> str:
    """Return a string within a maximal length."""
    if not isinstance(value, str):
        raise wrong_type(param, "a string", value)
    if chars_max is not None and len(value) > chars_max:
        raise too_long(param, value, chars_max)
    return value


def number(value: object, param: str) -> int:
    """A whole number, not below 0."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong_type(param, "an integer", value)
    if value < 0:
        message = f"Invalid '{param}': integer below minimum value. Expected a value >= 0, but got {value} instead."
        raise Refused("integer_below_min_value", message, param=param)
    return value


def identifier(value: object, param: str) -> str:
    """An item id or call id."""
    given = text(value, param, chars_max=ID_CHARS_MAX)
    if not re.fullmatch(ID_PATTERN, given):
        raise wrong_pattern(param, ID_PATTERN)
    return given


def one_of(value: Mapping[str, Any], name: str, supported: Collection[str], param: str) -> str:
    """Return a field with one of several values."""
    given = require_field(value, name, param)
    if given not in supported:
        raise wrong_value(f"{param}.{name}", given, supported)
    return str(given)
