"""The session object: its initial state, and updates.

`apply_update` is a function from one object to the next. Only present fields change; settings that the service refuses
are refused here and leave the session unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast._kits.testing.realtime import checks
from standfast._kits.testing.realtime.audio import FORMATS
from standfast._kits.testing.realtime.refusals import (
    Refused,
    missing,
    model_is_fixed,
    unknown,
    voice_is_fixed,
    wrong_value,
)
from standfast._src.base.json_values import copy_json

Session = dict[str, Any]

FIELDS = [
    "type",
    "audio",
    "include",
    "instructions",
    "max_output_tokens",
    "model",
    "output_modalities",
    "parallel_tool_calls",
    "prompt",
    "reasoning",
    "tool_choice",
    "tools",
    "tracing",
    "truncation",
]
VAD: dict[str, Any] = {
    "type": "server_vad",
    "threshold": 0.5,
    "prefix_padding_ms": 300,
    "silence_duration_ms": 500,
    "idle_timeout_ms": None,
    "create_response": True,
    "interrupt_response": True,
}
SEMANTIC_VAD: dict[str, Any] = {
    "type": "semantic_vad",
    "eagerness": "auto",
    "create_response": True,
    "interrupt_response": True,
}
TURN_DETECTION = {"server_vad": VAD, "semantic_vad": SEMANTIC_VAD}
TOOL_NAME_CHARS_MAX = 64


def build_session(session_id: str, model: str, expires_at: int) -> Session:
    """Build the session as shown by `session.created`."""
    return {
        "type": "realtime",
        "object": "realtime.session",
        "id": session_id,
        "model": model,
        "expires_at": expires_at,
        "output_modalities": ["audio"],
        "instructions": "You are a helpful assistant behind a loopback server.",
        "tools": [],
        "tool_choice": "auto",
        "max_output_tokens": "inf",
        "tracing": None,
        "truncation": "auto",
        "prompt": None,
        "include": None,
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": 24000},
                "transcription": None,
                "noise_reduction": None,
                "turn_detection": dict(VAD),
            },
            "output": {"format": {"type": "audio/pcm", "rate": 24000}, "voice": "marin", "speed": 1.0},
        },
    }


def apply_update(session: Session, given: object, *, has_spoken: bool) -> Session:
    """The session after a `session.update`; raises Refused if the service would not take it."""
    change = checks.mapping(given, "session")
    if change.get("type") is None:
        raise missing("session.type")
    checks.one_of(change, "type", ("realtime",), "session")
    for name in change.keys() - set(FIELDS):
        raise unknown(f"session.{name}")
    made: Session = copy_json(session)
    for name, value in change.items():
        if name == "model" and value not in (None, session["model"]):
            raise model_is_fixed()
        if name == "tools":
            tools(value)
        elif name == "instructions" and value is not None:
            checks.text(value, "session.instructions")
        elif name == "output_modalities":
            checks.modalities(value, "session.output_modalities")
        if name not in ("audio", "model", "type"):
            made[name] = copy_json(value)
    if change.get("audio") is not None:
        _audio(made["audio"], checks.mapping(change["audio"], "session.audio"), has_spoken=has_spoken)
    return made


def tools(value: object) -> None:
    """Refuse tools that the service would refuse."""
    for place, tool in enumerate(checks.array(value, "session.tools")):
        where = f"session.tools[{place}]"
        checks.mapping(tool, where)
        kind = checks.one_of(tool, "type", ("function", "mcp"), where)
        if kind == "function":
            name = checks.text(
                checks.require_field(tool, "name", where), f"{where}.name", chars_max=TOOL_NAME_CHARS_MAX
            )
            checks.identifier(name[: checks.ID_CHARS_MAX], f"{where}.name")


def _audio(audio: dict[str, Any], change: Mapping[str, Any], *, has_spoken: bool) -> None:
    for side in change.keys() - audio.keys():
        raise unknown(f"session.audio.{side}")
    for side, fields in change.items():
        if fields is None:
            continue
        for name, value in checks.mapping(fields, f"session.audio.{side}").items():
            param = f"session.audio.{side}.{name}"
            if name not in audio[side]:
                raise unknown(param)
            if name == "format":
                checks.one_of(checks.mapping(value, param), "type", FORMATS, param)
            elif name == "turn_detection" and value is not None:
                value = _turn_detection(value, param)
            elif name == "voice" and has_spoken and value != audio[side][name]:
                raise voice_is_fixed()
            elif name == "speed" and not 0.25 <= _decimal(value, param) <= 1.5:
                raise Refused("invalid_value", f"Invalid '{param}': expected a value from 0.25 to 1.5.", param=param)
            audio[side][name] = copy_json(value)


def _turn_detection(value: object, param: str) -> dict[str, Any]:
    value = checks.mapping(value, param)
    kind = checks.one_of(value, "type", TURN_DETECTION, param)
    known = TURN_DETECTION[kind]
    for name in value.keys() - known.keys():
        raise unknown(f"{param}.{name}")
    if value.get("eagerness") not in (None, "low", "medium", "high", "auto"):
        raise wrong_value(f"{param}.eagerness", value["eagerness"], ("low", "medium", "high", "auto"))
    given = {name: content for name, content in value.items() if content is not None}
    for name in ("prefix_padding_ms", "silence_duration_ms", "idle_timeout_ms"):
        if name in given:
            checks.number(given[name], f"{param}.{name}")
    return {**known, **given}


def _decimal(value: object, param: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Refused("invalid_type", f"Invalid type for '{param}': expected a decimal number.", param=param)
    return float(value)
