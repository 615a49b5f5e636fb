"""Code inside Temporal's workflows: deterministic, and free of I/O.

A workflow of a run has the run's name and calls one activity, which may be repeated. So its history has the same length
for two turns and for two thousand. While the run waits for a person, the workflow wakes up by a signal, and by itself
at growing intervals; after some wake-ups it continues as new, so that neither waiting nor deciding makes it longer.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta
from typing import Any

from standfast._src.base.extras import needed_by

with needed_by("workflows of Temporal"):
    from temporalio import workflow
    from temporalio.common import RetryPolicy, SearchAttributeKey, WorkflowIDReusePolicy
    from temporalio.exceptions import ActivityError, CancelledError, is_cancelled_exception

RUN, PERFORM, DECIDE, CANCEL, PUT, SEND, SETTINGS = (
    f"standfast.{name}" for name in ("run", "perform", "decide", "cancel", "put", "send", "settings")
)
AGENT, SESSION, STATUS, TOKENS = (
    SearchAttributeKey.for_keyword("StandfastAgent"),
    SearchAttributeKey.for_keyword("StandfastSession"),
    SearchAttributeKey.for_keyword("StandfastStatus"),
    SearchAttributeKey.for_int("StandfastTokens"),
)
"""Search attributes of a workflow; `TemporalRuns.register_search_attributes` makes them known to a server."""

ROUNDS_MAX = 3
# Wake-ups and decisions of one execution, each about 1.5 KB of its history. Then it continues as new.
LOOK_S_MAX = 3_600.0
SHORT = timedelta(seconds=30)
# One attempt of an activity that reads or writes the store once.


@workflow.defn(name=RUN)
class AgentRun:
    """Workflow of a run. The argument is the run's name, with the settings of `TemporalRuns`."""

    def __init__(self) -> None:
        self._wakes = 0
        self._end: dict[str, Any] = {"status": "running"}

    @workflow.run
    async def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """Perform the run; wait for decisions in between; return the end of the job."""
        if job.get("deadline_s") is not None and "deadline_at" not in job:
            job = {**job, "deadline_at": workflow.time() + job["deadline_s"]}
        left_s = None if "deadline_at" not in job else max(job["deadline_at"] - workflow.time(), 0.0)
        try:
            return await asyncio.wait_for(self._work(job), left_s)
        except TimeoutError:
            await self._cancel(job, "The deadline of its workflow has passed.")
            return {"run_id": job["run_id"], "status": "cancelled", "output": None, "waiting": []}
        except BaseException as error:
            if is_cancelled_exception(error) or isinstance(error, asyncio.CancelledError):
                await self._cancel(job, "Its workflow was cancelled.")
            raise

    async def _work(self, job: dict[str, Any]) -> dict[str, Any]:
        look_s = float(job.get("look_s", 15.0))
        for _ in range(ROUNDS_MAX):
            seen = self._wakes
            self._end = await workflow.execute_activity(
                PERFORM,
                {name: job.get(name) for name in ("run_id", "agent", "session_id")},
                result_type=dict[str, Any],
                start_to_close_timeout=timedelta(seconds=job["run_s_max"]),
                heartbeat_timeout=timedelta(seconds=job["heartbeat_s"]),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
                retry_policy=RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30)),
            )
            tokens = self._end.pop("tokens", 0)
            if job.get("attributes"):
                status = STATUS.value_set(self._end["status"])
                workflow.upsert_search_attributes([status, TOKENS.value_set(tokens)])
            if self._end["status"] != "waits":
                return self._end
            with suppress(TimeoutError):
                await workflow.wait_condition(lambda seen=seen: self._wakes > seen, timeout=timedelta(seconds=look_s))  # type: ignore[misc]
            look_s = min(2 * look_s, LOOK_S_MAX)
        await workflow.wait_condition(workflow.all_handlers_finished)
        workflow.continue_as_new({**job, "look_s": look_s})

    async def _cancel(self, job: dict[str, Any], reason: str) -> None:
        with suppress(ActivityError, CancelledError):
            await workflow.execute_activity(
                CANCEL, args=[job["run_id"], reason], start_to_close_timeout=SHORT, retry_policy=_FEW
            )

    @workflow.signal(name="look")
    def look(self) -> None:
        """Look at the run now: a decision was made, or another process resumed the run."""
        self._wakes += 1

    @workflow.update(name="decide")
    async def decide(self, decision: dict[str, Any]) -> None:
        """Decide about a waiting call: `call_id`, `approve`, `by`, and what `Store.decide` takes beside these."""
        job = {"run_id": workflow.info().workflow_id, **decision}
        await workflow.execute_activity(DECIDE, job, start_to_close_timeout=SHORT, retry_policy=_FEW)
        self._wakes += 1

    @workflow.query(name="end")
    def end(self) -> dict[str, Any]:
        """Return the end of the last job: its status, and the calls that wait for a person."""
        return self._end


_FEW = RetryPolicy(initial_interval=timedelta(seconds=1), maximum_interval=timedelta(seconds=30), maximum_attempts=10)


# --- inside a workflow of the application ----------------------------------------------------------------------------


async def run_agent(
    agent: str,
    input: str | None = None,
    *,
    run_id: str | None = None,
    session_id: str | None = None,
    task_queue: str | None = None,
) -> dict[str, Any]:
    """Run an agent, by name, as one step of a workflow; return the end of the job, as `JobEnd.as_json`.

    The step is a child workflow with the run's id, to which decisions go. `run_id`: without one it is made from this
    execution and the number of the step. Without `input` the run is in the store already: a message of `send_message`,
    or a run of any process. The input is stored in this workflow's history once; the conversation never does.
    """
    name = run_id or _name_of_step()
    if input is not None:
        await _execute(PUT, {"run_id": name, "agent": agent, "input": input, "session_id": session_id}, task_queue)
    job = {"run_id": name, "agent": agent, "session_id": session_id}
    settings = await _execute(SETTINGS, {}, task_queue)
    ended: dict[str, Any] = await workflow.execute_child_workflow(
        RUN,
        {**settings, **job},
        id=name,
        task_queue=task_queue,
        result_type=dict[str, Any],
        id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
        parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
    )
    return ended


async def send_message(
    session_id: str, message: str, *, agent: str, message_id: str | None = None, task_queue: str | None = None
) -> str:
    """Send a message to a conversation from a workflow; return the id. `run_agent(agent, run_id=id)` has the answer."""
    name = message_id or _name_of_step()
    await _execute(SEND, {"session_id": session_id, "message": message, "agent": agent, "id": name}, task_queue)
    return name


async def _execute(activity: str, argument: dict[str, Any], task_queue: str | None) -> dict[str, Any]:
    found: dict[str, Any] | None = await workflow.execute_activity(
        activity,
        argument,
        task_queue=task_queue,
        result_type=dict[str, Any],
        start_to_close_timeout=SHORT,
        retry_policy=RetryPolicy(maximum_interval=timedelta(seconds=30)),
    )
    return found or {}


def _name_of_step() -> str:
    """Return the name of a step, equal in every replay: execution and number of the step."""
    here, info = workflow.instance(), workflow.info()
    number = getattr(here, "_standfast_steps", 0) + 1
    here._standfast_steps = number
    return f"{info.workflow_id}.{info.run_id[:8]}.{number}"
