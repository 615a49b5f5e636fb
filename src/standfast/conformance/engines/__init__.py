"""Public path of `standfast._kits.conformance.engines`.

Written by `./dev names` from `_src/exports/table.py`: edit that table, not this file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from standfast._src.exports.lazy import forward

if TYPE_CHECKING:
    from standfast._kits.conformance.engines import (
        CHECKS,
        LOG_BYTES_MAX,
        Engine,
        EngineBroken,
        EngineCheck,
        EngineClient,
        EngineResult,
        FileQueue,
        FileQueueEngine,
        check_engine,
        make_check,
    )

__all__ = [
    "CHECKS",
    "Engine",
    "EngineBroken",
    "EngineCheck",
    "EngineClient",
    "EngineResult",
    "FileQueue",
    "FileQueueEngine",
    "LOG_BYTES_MAX",
    "check_engine",
    "make_check",
]
__getattr__, __dir__ = forward(__name__)
