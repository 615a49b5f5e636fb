"""Wire format of the Realtime protocol: session object, items, and errors of the server.

Everything that knows how a thing is spelt on this wire is here and in `link`. A tool or handoff is only looked at.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from standfast._src.base.errors import UserError
from standfast._src.base.json_values import Item
from standfast._src.base.type_names import describe_type
from standfast._src.realtime.machine.session_settings import wire_audio_format

if TYPE_CHECKING:
    from standfast._src.models.tool_definitions import OfferedFunction, OfferedHandoff

DEFAULT_MODEL = "gpt-realtime-2.1"
DEFAULT_MODEL_SETTINGS: dict[str, Any] = {
    "voice": "ash",
    "modalities": ["audio"],
    "input_audio_format": "pcm16",
    "output_audio_format": "pcm16",
    "input_audio_transcription": {"model": "gpt-4o-mini-transcribe"},
    "turn_detection": {"type": "semantic_vad", "interrupt_response": True},
}
ID_MAX = 32
"""Longer ids of items and calls are refused."""

_ID = re.compile(r"[a-zA-Z0-9_-]{1,32}")
_CAMEL = {
    "createResponse": "create_response",
    "interruptResponse": "interrupt_response",
    "prefixPaddingMs": "prefix_padding_ms",
    "silenceDurationMs": "silence_duration_ms",
    "idleTimeoutMs": "idle_timeout_ms",
    "modelVersion": "model_version",
}
_MISSING: Any = object()


def short_id(value: str) -> str:
    """Return an id in the wire's form: unchanged, or a stable digest of an id that is too long or has
    other characters.
    """
    if _ID.fullmatch(value):
        return value
    return "x" + sha256(value.encode("utf-8", "surrogatepass")).hexdigest()[: ID_MAX - 1]


# --- settings --------------------------------------------------------------------------------------------------------


def session_object(settings: Mapping[str, Any], *, attached: bool = False) -> dict[str, Any]:
    """Convert settings to the wire's session object.

    Attached to an existing call, it contains only explicit settings: voice, model, formats and detection are those of
    the call. A `model_name` of None leaves the model to the address.
    """
    session: dict[str, Any] = {"type": "realtime"}
    model = settings.get("model_name", None if attached else DEFAULT_MODEL)
    if model is not None:
        session["model"] = model
    modalities = settings.get("output_modalities", settings.get("modalities"))
    if modalities is not None or not attached:
        session["output_modalities"] = list(modalities or DEFAULT_MODEL_SETTINGS["modalities"])
    audio = _audio(settings, attached)
    if audio:
        session["audio"] = audio
    for name in ("instructions", "max_output_tokens", "tool_choice"):
        if name in settings:
            session[name] = settings[name]
    if settings.get("tool_choice") == "programmatic_tool_calling":
        raise UserError("tool_choice='programmatic_tool_calling' does not exist in voice calls", "Choose another one.")
    for name in ("parallel_tool_calls", "reasoning"):
        if settings.get(name) is not None:
            session[name] = settings[name]
    if "prompt" in settings and settings["prompt"] is not None:
        session["prompt"] = _prompt(settings["prompt"])
    if "tools" in settings or "handoffs" in settings or not attached:
        session["tools"] = [
            *map(tool_object, settings.get("tools") or ()),
            *map(_handoff, settings.get("handoffs") or ()),
        ]
    if isinstance(settings.get("tracing"), Mapping):
        session["tracing"] = dict(settings["tracing"])
    return session


def _audio(settings: Mapping[str, Any], attached: bool) -> dict[str, Any]:
    nested = settings.get("audio") or {}
    given_in, given_out = nested.get("input") or {}, nested.get("output") or {}
    defaults = {} if attached else DEFAULT_MODEL_SETTINGS

    def chosen(given: Mapping[str, Any], name: str, flat: str) -> Any:
        return given[name] if name in given else settings.get(flat, defaults.get(flat, _MISSING))

    heard: dict[str, Any] = {}
    spoken: dict[str, Any] = {}
    for side, given, flat in ((heard, given_in, "input_audio_format"), (spoken, given_out, "output_audio_format")):
        made = wire_audio_format(chosen(given, "format", flat) if _is_set(chosen(given, "format", flat)) else None)
        if made is not None:
            side["format"] = made
    noise = given_in.get("noise_reduction", settings.get("input_audio_noise_reduction", _MISSING))
    if noise is not _MISSING:
        heard["noise_reduction"] = noise
    transcription = chosen(given_in, "transcription", "input_audio_transcription")
    if transcription is not _MISSING:
        heard["transcription"] = transcription
    detection = chosen(given_in, "turn_detection", "turn_detection")
    if detection is not _MISSING:
        heard["turn_detection"] = _detection(detection)
    voice = chosen(given_out, "voice", "voice")
    if _is_set(voice):
        spoken["voice"] = voice
    speed = given_out.get("speed", settings.get("speed"))
    if speed is not None:
        spoken["speed"] = speed
    return {name: side for name, side in (("input", heard), ("output", spoken)) if side}


def _is_set(value: object) -> bool:
    return value is not _MISSING and value is not None


def _detection(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    plain = {name: one for name, one in value.items() if name not in _CAMEL}
    return {**{_CAMEL[name]: one for name, one in value.items() if name in _CAMEL}, **plain}


def _prompt(prompt: Mapping[str, Any]) -> dict[str, Any]:
    names = ("id", "variables", "version")
    return {name: prompt[name] for name in names if prompt.get(name) is not None}


def tool_object(tool: OfferedFunction) -> dict[str, Any]:
    """Convert a function tool to the wire's form; refuse tools that voice calls cannot have."""
    schema = getattr(tool, "params_json_schema", None)
    if not isinstance(schema, Mapping):
        raise UserError(
            f"{getattr(tool, 'name', type(tool).__name__)!r} is no function tool, and voice calls know no other",
            "Offer it as a function tool, or as an agent's tool.",
        )
    if getattr(tool, "namespace", None) or getattr(tool, "defer_loading", False):
        raise UserError(
            f"tool {tool.name!r} has a namespace or is loaded later, which voice calls do not know",
            "Offer it as a plain function tool.",
        )
    return {"type": "function", "name": tool.name, "description": tool.description, "parameters": dict(schema)}


