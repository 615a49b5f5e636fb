"""Loopback realtime service: a real websocket server on 127.0.0.1 for the realtime protocol, and its parts.

See docs/how-to/test-voice-agents.md. Names are loaded when used: the server needs the `websockets` library, and nothing
else here does.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from standfast._kits.testing.realtime.answering import Answering, Habits
    from standfast._kits.testing.realtime.calls import LoopbackCall
    from standfast._kits.testing.realtime.conversation import Conversation
    from standfast._kits.testing.realtime.faults import Close, Cut, Fault, Instead, Lose, Refuse, Rejected, Slow, Stall
    from standfast._kits.testing.realtime.journal import Frame, Journal
    from standfast._kits.testing.realtime.scripted import (
        RealtimeConnectCall,
        RealtimeScriptError,
        RealtimeStep,
        ScriptedRealtimeModel,
        UnconsumedRealtimeSteps,
        UnexpectedRealtimeSend,
    )
    from standfast._kits.testing.realtime.server import LoopbackRealtimeServer
    from standfast._kits.testing.realtime.speech import Ears, Voice, tones

_HOMES: dict[str, tuple[str, ...]] = {
    "calls": ("LoopbackCall",),
    "answering": ("Answering", "Habits"),
    "conversation": ("Conversation",),
    "faults": ("Close", "Cut", "Fault", "Instead", "Lose", "Refuse", "Rejected", "Slow", "Stall"),
    "journal": ("Frame", "Journal"),
    "scripted": (
        "RealtimeConnectCall",
        "RealtimeScriptError",
        "RealtimeStep",
        "ScriptedRealtimeModel",
        "UnconsumedRealtimeSteps",
        "UnexpectedRealtimeSend",
    ),
    "server": ("LoopbackRealtimeServer",),
    "speech": ("Ears", "Voice", "tones"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Answering",
    "Close",
    "Conversation",
    "Cut",
    "Ears",
    "Fault",
    "Frame",
    "Habits",
    "Instead",
    "Journal",
    "LoopbackCall",
    "LoopbackRealtimeServer",
    "Lose",
    "RealtimeConnectCall",
    "RealtimeScriptError",
    "RealtimeStep",
    "Refuse",
    "Rejected",
    "ScriptedRealtimeModel",
    "Slow",
    "Stall",
    "UnconsumedRealtimeSteps",
    "UnexpectedRealtimeSend",
    "Voice",
    "tones",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
