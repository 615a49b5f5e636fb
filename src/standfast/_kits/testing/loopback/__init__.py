"""A provider in a box: a real HTTP server on 127.0.0.1 that speaks Responses, Conversations and Chat Completions.

It remembers what a server that owns conversations remembers, refuses what the real service refuses, keeps a journal of
exactly what it received, and lets anything go wrong on cue. See docs/how-to/test-with-the-loopback-provider.md.
"""

from standfast._kits.testing.loopback.answers import (
    Answer,
    Asked,
    Echo,
    Reply,
    Rule,
    Script,
    call,
    reasoning,
    refusal,
    text,
)
from standfast._kits.testing.loopback.exchanges import unseal
from standfast._kits.testing.loopback.faults import (
    Cut,
    Drip,
    Drop,
    ErrorEvent,
    Failed,
    Fault,
    Gate,
    Incomplete,
    Malformed,
    OmitIds,
    Status,
    conversation_locked,
    rate_limited,
)
from standfast._kits.testing.loopback.journal import Received
from standfast._kits.testing.loopback.server import LoopbackServer

__all__ = [
    "Answer",
    "Asked",
    "Cut",
    "Drip",
    "Drop",
    "Echo",
    "ErrorEvent",
    "Failed",
    "Fault",
    "Gate",
    "Incomplete",
    "LoopbackServer",
    "Malformed",
    "OmitIds",
    "Received",
    "Reply",
    "Rule",
    "Script",
    "Status",
    "call",
    "conversation_locked",
    "rate_limited",
    "reasoning",
    "refusal",
    "text",
    "unseal",
]
