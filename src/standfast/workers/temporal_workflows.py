"""Public path of `standfast._kits.workers.temporal_workflows`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.workers.temporal_workflows import (
        AgentRun as AgentRun,
        TemporalRuns as TemporalRuns,
        run_agent as run_agent,
        send_message as send_message,
    )

__getattr__, __dir__ = forward(__name__)