def _handoff(handoff: OfferedHandoff) -> dict[str, Any]:
    return {
        "type": "function",
        "name": handoff.tool_name,
        "description": handoff.tool_description,
        "parameters": dict(handoff.input_json_schema),
    }


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the update from `before` to `after`: only changed fields, never the model."""
    changes = {name: value for name, value in after.items() if name not in ("type", "model", "audio", "tracing")}
    changes = {name: value for name, value in changes.items() if before.get(name, _MISSING) != value}
    audio: dict[str, Any] = {}
    for side in ("input", "output"):
        old, new = before.get("audio", {}).get(side, {}), after.get("audio", {}).get(side, {})
        different = {name: value for name, value in new.items() if old.get(name, _MISSING) != value}
        if different:
            audio[side] = different
    if audio:
        changes["audio"] = audio
    return {"type": "realtime", **changes} if changes else {}


# --- items -----------------------------------------------------------------------------------------------------------


def wire_item(item: Item, item_id: str) -> dict[str, Any] | None:
    """Convert an item of a history to the wire's form; None for kinds without one (reasoning, hosted tools)."""
    kind = item.get("type")
    if kind == "function_call":
        return {
            "id": item_id,
            "type": "function_call",
            "call_id": short_id(str(item.get("call_id"))),
            "name": item.get("name"),
            "arguments": item.get("arguments") or "{}",
        }
    if kind == "function_call_output":
        output = item.get("output")
        text = output if isinstance(output, str) else _text_of(output)
        return {
            "id": item_id,
            "type": "function_call_output",
            "call_id": short_id(str(item.get("call_id"))),
            "output": text,
        }
    if kind not in (None, "message") or item.get("role") not in ("user", "assistant", "system", "developer"):
        return None
    role = "system" if item["role"] == "developer" else item["role"]
    content = _content(item.get("content"), role)
    if not content:
        return None
    return {"id": item_id, "type": "message", "role": role, "content": content}


def _content(content: Any, role: str) -> list[dict[str, Any]]:
    # Assistant audio cannot be created; what was heard of it can, as text.
    word = "output_text" if role == "assistant" else "input_text"
    if isinstance(content, str):
        return [{"type": word, "text": content}] if content else []
    parts: list[dict[str, Any]] = []
    for part in content or ():
        if not isinstance(part, Mapping):
            continue
        text = part.get("text") or part.get("transcript") or part.get("refusal")
        if isinstance(text, str) and text:
            parts.append({"type": word, "text": text})
        elif part.get("type") == "input_image" and role == "user" and isinstance(part.get("image_url"), str):
            image = {"type": "input_image", "image_url": part["image_url"]}
            parts.append(
                {**image, "detail": part["detail"]} if part.get("detail") in ("auto", "low", "high") else image
            )
    return parts


def _text_of(output: object) -> str:
    if not isinstance(output, list):
        return "" if output is None else str(output)
    texts = [str(part.get("text", "")) for part in output if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if text)


def seeds(history: list[Item], own: Sequence[tuple[str, Item]] = ()) -> list[tuple[str, dict[str, Any]]]:
    """Convert a history to items for a new connection, with local ids. A call without output, or the reverse, is left
    out.

    `own` are the items of the continued call with their earlier ids: applications know them by those ids. They are
    matched from the end, in order; matching an equal foreign item by mistake changes only its id.
    """
    names: dict[int, str] = {}
    left = list(own)
    for number in range(len(history) - 1, -1, -1):
        if left and history[number] == left[-1][1]:
            names[number] = short_id(left.pop()[0])
    made = {str(item.get("call_id")) for item in history if item.get("type") == "function_call"}
    given = {str(item.get("call_id")) for item in history if item.get("type") == "function_call_output"}
    found = []
    for number, item in enumerate(history):
        if (
            item.get("type") in ("function_call", "function_call_output")
            and str(item.get("call_id")) not in made & given
        ):
            continue
        item_id = names.get(number, f"b{number}")
        seed = wire_item(item, item_id)
        if seed is not None:
            found.append((item_id, seed))
    return found


def typed_content(message: object) -> tuple[str, tuple[Item, ...]]:
    """Split a typed message into text and, if more than text, content parts. Unknown parts are refused."""
    if isinstance(message, str):
        return message, ()
    if not isinstance(message, Mapping) or not isinstance(message.get("content"), list):
        raise UserError(f"{describe_type(message)} is no message", "Give text, or a message with a list of content.")
    parts: list[Item] = []
    for part in message["content"]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind == "input_text" and isinstance(part.get("text"), str):
            parts.append({"type": "input_text", "text": part["text"]})
        elif kind == "input_image" and isinstance(part.get("image_url"), str) and part["image_url"]:
            detail = {"detail": part["detail"]} if part.get("detail") in ("auto", "low", "high") else {}
            parts.append({"type": "input_image", "image_url": part["image_url"], **detail})
    if not parts:
        raise UserError("the message says nothing that can be sent", "Give it input_text or input_image parts.")
    text = "\n".join(part["text"] for part in parts if part["type"] == "input_text")
    plain = len(parts) == 1 and parts[0]["type"] == "input_text"
    return text, () if plain else tuple(parts)
