"""Kit for engines: checks of queues and workflow servers that carry runs (G1).

    from standfast.conformance.engines import Engine, check_engine

    class MyQueue(Engine):
        name = "my queue"
        ...

    check_engine(MyQueue())

`python -m standfast.conformance.engines my_queue.py:MyQueue` does the same as a command.
"""

from __future__ import annotations

from standfast._kits.conformance.engines.checks import CHECKS, EngineCheck
from standfast._kits.conformance.engines.engine import LOG_BYTES_MAX, Engine, EngineClient
from standfast._kits.conformance.engines.file_queue import FileQueue, FileQueueEngine
from standfast._kits.conformance.engines.run import EngineResult, check_engine, make_check
from standfast._kits.conformance.engines.trial import EngineBroken

__all__ = [
    "CHECKS",
    "LOG_BYTES_MAX",
    "Engine",
    "EngineBroken",
    "EngineCheck",
    "EngineClient",
    "EngineResult",
    "FileQueue",
    "FileQueueEngine",
    "check_engine",
    "make_check",
]
