"""The names, fields and signatures of `agents.realtime`: a program that changes one import keeps working."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import subprocess
import sys
from typing import Any

import agents.realtime as theirs
import pytest

import standfast.realtime as ours

MODULES = ["agent", "config", "events", "handoffs", "items", "model", "model_events", "model_inputs"]
MODULES += ["openai_realtime", "runner", "session", "testing", "audio_formats"]


def test_every_name_of_the_sdk_is_there():
    missing = [name for name in theirs.__all__ if not hasattr(ours, name)]
    assert not missing


@pytest.mark.parametrize("module", MODULES)
def test_every_submodule_can_be_imported(module: str):
    importlib.import_module(f"standfast.realtime.{module}")


def dataclasses_of_both() -> list[str]:
    return [name for name in theirs.__all__ if dataclasses.is_dataclass(getattr(theirs, name))]


@pytest.mark.parametrize("name", dataclasses_of_both())
def test_dataclasses_have_the_same_fields_in_the_same_order(name: str):
    """Ours may have more behind them: what is made by place is made the same."""
    wanted = [one.name for one in dataclasses.fields(getattr(theirs, name))]
    found = [one.name for one in dataclasses.fields(getattr(ours, name))]
    if name == "RealtimeAgent":
        assert set(wanted) <= set(found)
    else:
        assert found[: len(wanted)] == wanted


METHODS = [
    (
        "RealtimeSession",
        "send_message send_audio interrupt update_agent approve_tool_call reject_tool_call close enter",
    ),
    ("RealtimeRunner", "__init__ run"),
    ("RealtimeModel", "connect add_listener remove_listener send_event send_event_if close"),
    ("RealtimePlaybackTracker", "on_play_bytes on_play_ms on_interrupted set_audio_format get_state"),
    ("OpenAIRealtimeWebSocketModel", "__init__"),
    ("RealtimeAgent", "clone get_system_prompt get_all_tools"),
]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in METHODS for name in names.split()])
def test_methods_take_what_the_sdk_takes(kind: str, name: str):
    wanted = inspect.signature(getattr(getattr(theirs, kind), name)).parameters
    found = inspect.signature(getattr(getattr(ours, kind), name)).parameters
    for parameter in wanted.values():
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        assert parameter.name in found, f"{kind}.{name} has no {parameter.name}"
        mine = found[parameter.name]
        assert mine.kind == parameter.kind or mine.kind is mine.POSITIONAL_OR_KEYWORD
        assert (mine.default is mine.empty) == (parameter.default is parameter.empty) or mine.default is not mine.empty


def test_items_can_be_used_as_the_sdks_can():
    made: Any = ours.UserMessageItem(item_id="u1", content=[ours.InputText(text="hi")])
    peer = theirs.UserMessageItem(item_id="u1", content=[theirs.InputText(text="hi")])
    assert made.model_dump() == peer.model_dump()
    assert ours.UserMessageItem.model_validate(peer.model_dump()) == made
    assert made.model_copy(update={"item_id": "u2"}).item_id == "u2"


@pytest.mark.parametrize("name", ["DEFAULT_MODEL_SETTINGS"])
def test_defaults_are_the_same(name: str):
    assert getattr(ours, name) == getattr(theirs, name)


WITHOUT_OPENAI = """
import asyncio, sys
from standfast.realtime import OpenAIRealtimeSIPModel, RealtimeAgent
from standfast.realtime.audio_formats import to_realtime_audio_format
made = to_realtime_audio_format("pcm16")
print(made.type, made.rate, made.model_dump())
payload = asyncio.run(OpenAIRealtimeSIPModel.build_initial_session_payload(RealtimeAgent(name="A", instructions="Hi.")))
print(payload.instructions, payload.audio.input.format.type, sorted(payload.model_dump()), "openai" in sys.modules)
"""


def test_openais_objects_have_stand_ins_where_openai_is_not_loaded():
    ended = subprocess.run([sys.executable, "-c", WITHOUT_OPENAI], capture_output=True, text=True, check=True)
    assert ended.stdout.splitlines() == [
        "audio/pcm 24000 {'type': 'audio/pcm', 'rate': 24000}",
        "Hi. audio/pcm ['audio', 'instructions', 'model', 'output_modalities', 'tools', 'type'] False",
    ]
