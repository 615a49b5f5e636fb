"""Runs as workflows of DBOS: a queue and a scheduler in PostgreSQL or SQLite. A workflow here has no steps.

DBOS repeats a step that was in progress when its worker crashed, without a notice; the run store knows of every call
whether it had begun. So the workflow is one call of the runner, which may be repeated, and only the run itself is
durable.

The open package of DBOS takes the workflows of a crashed worker up again only when a worker with the same `executor_id`
and the same application version is started. Until then they stay "pending" there. `tend`, which DBOS's scheduler calls,
does not wait for that: it resumes the runs themselves, of any worker.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
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
from standfast._src.runs.api.runner import Runner

__all__ = ["CLOSING_S", "RunWorkflows"]

with needed_by("workflows of DBOS"):
    from dbos import DBOS, ScheduleInput, SetWorkflowID, WorkflowHandleAsync

RUN, TEND = "standfast.run", "standfast.tend"
CLOSING_S = 5.0
# What a run that was cut may take to give back what it had, and to be put into the queue again.


class RunWorkflows:
    """Queue of runs in DBOS, and its worker. Make one in every process, before `DBOS.launch()`."""

    def __init__(
        self,
        agents: Iterable[Agent[Any]],
        store: AnyStore,
        *,
        queue: str = "standfast",
        worker_concurrency: int = 10,
        polling_s: float = 1.0,
        run_config: RunConfig | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        context: ContextOf | None = None,
        attempts_max: int = 20,
        tend: str | None = "* * * * *",
    ) -> None:
        """Register the two workflows with DBOS; the other arguments are those of `RunJobs`.

        `worker_concurrency`: how many runs one process works off at once. `tend`: when the periodic workflow runs, as
        for cron; None: the application calls `tend()` itself. `polling_s`: how often the queue is looked at.
        """
        self.jobs = RunJobs(agents, store, run_config=run_config, max_turns=max_turns, context=context)
        self.name, self._worker_concurrency, self._polling_s = queue, worker_concurrency, polling_s
        self._attempts_max, self._cron = attempts_max, tend
        self._loops: set[asyncio.AbstractEventLoop] = set()

        async def run(run_id: str, agent: str, session_id: str | None) -> dict[str, Any]:
            return await self._perform(RunJob(run_id, agent, session_id))

        async def tend_now(at: datetime, given: object) -> None:
            self._loops.add(asyncio.get_running_loop())
            await self.tend()

        self._run = DBOS.workflow(name=RUN)(run)
        self._tend = DBOS.workflow(name=TEND)(tend_now)

    async def start(self) -> None:
        """Register the queue and the schedule; call it after `DBOS.launch()`."""
        # No limit for all workers together and none for a conversation: DBOS counts what a dead worker had as running,
        # and a conversation would stand still until that worker is back. The lease keeps the order of a conversation.
        await DBOS.register_queue_async(
            self.name, worker_concurrency=self._worker_concurrency, polling_interval_sec=self._polling_s
        )
        if self._cron is not None:
            schedule: ScheduleInput = {
                "schedule_name": TEND,
                "workflow_fn": self._tend,
                "schedule": self._cron,
                "context": None,
                "queue_name": self.name,  # only who works this queue off
            }
            await DBOS.apply_schedules_async([schedule])

    async def stop(self, *, within_s: float = 8.0) -> None:
        """Shut down as on deploy: begun work ends, the rest is handed over within this time; then end DBOS here.

        A run that is handed over goes into the queue again, for any worker.
        """
        # DBOS takes no further workflow once it is being ended, and waits for those that are under way: meanwhile they
        # are handed over, on the loop where DBOS runs them.
        patience_s = math.ceil(within_s + CLOSING_S)
        ending = asyncio.create_task(asyncio.to_thread(DBOS.destroy, workflow_completion_timeout_sec=patience_s))
        for loop in [loop for loop in self._loops if not loop.is_closed()]:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(Runner.hand_over(within_s=within_s), loop))
        await ending
        await self.jobs.close()

    # --- putting runs into the queue ---------------------------------------------------------------------------------

    async def enqueue(
        self, run_id: str, agent: str, input: str | list[Item] | None = None, *, session_id: str | None = None
    ) -> WorkflowHandleAsync[dict[str, Any]]:
        """Save a run and put its name into the queue; its id is the workflow's. Asked twice, DBOS gives the first
        workflow again.

        The input goes into the store, as `RunJobs.put` does it; without input the run is there already: a message sent
        by `Store.send`, or a run of any process. The handle's result says how that workflow ended: `done` with the
        output, `waits` if a person must decide, or `handed_over` if a deploy came in between. `Runner.result` has the
        run's own.
        """
        job = RunJob(run_id, agent, session_id)
        if input is not None:
            await self.jobs.put(run_id, agent, input, session_id=session_id)
        return await self._enqueue(run_id, job)

    async def decide(
        self, run_id: str, call_id: str, approve: bool, *, by: str, **shown: Unpack[DecisionOptions]
    ) -> None:
        """Approve or reject a waiting call, from any process; enqueue the run once no call waits.

        Raises the errors of `Store.decide`. If this process crashes in between, `tend` resumes the run.
        """
        job = await self.jobs.decide(run_id, call_id, approve, by=by, **shown)
        if job is not None:
            await self._go_on(job)

    async def cancel(self, run_id: str, *, by: str, reason: str | None = None) -> bool:
        """Cancel a run, from any process. Return True if it has ended; False while its worker has to end it, or a run
        under way may be hearing the message: ask again.

        The worker of the run ends it, or the next one does (`Store.cancel`): DBOS itself stops a workflow only between
        its steps, and this one has none. A run that has not begun, in the queue or while it waits for its session, is
        taken back.
        """
        await DBOS.cancel_workflow_async(run_id)
        try:
            view = await self.jobs.store.cancel(run_id, by=by, reason=reason)
        except (NotFoundError, RunStateError):
            return True  # it has ended, or was never saved
        except (SessionBusyError, RunClaimedError):
            return False
        return view.cancelled_by is None  # else its worker ends it

    async def tend(self) -> dict[str, int]:
        """Resume every run without a worker, of any worker; return the outcomes of `Runner.recover`, counted."""
        return await self.jobs.recover()

    async def _go_on(self, job: RunJob) -> None:
        # The run's id is used up: DBOS would give the workflow's first result again. Its revision is new each time it
        # waits or is handed over, and the same for everybody who puts it into the queue then.
        with suppress(NotFoundError, RunStateError):
            view = await self.jobs.store.run(job.run_id)
            await self._enqueue(f"{job.run_id}@{view.revision}", job)

    async def _enqueue(self, workflow_id: str, job: RunJob) -> WorkflowHandleAsync[dict[str, Any]]:
        with SetWorkflowID(workflow_id):
            return await DBOS.enqueue_workflow_async(self.name, self._run, job.run_id, job.agent, job.session_id)

    # --- working -----------------------------------------------------------------------------------------------------

    async def _perform(self, job: RunJob) -> dict[str, Any]:
        """Run the whole workflow. DBOS repeats an interrupted workflow but not a failed one: so retries are in here."""
        self._loops.add(asyncio.get_running_loop())
        attempts = 0
        while True:
            try:
                return (await self.jobs.perform(job)).as_json()
            except RunHandedOverError:
                await self._go_on(job)
                return {"run_id": job.run_id, "status": "handed_over", "output": None, "waiting": []}
            except Exception as error:
                after_s = again_after_s(
                    error, attempts, attempts_max=self._attempts_max, lease_ttl_s=self.jobs.config.lease_ttl_s
                )
                if after_s is None:
                    raise
            attempts += 1
            await asyncio.sleep(after_s)
