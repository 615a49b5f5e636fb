"""Public path of `standfast._kits.testing.simulator.simulate`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.testing.simulator.simulate import (
        Faults as Faults,
        Report as Report,
        SimulationFailed as SimulationFailed,
        replay as replay,
        simulate as simulate,
        simulate_generated as simulate_generated,
    )

__getattr__, __dir__ = forward(__name__)
