"""Public path of `standfast._kits.conformance.engines`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.conformance.engines import (
        CHECKS as CHECKS,
        LOG_BYTES_MAX as LOG_BYTES_MAX,
        Engine as Engine,
        EngineBroken as EngineBroken,
        EngineCheck as EngineCheck,
        EngineClient as EngineClient,
        EngineResult as EngineResult,
        FileQueue as FileQueue,
        FileQueueEngine as FileQueueEngine,
        check_engine as check_engine,
        make_check as make_check,
    )

__getattr__, __dir__ = forward(__name__)
