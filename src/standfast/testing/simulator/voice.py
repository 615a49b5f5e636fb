"""Public path of `standfast._kits.testing.simulator.voice`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.simulator.voice import (
        Act as Act,
        replay_call as replay_call,
        simulate_call as simulate_call,
        simulate_generated_calls as simulate_generated_calls,
    )

__getattr__, __dir__ = forward(__name__)
