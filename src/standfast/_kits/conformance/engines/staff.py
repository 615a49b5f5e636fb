"""Worker processes of a check of engines: started, replaced at their end, and woken after a stop."""

from __future__ import annotations

import asyncio
import copy
import os
import signal
import time
from collections import Counter
from contextlib import suppress

from standfast._kits.conformance.engines.engine import Engine
from standfast._kits.conformance.processes import Child, start

LOOK_S = 0.02
WORKER = "standfast._kits.conformance.engines.worker:engine_worker"
# By name: the fork server imports the function.


class Staff:
    """Places for workers: the next worker follows at the end of each."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._workers: dict[int, Child] = {}
        self._stopped: list[tuple[float, int, Child]] = []
        self._looking: asyncio.Task[None] | None = None
        self.met: Counter[str] = Counter()
        """Count of fates met, by signal, and of workers that have `ended`."""

    def open(self) -> None:
        """Start a worker at each place, and look after them from now on."""
        for place in range(1, self._engine.places + 1):
            self._workers[place] = self._start(place)
        self._looking = asyncio.create_task(self._look_after())

    def _start(self, place: int) -> Child:
        engine = copy.copy(self._engine)
        engine.place = place
        return start(engine, WORKER)

    async def _look_after(self) -> None:
        while True:
            self.look()
            await asyncio.sleep(LOOK_S)

    def look(self) -> None:
        """Read the reports; replace ended workers, and wake stopped ones two leases after the stop."""
        while self._stopped and self._stopped[0][0] <= time.monotonic():
            _, _, child = self._stopped.pop(0)
            _send(child, signal.SIGCONT)
        for place, child in list(self._workers.items()):
            for facts in child.read_reports():
                if facts is None:
                    self.met["ended"] += 1
                    child.__exit__(None, None, None)
                    self._workers[place] = self._start(place)
                    break
                if "fate" in facts:
                    self.met[facts["fate"]] += 1
                if facts.get("fate") == "stop":
                    wake_at = time.monotonic() + 2 * self._engine.lease_ttl_s
                    self._stopped.append((wake_at, place, child))

    @property
    def are_awake(self) -> bool:
        """True while no worker is stopped."""
        return not self._stopped

    def kill_all(self) -> None:
        """End every worker with SIGKILL; no worker follows until `open`."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        for child in self._workers.values():
            _send(child, signal.SIGKILL)
            child.__exit__(None, None, None)
        self._workers.clear()
        self._stopped.clear()


def _send(child: Child, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(child.pid, number)
