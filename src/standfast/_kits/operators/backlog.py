"""Waiting work of a store: runs for a worker, calls for a person. A basis for scaling workers and for alerts."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from standfast._kits.operators.run_view import load, view_of
from standfast._kits.operators.run_worker import RunWorker
from standfast._src.base.errors import NotFoundError, RunStateError
from standfast._src.base.operational_events import measure
from standfast._src.runs.engine.run_store import RunStore, RunSummary

PAGE = 256

BETWEEN_WORKERS_S = 60.0
# A run without a lease was handed over, or its store has no leases. One that saves is at work.


@dataclass(frozen=True, slots=True)
class Backlog:
    """Counts of the runs that wait for a worker and of the calls that wait for a person, and the oldest run's age in
    seconds.
    """

    runs_waiting: int
    oldest_s: float
    approvals_waiting: int


async def look_at_backlog(
    url: str, runs: RunStore, worker_of: Callable[[str, str | None], Awaitable[RunWorker | None]]
) -> Backlog:
    """Count the waiting work of a store, and report the counts as gauges if the program uses OpenTelemetry."""
    from standfast._src.tracing import opentelemetry_spans  # noqa: F401 — reports the measures below

    waiting, approvals, now = list[float](), 0, time.time()
    async for one in _runs(runs, "ready"):
        waiting.append(max(0.0, now - one.updated_at.timestamp()))
    async for one in _runs(runs, "running"):
        age = max(0.0, now - one.updated_at.timestamp())
        worker = await worker_of(one.run_id, one.session_id)
        if age > BETWEEN_WORKERS_S if worker is None else worker.state != "live":
            waiting.append(age)
    async for one in _runs(runs, "paused"):
        try:
            view = view_of(await load(runs, one.run_id), one)
        except (NotFoundError, RunStateError):
            continue  # deleted since, or not readable: `standfast doctor` reports it
        approvals += len(view.waiting) or int(view.hold is not None)
    found = Backlog(len(waiting), max(waiting, default=0.0), approvals)
    measure("standfast.runs.waiting", found.runs_waiting, store=url)
    measure("standfast.runs.waiting.age", found.oldest_s, store=url)
    measure("standfast.approvals.waiting", found.approvals_waiting, store=url)
    return found


async def _runs(runs: RunStore, status: str) -> AsyncIterator[RunSummary]:
    after: str | None = None
    while True:
        page, after = await runs.list_runs(status=status, after=after, limit=PAGE)
        for one in page:
            yield one
        if after is None:
            return
