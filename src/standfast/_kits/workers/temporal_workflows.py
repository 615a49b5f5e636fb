"""Runs as workflows of Temporal. The server's log has a run's name, and nothing of the conversation.

A workflow calls one activity: `RunJobs.perform`. Temporal repeats an activity whose worker has stopped its heartbeat;
the run store knows what the earlier attempt had done. What workflows execute is in `temporal_definition`.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Unpack

from standfast._kits.operators.copy_sessions import AnyStore
from standfast._kits.workers.jobs import LASTING, ContextOf, DecisionOptions, JobEnd, RunJob, RunJobs, again_after_s
from standfast._src.agents.agent import Agent
from standfast._src.agents.run_config import DEFAULT_MAX_TURNS, RunConfig
from standfast._src.base.errors import (
    NotFoundError,
    RunClaimedError,
    RunHandedOverError,
    RunStateError,
    SessionBusyError,
    StandfastError,
    StoreError,
)
from standfast._src.base.extras import needed_by
from standfast._src.base.json_values import Item
from standfast._src.runs.recovery.shutdown import handing_over_on

with needed_by("workflows of Temporal"):
    from temporalio import activity
    from temporalio.api.enums.v1 import IndexedValueType
    from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
    from temporalio.client import Client, WorkflowHandle
    from temporalio.common import (
        SearchAttributePair,
        TypedSearchAttributes,
        WorkflowIDConflictPolicy,
        WorkflowIDReusePolicy,
    )
    from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
    from temporalio.plugin import SimplePlugin
    from temporalio.service import RPCError, RPCStatusCode
    from temporalio.worker import Worker, WorkflowRunner
    from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from standfast._kits.workers.temporal_definition import (
    AGENT,
    CANCEL,
    DECIDE,
    PERFORM,
    PUT,
    SEND,
    SESSION,
    SETTINGS,
    STATUS,
    TOKENS,
    AgentRun,
    run_agent,
    send_message,
)

__all__ = ["AgentRun", "TemporalRuns", "run_agent", "send_message"]

CLOSING_S = 5.0
# Time that a cut run has to return what it had, and a worker to leave the server.
ERROR_CHARS_MAX = 1_000
# An error is a part of the history, and some quote what they refuse.


class TemporalRuns:
    """Runs as workflows of Temporal, and their worker. Make one in every process, with the same agents."""

    def __init__(
        self,
        client: Client,
        agents: Iterable[Agent[Any]],
        store: AnyStore,
        *,
        task_queue: str = "standfast",
        run_config: RunConfig | None = None,
        max_turns: int | None = DEFAULT_MAX_TURNS,
        context: ContextOf | None = None,
        attempts_max: int = 20,
        heartbeat_s_max: float = 30.0,
        run_s_max: float = 86_400.0,
        look_s: float = 15.0,
        search_attributes: bool = False,
        link: Callable[[RunJob], str] | None = None,
    ) -> None:
        """Prepare the activities; for the remaining arguments see `RunJobs`.

        `heartbeat_s_max`: after so long without a heartbeat the server delivers the run to another worker. `run_s_max`:
        limit of one attempt, behind which the run continues in the next. `look_s`: first interval at which a waiting
        workflow looks by itself; the intervals double up to an hour. `search_attributes`: agent, session, status and
        tokens of each run, once `register_search_attributes` was called. `link` makes the address of a run in your
        inspector, for the details in Temporal's page.
        """
        self.client, self.task_queue = client, task_queue
        self.jobs = RunJobs(agents, store, run_config=run_config, max_turns=max_turns, context=context)
        self._attempts_max, self._heartbeat_s_max, self._link = attempts_max, heartbeat_s_max, link
        self._settings = {
            "heartbeat_s": heartbeat_s_max, "run_s_max": run_s_max, "look_s": look_s, "attributes": search_attributes
        }  # fmt: skip

    # --- any process -------------------------------------------------------------------------------------------------

    async def enqueue(
        self,
        run_id: str,
        agent: str,
        input: str | list[Item] | None = None,
        *,
        session_id: str | None = None,
        deadline_s: float | None = None,
    ) -> WorkflowHandle[Any, dict[str, Any]]:
        """Save a run and start a workflow under the run's id; return the handle. A repeat changes nothing.

        The input goes into the store, as `RunJobs.put` does it; without input the run is there already. `deadline_s`:
        after so long the run is cancelled. The handle's result is the end of the job, as `JobEnd.as_json`.
        """
        job = RunJob(run_id, agent, session_id)
        if input is not None:
            await self.jobs.put(run_id, agent, input, session_id=session_id)
        return await self.start(job, deadline_s=deadline_s)

    async def start(
        self, job: RunJob, *, workflow_id: str | None = None, deadline_s: float | None = None
    ) -> WorkflowHandle[Any, dict[str, Any]]:
        """Start a workflow for a stored run, under the run's id or `workflow_id`."""
        name = workflow_id or job.run_id
        argument = {**self._settings, "run_id": job.run_id, "agent": job.agent, "session_id": job.session_id}
        if deadline_s is not None:
            argument["deadline_s"] = deadline_s
        try:
            return await self.client.start_workflow(
                AgentRun.run,
                argument,
                id=name,
                task_queue=self.task_queue,
                id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY,
                search_attributes=self._attributes_of(job),
                static_summary=f"{job.agent}, {job.session_id or 'no session'}",
                static_details=None if self._link is None else f"[The run]({self._link(job)})",
            )
        except WorkflowAlreadyStartedError:
            return self.client.get_workflow_handle(name, result_type=dict[str, Any])

    def _attributes_of(self, job: RunJob) -> TypedSearchAttributes | None:
        if not self._settings["attributes"]:
            return None
        pairs: list[SearchAttributePair[Any]] = [SearchAttributePair(AGENT, job.agent)]
        pairs += [] if job.session_id is None else [SearchAttributePair(SESSION, job.session_id)]
        return TypedSearchAttributes(pairs)

    async def decide(
        self, run_id: str, call_id: str, approve: bool, *, by: str, **shown: Unpack[DecisionOptions]
    ) -> None:
        """Approve or reject a waiting call, from any process with the store; wake the workflow.

        Raises the errors of `Store.decide`. If this process crashes in between, the workflow looks by itself, and
        `tend` resumes the run. A process without the store uses the workflow's update `decide`.
        """
        job = await self.jobs.decide(run_id, call_id, approve, by=by, **shown)
        if job is not None and not await self._wake(run_id):
            await self.start(job)

    async def _wake(self, workflow_id: str) -> bool:
        try:
            await self.client.get_workflow_handle(workflow_id).signal(AgentRun.look)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            return False
        return True

    async def cancel(self, run_id: str, *, by: str, reason: str | None = None) -> bool:
        """Cancel a run and the workflow, from any process. Return True if the run has ended; False while the
        worker of the run has to end it: ask again.

        The worker of the run ends it, or the next worker does (`Store.cancel`).
        """
        with suppress(RPCError):
            await self.client.get_workflow_handle(run_id).cancel()
        try:
            view = await self.jobs.store.cancel(run_id, by=by, reason=reason)
        except (NotFoundError, RunStateError):
            return True
        except (SessionBusyError, RunClaimedError):
            return False
        return view.cancelled_by is None  # else its worker ends it

    async def tend(self) -> dict[str, int]:
        """Resume every run without a worker and wake the workflows; return the outcomes, counted."""
        report = await self.jobs.recover_and_report()
        for one in report.of("continued"):
            await self._wake(one.run_id)
        return dict(report.counts)

    async def register_search_attributes(self) -> None:
        """Make the search attributes known to the server, once for a namespace."""
        kinds = {
            one.name: IndexedValueType.INDEXED_VALUE_TYPE_INT
            if one is TOKENS
            else IndexedValueType.INDEXED_VALUE_TYPE_KEYWORD
            for one in (AGENT, SESSION, STATUS, TOKENS)
        }
        request = AddSearchAttributesRequest(namespace=self.client.namespace, search_attributes=kinds)
        try:
            await self.client.operator_service.add_search_attributes(request)
        except RPCError as error:
            if error.status is not RPCStatusCode.ALREADY_EXISTS:
                raise

    # --- workers -----------------------------------------------------------------------------------------------------

    @property
    def workflows(self) -> Sequence[type]:
        """Workflows for a worker."""
        return [AgentRun]

    @property
    def activities(self) -> Sequence[Callable[..., Any]]:
        """Activities for a worker."""
        named: dict[str, Callable[..., Any]] = {
            PERFORM: self._perform, DECIDE: self._decide, CANCEL: self._cancel, PUT: self._put, SEND: self._send,
            SETTINGS: self._read_settings,
        }  # fmt: skip
        return [activity.defn(name=name)(_as_function(function)) for name, function in named.items()]

    def plugin(self) -> SimplePlugin:
        """Return a plugin for a worker of the application, with the workflow, the activities and the permission of this
        package in the sandbox."""
        return SimplePlugin(
            "standfast", workflows=self.workflows, activities=self.activities, workflow_runner=sandboxed_runner
        )

    async def work(self, *, within_s: float = 8.0, tend_s: float | None = 60.0, **options: Any) -> None:
        """Execute runs until SIGTERM or SIGINT; then begun work ends, or is handed over after `within_s`.

        `tend_s`: interval of `tend` in this process; None: another process calls it. `options` are those of Temporal's
        `Worker`: `workflows` and `activities` of the application, `max_concurrent_activities`, `deployment_config` for
        versions of workers.
        """
        workflows = [*self.workflows, *options.pop("workflows", ())]
        activities = [*self.activities, *options.pop("activities", ())]
        options.setdefault("workflow_runner", sandboxed_runner())
        options.setdefault("graceful_shutdown_timeout", timedelta(seconds=within_s + CLOSING_S))
        worker = Worker(self.client, task_queue=self.task_queue, workflows=workflows, activities=activities, **options)
        async with handing_over_on(signal.SIGTERM, signal.SIGINT, within_s=within_s) as stopping:
            working = asyncio.create_task(worker.run())
            told = asyncio.create_task(stopping.wait())
            tending = asyncio.create_task(self._tend_all_the_while(tend_s))
            try:
                await asyncio.wait({working, told}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                told.cancel()
                tending.cancel()
                await worker.shutdown()
                (ended, _) = await asyncio.gather(working, tending, return_exceptions=True)
                await self.jobs.close()
        if isinstance(ended, Exception):
            raise ended

    async def _tend_all_the_while(self, tend_s: float | None) -> None:
        while tend_s is not None:
            await asyncio.sleep(tend_s)
            with suppress(Exception):  # a server that is away: the next pass does its work
                await self.tend()

    # --- activities --------------------------------------------------------------------------------------------------

    async def _perform(self, given: dict[str, Any]) -> dict[str, Any]:
        beating = asyncio.create_task(self._beat())
        try:
            return await self._end_as_json(await self.jobs.perform(RunJob(**given)))
        except (asyncio.CancelledError, RunHandedOverError) as error:
            details = activity.cancellation_details()
            if isinstance(error, asyncio.CancelledError) and details is not None and details.cancel_requested:
                await self._cancel(given["run_id"], "Its workflow was cancelled.")
                raise
            # This worker stops, or its attempt has timed out: another one continues at once.
            raise ApplicationError(
                "The worker stopped before the end of the run.", type="HandedOver", next_retry_delay=timedelta()
            ) from None
        except Exception as error:
            raise self._failure_of(error) from None
        finally:
            beating.cancel()

    def _failure_of(self, error: Exception) -> ApplicationError:
        attempts, ttl_s = activity.info().attempt - 1, self.jobs.config.lease_ttl_s
        # A worker that has the run ends it. However long that takes, it is not a failure of this job.
        is_busy = isinstance(error, RunClaimedError | SessionBusyError)
        if is_busy:
            attempts = min(attempts, self._attempts_max - 2)
        after_s = again_after_s(error, attempts, attempts_max=self._attempts_max, lease_ttl_s=ttl_s)
        return ApplicationError(
            str(error)[:ERROR_CHARS_MAX],
            type=type(error).__name__,
            non_retryable=after_s is None,
            next_retry_delay=None if after_s is None else timedelta(seconds=ttl_s if is_busy else after_s),
        )

    async def _end_as_json(self, end: JobEnd) -> dict[str, Any]:
        tokens = 0
        if self._settings["attributes"]:
            with suppress(NotFoundError, RunStateError):
                tokens = (await self.jobs.store.run(end.run_id)).usage.total_tokens
        return {**end.as_json(), "tokens": tokens}

    async def _beat(self) -> None:
        while True:
            activity.heartbeat()
            await asyncio.sleep(self._heartbeat_s_max / 4)

    async def _decide(self, given: dict[str, Any]) -> None:
        try:
            await self.jobs.store.decide(given.pop("run_id"), given.pop("call_id"), **given)
        except Exception as error:
            raise _refusal_of(error) from None

    async def _cancel(self, run_id: str, reason: str) -> None:
        with suppress(NotFoundError, RunStateError, RunClaimedError, SessionBusyError):
            await self.jobs.store.cancel(run_id, by="temporal", reason=reason)

    async def _put(self, given: dict[str, Any]) -> None:
        try:
            await self.jobs.put(**given)
        except Exception as error:
            raise _refusal_of(error) from None

    async def _send(self, given: dict[str, Any]) -> None:
        try:
            await self.jobs.store.send(
                given["session_id"], given["message"], agent=given["agent"], message_id=given["id"], by="temporal"
            )
        except Exception as error:
            raise _refusal_of(error) from None

    async def _read_settings(self, given: dict[str, Any]) -> dict[str, Any]:
        return self._settings


def _refusal_of(error: Exception) -> ApplicationError:
    """Return an activity's error after one question to the store: a refusal is final, an absent store is retried."""
    is_final = isinstance(error, LASTING) or (isinstance(error, StandfastError) and not isinstance(error, StoreError))
    return ApplicationError(str(error)[:ERROR_CHARS_MAX], type=type(error).__name__, non_retryable=is_final)


def sandboxed_runner(existing: WorkflowRunner | None = None) -> WorkflowRunner:
    """Return Temporal's sandbox, new or existing, with this package passed through."""
    if existing is not None and not isinstance(existing, SandboxedWorkflowRunner):
        return existing
    restrictions = SandboxRestrictions.default if existing is None else existing.restrictions
    return SandboxedWorkflowRunner(restrictions=restrictions.with_passthrough_modules("standfast"))


def _as_function(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method in a function: Temporal sets attributes on activities."""

    async def one(*given: Any) -> Any:
        return await method(*given)

    one.__annotations__ = {}
    return one
