"""Public path of `standfast._kits.testing.loopback`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.loopback import (
        Answer,
        Asked,
        Cut,
        Drip,
        Drop,
        Echo,
        ErrorEvent,
        Failed,
        Fault,
        Gate,
        Incomplete,
        LoopbackServer,
        Malformed,
        OmitIds,
        Received,
        Reply,
        Rule,
        Script,
        Status,
        call,
        conversation_locked,
        rate_limited,
        reasoning,
        refusal,
        text,
        unseal,
    )

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
__getattr__, __dir__ = forward(__name__)
