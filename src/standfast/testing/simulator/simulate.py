"""Public path of `standfast._kits.testing.simulator.simulate`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.simulator.simulate import (
        Faults,
        Report,
        SimulationFailed,
        replay,
        simulate,
        simulate_generated,
    )

__all__ = ["Faults", "Report", "SimulationFailed", "replay", "simulate", "simulate_generated"]
__getattr__, __dir__ = forward(__name__)
