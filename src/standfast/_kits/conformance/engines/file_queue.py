"""Queue of the kit itself: a file with a row for each delivery, and an adapter over `RunJobs`.

Deliveries are at least once: a worker hides a row and renews that while alive; the row of a killed worker is delivered
again. The queue is the example of an adapter, and the kit's own tests break it on purpose.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

from standfast._kits.conformance.engines.engine import Engine
from standfast._kits.workers.jobs import RunJob, RunJobs, again_after_s
from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import RunConfig
from standfast._src.base.errors import (
    NotFoundError,
    RunClaimedError,
    RunHandedOverError,
    RunStateError,
    SessionBusyError,
)
from standfast._src.runs.recovery.shutdown import handing_over_on

HIDDEN_S, BEAT_S, POLL_S = 3.0, 0.5, 0.05


class FileQueue:
    """Client and worker of the queue."""

    attempts_max = 20

    def __init__(self, path: Path, jobs: RunJobs) -> None:
        self.path, self.jobs = path, jobs
        with closing(self._open()) as file:
            file.execute(
                "CREATE TABLE IF NOT EXISTS deliveries (id TEXT PRIMARY KEY, run_id TEXT, job TEXT,"
                " visible_at REAL, attempts INTEGER DEFAULT 0, result TEXT)"
            )

    # --- a web process -----------------------------------------------------------------------------------------------

    async def enqueue(
        self, run_id: str, agent: str, input: str | None = None, *, session_id: str | None = None
    ) -> None:
        """Save the run, and put its name into the file once."""
        job = RunJob(run_id, agent, session_id)
        if input is not None:
            await self.jobs.put(run_id, agent, input, session_id=session_id)
        self.deliver(job, run_id)

    async def decide(self, run_id: str, call_id: str, approve: bool, *, by: str) -> None:
        """Decide in the store, and deliver the job again once no call waits."""
        job = await self.jobs.decide(run_id, call_id, approve, by=by)
        if job is not None:
            self.deliver(job, f"{run_id}@{(await self.jobs.store.run(run_id)).revision}")

    async def cancel(self, run_id: str, *, by: str) -> bool:
        """Cancel the run in the store; later deliveries return `cancelled`."""
        try:
            view = await self.jobs.store.cancel(run_id, by=by)
        except (NotFoundError, RunStateError):
            return True
        except (SessionBusyError, RunClaimedError):
            return False
        return view.cancelled_by is None  # else its worker ends it

    async def tend(self) -> dict[str, int]:
        """Resume the runs without a worker."""
        return await self.jobs.recover()

    def deliver(self, job: RunJob, delivery: str) -> None:
        """Put a delivery into the file, once."""
        content = json.dumps([job.run_id, job.agent, job.session_id])
        self._do("INSERT OR IGNORE INTO deliveries VALUES (?, ?, ?, 0, 0, NULL)", delivery, job.run_id, content)

    # --- a worker ----------------------------------------------------------------------------------------------------

    async def work(self, *, within_s: float) -> None:
        """Take deliveries, two at a time, until SIGTERM; then hand over."""
        async with handing_over_on(signal.SIGTERM, within_s=within_s) as stopping:
            await asyncio.gather(*(self._take_turns(stopping) for _ in range(2)))

    async def _take_turns(self, stopping: asyncio.Event) -> None:
        while not stopping.is_set():
            taken = self._do(
                "UPDATE deliveries SET visible_at = ?, attempts = attempts + 1 WHERE id = (SELECT id FROM deliveries"
                " WHERE result IS NULL AND visible_at < ? ORDER BY rowid LIMIT 1) RETURNING id, job, attempts",
                time.time() + HIDDEN_S,
                time.time(),
            )
            if not taken:
                await asyncio.sleep(POLL_S)
                continue
            delivery, content, attempts = taken[0]
            beating = asyncio.create_task(self._beat(delivery))
            try:
                await self.perform(delivery, RunJob(*json.loads(content)), attempts)
            finally:
                beating.cancel()

    async def perform(self, delivery: str, job: RunJob, attempts: int) -> None:
        """Perform a delivery; write its result, or the time of the next attempt."""
        try:
            end = await self.jobs.perform(job)
        except RunHandedOverError:
            self._do("UPDATE deliveries SET visible_at = 0 WHERE id = ?", delivery)
        except Exception as error:
            after_s = again_after_s(
                error, attempts, attempts_max=self.attempts_max, lease_ttl_s=self.jobs.config.lease_ttl_s
            )
            if after_s is None:
                self.finish(delivery, f"{type(error).__name__}: {error}"[:500])
            else:
                self._do("UPDATE deliveries SET visible_at = ? WHERE id = ?", time.time() + after_s, delivery)
        else:
            self.finish(delivery, json.dumps(end.as_json()))

    def finish(self, delivery: str, result: str) -> None:
        """Write down the result of a delivery: the acknowledgement."""
        self._do("UPDATE deliveries SET result = ? WHERE id = ?", result, delivery)

    async def _beat(self, delivery: str) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            self._do("UPDATE deliveries SET visible_at = ? WHERE id = ?", time.time() + HIDDEN_S, delivery)

    # --- the file ----------------------------------------------------------------------------------------------------

    def rows(self, run_id: str) -> list[Any]:
        """Return the rows of a run, or of a delivery."""
        return self._do("SELECT * FROM deliveries WHERE run_id = ? OR id = ?", run_id, run_id)

    def _do(self, statement: str, *values: Any) -> list[Any]:
        with closing(self._open()) as file:
            return file.execute(statement, values).fetchall()

    def _open(self) -> sqlite3.Connection:
        file = sqlite3.connect(self.path, timeout=60, isolation_level=None)
        with suppress(sqlite3.OperationalError):
            file.execute("PRAGMA journal_mode = WAL")
        return file


class FileQueueEngine(Engine):
    """Description of the kit's own queue."""

    name = "file queue"
    about = "the kit's own queue of a hundred lines, in a file"
    kind: type[FileQueue] = FileQueue

    @asynccontextmanager
    async def open(
        self, agents: Sequence[Agent[Any]], run_config: RunConfig, *, works: bool
    ) -> AsyncIterator[FileQueue]:
        """Open the queue's file and the run store."""
        async with RunJobs(agents, self.store_url, run_config=run_config, max_turns=None) as jobs:
            yield self.kind(self.folder / "queue.db", jobs)

    async def work(self, client: Any, *, within_s: float) -> None:
        """Work off deliveries until SIGTERM."""
        await client.work(within_s=within_s)

    async def deliver(self, client: Any, job: RunJob, delivery: str) -> None:
        """Put another delivery into the file."""
        client.deliver(job, delivery)

    async def is_over(self, client: Any, run_id: str) -> bool:
        """Return whether each delivery of the run has a result."""
        return all(row[-1] is not None for row in client.rows(run_id))

    async def log_bytes(self, client: Any, run_id: str) -> int:
        """Return the size of the rows of the run."""
        return sum(len(str(row)) for row in client.rows(run_id))
