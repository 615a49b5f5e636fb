"""Public path of `standfast._kits.testing.loopback`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.loopback import (
        Answer as Answer,
        Asked as Asked,
        Cut as Cut,
        Drip as Drip,
        Drop as Drop,
        Echo as Echo,
        ErrorEvent as ErrorEvent,
        Failed as Failed,
        Fault as Fault,
        Gate as Gate,
        Incomplete as Incomplete,
        LoopbackServer as LoopbackServer,
        Malformed as Malformed,
        OmitIds as OmitIds,
        Received as Received,
        Reply as Reply,
        Rule as Rule,
        Script as Script,
        Status as Status,
        call as call,
        conversation_locked as conversation_locked,
        rate_limited as rate_limited,
        reasoning as reasoning,
        refusal as refusal,
        text as text,
        unseal as unseal,
    )

__getattr__, __dir__ = forward(__name__)
