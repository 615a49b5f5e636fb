"""Life of a worker process in a check of engines."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress

from standfast._kits.conformance.engines.engine import Engine
from standfast._kits.conformance.engines.fated_agent import Book, fated_agent
from standfast._kits.conformance.pipe import JobPipe
from standfast._kits.workers.jobs import JobEnd, RunJob, RunJobs
from standfast._src.agents.run_config import RunConfig

TEND_S = 0.5
WITHIN_S = 2.0
# Time that a worker has for begun work after SIGTERM.


def config_of(engine: Engine) -> RunConfig:
    """Return the settings of runs in a check."""
    return RunConfig(lease_ttl_s=engine.lease_ttl_s, lease_wait_s=30)


def engine_worker(engine: Engine, wire: JobPipe) -> None:
    """Work and tend until SIGTERM: the life of a worker process."""
    # What workers log when they are killed is what the check is about, and no news for its reader.
    logging.basicConfig(filename=engine.folder / f"worker-{engine.place}.log", level=logging.WARNING)
    book = Book(engine.folder)
    perform = RunJobs.perform

    async def perform_and_meet(self: RunJobs, job: RunJob) -> JobEnd:
        end = await perform(self, job)
        book.meet(f"{job.run_id}.end", wire.tell)  # the run has ended, and its engine does not know
        return end

    # Staged where every adapter over RunJobs comes by: no store and no engine tells this moment from outside.
    setattr(RunJobs, "perform", perform_and_meet)  # noqa: B010 — mypy refuses the assignment of a method

    async def live() -> None:
        async with engine.open([fated_agent(book, wire.tell)], config_of(engine), works=True) as client:
            wire.tell(works=True)

            async def tend() -> None:
                while True:
                    with suppress(Exception):  # a server that is being restarted: the next pass does its work
                        await client.tend()
                    await asyncio.sleep(TEND_S)

            tending = asyncio.create_task(tend())
            await engine.work(client, within_s=WITHIN_S)
            tending.cancel()

    asyncio.run(live())
