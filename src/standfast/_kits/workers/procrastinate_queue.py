"""Runs as jobs of procrastinate: a queue in PostgreSQL, with retries, heartbeats and a periodic job.

The queue hands out work and knows whose heart has stopped; the run store knows what was done. Neither needs the other
to be right: a job that is delivered twice gives the first one's result, and a run without a job is found by the
periodic one.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from standfast._kits.operators.copy_sessions import AnyStore
from standfast._kits.workers.jobs import ContextOf, DecisionOptions, RunJob, RunJobs, again_after_s
from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig
from standfast._src.base.errors import (
    NotFoundError,
    RunClaimedError,
    RunHandedOverError,
    RunStateError,
    SessionBusyError,
)
from standfast._src.base.extras import needed_by
from standfast._src.base.json_values import Item
from standfast._src.runs.recovery.shutdown import handing_over_on

__all__ = ["CLOSING_S", "RunQueue"]

with needed_by("a queue of procrastinate"):
    from procrastinate import App, BaseRetryStrategy, JobContext, RetryDecision
    from procrastinate.exceptions import AlreadyEnqueued, ConnectorException, JobAborted, UniqueViolation
    from procrastinate.job_context import AbortReason
    from procrastinate.jobs import Job, Status

RUN, TEND = "standfast:run", "standfast:tend"
CLOSING_S = 5.0
# What a run that was cut may take to give back what it had, and a worker to take its leave of the queue.
GIVING_UP_S, GIVING_UP_POLL_S = 10.0, 0.1


class RunQueue:
    """Queue of runs in procrastinate, and its worker. Make one in every process, with the same agents."""

    def __init__(
        self,
        app: App,
        agents: Iterable[Agent[Any]],
        store: AnyStore,
        *,
        queue: str = "standfast",
        run_config: RunConfig | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        context: ContextOf | None = None,
        attempts_max: int = 20,
        heartbeat_s_max: float = 30.0,
        tend: str | None = "* * * * *",
    ) -> None:
        """Register the two tasks with `app`; the other arguments are those of `RunJobs`.

        `heartbeat_s_max`: after so long without a heartbeat a worker counts as dead, and its jobs are delivered again;
        several times the worker's `update_heartbeat_interval`. `tend`: when the periodic job runs, as for cron; None:
        the application calls `tend()` itself.
        """
        self.app, self.name, self.heartbeat_s_max = app, queue, heartbeat_s_max
        self.jobs = RunJobs(agents, store, run_config=run_config, max_turns=max_turns, context=context)
        again = _Again(attempts_max, self.jobs.config.lease_ttl_s)
        self._run = app.task(name=RUN, queue=queue, retry=again, pass_context=True)(self._perform)
        self._tend = app.task(name=TEND, queue=queue, pass_context=False)(self._tend_now)
        if tend is not None:
            # Not one at a time: a worker that crashes at it would keep the lock, and no worker would be left to notice.
            app.periodic(cron=tend, queueing_lock=TEND)(self._tend)

    # --- putting runs into the queue ---------------------------------------------------------------------------------

    async def enqueue(
        self, run_id: str, agent: str, input: str | list[Item] | None = None, *, session_id: str | None = None
    ) -> int | None:
        """Save a run and put its name into the queue; return the job's number, or None if no job is necessary.

        The input goes into the store, as `RunJobs.put` does it; without input the run is there already: a message sent
        by `Store.send`, or a run of any process. Jobs of one session are worked off in order, one at a time. A repeat
        is harmless at any time: a run with a job waiting in the queue gets no second one, and a cancelled run none.
        """
        job = RunJob(run_id, agent, session_id)
        if input is not None:
            await self.jobs.put(run_id, agent, input, session_id=session_id)
        end = await self.jobs.end_of(job)
        return None if end is not None and end.status == "cancelled" else await self._defer(job)

    async def decide(
        self, run_id: str, call_id: str, approve: bool, *, by: str, **shown: Unpack[DecisionOptions]
    ) -> None:
        """Approve or reject a waiting call, from any process; enqueue the run once no call waits.

        Raises the errors of `Store.decide`. If this process crashes in between, the periodic job resumes the run.
        """
        job = await self.jobs.decide(run_id, call_id, approve, by=by, **shown)
        if job is not None:
            await self._defer(job)

    async def cancel(self, run_id: str, *, by: str, reason: str | None = None) -> bool:
        """Cancel a run, from any process. Return True if it has ended; False while its worker has to end it, or a run
        under way may be hearing the message: ask again.

        The worker of the run ends it, or the next one does (`Store.cancel`). Effects of its tools are stored, or
        recorded as unknown. A run that is still in the queue is taken back, and does not begin.
        """
        manager = self.app.job_manager
        for job in await manager.list_jobs_async(task=RUN, queueing_lock=_name_of(run_id)):
            if job.id is not None and job.status in ("todo", "doing"):
                await manager.cancel_job_by_id_async(job.id, abort=True)
        try:
            view = await self.jobs.store.cancel(run_id, by=by, reason=reason)
        except (NotFoundError, RunStateError):
            return True  # it has ended, or was never saved
        except (SessionBusyError, RunClaimedError):
            return False
        return view.cancelled_by is None  # else its worker ends it

    async def _defer(self, job: RunJob) -> int | None:
        # One run, or one conversation, at a time and in order: a job waiting for a lease would keep a place of its
        # worker busy meanwhile.
        lock = _name_of(job.run_id) if job.session_id is None else f"session {job.session_id}"
        made = self._run.configure(lock=lock, queueing_lock=_name_of(job.run_id))
        try:
            return await made.defer_async(run_id=job.run_id, agent=job.agent, session_id=job.session_id)
        except AlreadyEnqueued:
            return None

    # --- working -----------------------------------------------------------------------------------------------------

    async def work(self, *, within_s: float = 8.0, **options: Any) -> None:
        """Work off jobs until SIGTERM or SIGINT; then begun work ends, or is handed over after `within_s`.

        `options` are those of procrastinate's `run_worker_async`. Its own ways to start a worker do as well: then a run
        that is cut on deploy continues elsewhere after `shutdown_graceful_timeout`, where here it is handed over at the
        end of its turn.
        """
        options = {"queues": [self.name], **options, "install_signal_handlers": False}
        options.setdefault("shutdown_graceful_timeout", within_s + CLOSING_S)
        async with handing_over_on(signal.SIGTERM, signal.SIGINT, within_s=within_s) as stopping:
            worker = asyncio.create_task(self.app.run_worker_async(**options))
            told = asyncio.create_task(stopping.wait())
            try:
                await asyncio.wait({worker, told}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                told.cancel()
                worker.cancel()  # it takes no further job, and waits for those that it has
                (ended,) = await asyncio.gather(worker, return_exceptions=True)
                await self.jobs.close()
        if isinstance(ended, Exception):
            raise ended

    async def tend(self) -> dict[str, int]:
        """Run a pass of the periodic job: deliver the jobs of crashed workers again, and resume runs without a job.

        Returns the number of `stalled` jobs, and the outcomes of `Runner.recover`.
        """
        manager, stalled = self.app.job_manager, 0
        for job in await manager.get_stalled_jobs(queue=self.name, seconds_since_heartbeat=self.heartbeat_s_max):
            with contextlib.suppress(ConnectorException):  # it lives, and has ended; or another has done this
                if job.task_name == RUN:
                    await self._deliver_again(job)
                    stalled += 1
                elif job.task_name == TEND:
                    await manager.finish_job(job, status=Status.FAILED, delete_job=True)  # this pass is the next one
        return {"stalled": stalled, **(await self.jobs.recover())}

    async def _deliver_again(self, job: Job) -> None:
        try:
            await self.app.job_manager.retry_job(job)
        except UniqueViolation:
            # A decision or a repeat has put the run into the queue meanwhile. That job is the further delivery, and
            # this one must not keep its session's lock: else both would stay where they are for ever.
            await self.app.job_manager.finish_job(job, status=Status.FAILED, delete_job=False)

    async def _tend_now(self, timestamp: int) -> dict[str, int]:
        return await self.tend()

    async def _perform(self, context: JobContext, run_id: str, agent: str, session_id: str | None) -> dict[str, Any]:
        try:
            end = await self.jobs.perform(RunJob(run_id, agent, session_id))
        except asyncio.CancelledError:
            if context.abort_reason() is AbortReason.USER_REQUEST:
                # The requester of the abortion cancels the run, too: one of the two gets an error about the other.
                with contextlib.suppress(NotFoundError, RunStateError, RunClaimedError, SessionBusyError):
                    await self.jobs.store.cancel(run_id, by="procrastinate", reason="The job was aborted.")
                raise JobAborted from None
            raise  # the worker stops: another goes on with it
        except Exception:
            # Two jobs of a run cannot wait at once. One that was put there while this one was under way is the retry.
            waiting = await self.app.job_manager.list_jobs_async(queueing_lock=_name_of(run_id), status="todo")
            if not list(waiting):
                raise
            return {"run_id": run_id, "status": "enqueued_again", "output": None, "waiting": []}
        return end.as_json()


class _Again(BaseRetryStrategy):
    """Retry strategy of jobs."""

    def __init__(self, attempts_max: int, lease_ttl_s: float) -> None:
        self._attempts_max, self._lease_ttl_s = attempts_max, lease_ttl_s

    def get_retry_decision(self, *, exception: BaseException, job: Job) -> RetryDecision | None:
        """At once if its worker was stopped, after a while if trying again can help, else not."""
        if isinstance(exception, asyncio.CancelledError | RunHandedOverError):
            return RetryDecision()
        after_s = again_after_s(exception, job.attempts, attempts_max=self._attempts_max, lease_ttl_s=self._lease_ttl_s)
        return None if after_s is None else RetryDecision(retry_at=datetime.now(UTC) + timedelta(seconds=after_s))


def _name_of(run_id: str) -> str:
    """Return the queue's name for jobs of a run."""
    return f"run {run_id}"
