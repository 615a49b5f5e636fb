"""Temporal's adapter on its development server: what the kit for engines does not ask."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import VersioningBehavior, WorkerDeploymentVersion
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Replayer, Worker, WorkerDeploymentConfig

from standfast import Agent, NotFoundError, RunStateError
from standfast.testing import ScriptedModel, final
from standfast.workers.temporal_workflows import AgentRun, TemporalRuns
from tests.helpers import temporal_server
from tests.helpers.ledger_oracle import done, lines
from tests.workers.payment_worker import config, payer
from tests.workers.user_workflow import Office
from tests.workers.waiting import is_status

pytestmark = pytest.mark.temporal


@pytest.fixture
def book(tmp_path: Path) -> str:
    return str(tmp_path / "book")


@asynccontextmanager
async def temporal(tmp_path: Path, book: str, *more: Agent[Any], **options: Any) -> AsyncIterator[TemporalRuns]:
    client = await Client.connect(temporal_server.shared().address)
    runs = TemporalRuns(
        client, [payer(book), *more], tmp_path / "talks.db", task_queue=f"q{uuid.uuid4().hex[:8]}",
        run_config=config(), heartbeat_s_max=2.0, **options,
    )  # fmt: skip
    yield runs
    await runs.jobs.close()


@asynccontextmanager
async def working(runs: TemporalRuns, **options: Any) -> AsyncIterator[None]:
    """A worker of the application, with the plugin: as an application has it that runs Temporal already."""
    async with Worker(runs.client, task_queue=runs.task_queue, workflows=[Office], plugins=[runs.plugin()], **options):
        yield


def named(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


async def history_bytes(handle: Any) -> int:
    return int((await handle.describe()).raw_description.workflow_execution_info.history_size_bytes)


async def test_agents_are_steps_of_a_workflow_of_the_application(tmp_path: Path, book: str):
    """G1a: in the sandbox, with a decision in between; a replay of both histories makes the same commands."""
    async with temporal(tmp_path, book) as runs, working(runs):
        order = named("o")
        office = await runs.client.start_workflow(Office.run, order, id=order, task_queue=runs.task_queue)
        async with asyncio.timeout(60):
            while not (found := (await runs.jobs.store.runs(status="paused")).runs):
                await asyncio.sleep(0.05)
        await runs.decide(found[0].run_id, f"ask{order}", True, by="ann")
        assert await office.result() == {
            "steps": [f"{done(order + 'a')}; {done(order + 'b')}", done(f"{order}c")],
            "answer": done(f"ask{order}"),
        }
        assert sorted(lines(book)) == sorted([f"{order}a", f"{order}b", f"{order}c", f"ask{order}"])
        replayer = Replayer(workflows=[Office], plugins=[runs.plugin()])
        await replayer.replay_workflow(await office.fetch_history())
        await replayer.replay_workflow(await runs.client.get_workflow_handle(found[0].run_id).fetch_history())
        assert await history_bytes(office) < 20_000


async def test_a_history_stays_short_whatever_is_decided(tmp_path: Path, book: str):
    """G1a: eight decisions, each by another wake-up; each execution of the chain is below 10 KB."""
    calls = [f"ask{number}" for number in range(8)]
    async with temporal(tmp_path, book) as runs, working(runs):
        run_id = named("long")
        handle = await runs.enqueue(run_id, "Payer", " ".join(calls), session_id=run_id)
        sizes = []
        for call_id in calls:
            await is_status(runs, run_id, "paused")
            sizes.append(await history_bytes(handle))
            await runs.decide(run_id, call_id, True, by="ann")
            await is_status(runs, run_id, "paused" if call_id != calls[-1] else "done")
        assert (await handle.result())["status"] == "done"
        assert max(sizes) < 10_000
    assert lines(book) == calls


async def test_the_engines_own_update_decides_for_a_process_without_the_store(tmp_path: Path, book: str):
    async with temporal(tmp_path, book) as runs, working(runs):
        run_id = named("update")
        handle = await runs.enqueue(run_id, "Payer", "ask1", session_id=run_id)
        await is_status(runs, run_id, "paused")
        with pytest.raises(WorkflowUpdateFailedError) as refused:
            await handle.execute_update(AgentRun.decide, {"call_id": "other", "approve": True, "by": "ann"})
        assert isinstance(refused.value.cause.cause, ApplicationError)  # type: ignore[attr-defined]
        await handle.execute_update(
            AgentRun.decide, {"call_id": "ask1", "approve": False, "by": "ann", "reason": "No."}
        )
        assert (await handle.result())["status"] == "done"
        with pytest.raises((NotFoundError, RunStateError)):
            await runs.decide(run_id, "ask1", True, by="bob")
    assert lines(book) == []


async def test_a_deadline_cancels_a_run_that_waits_for_a_person(tmp_path: Path, book: str):
    async with temporal(tmp_path, book) as runs, working(runs):
        run_id = named("late")
        handle = await runs.enqueue(run_id, "Payer", "ask1", session_id=run_id, deadline_s=2.0)
        assert (await handle.result())["status"] == "cancelled"
        await is_status(runs, run_id, "cancelled")


async def test_a_workflow_that_is_cancelled_in_temporal_cancels_its_run(tmp_path: Path, book: str):
    """The worker stands in a call: it learns of the cancellation by its heartbeat."""
    async with temporal(tmp_path, book) as runs:
        standing = TemporalRuns(
            runs.client, [payer(book, stand="b")], runs.jobs.store, task_queue=runs.task_queue, run_config=config(),
            heartbeat_s_max=2.0,
        )  # fmt: skip
        async with working(standing):
            run_id = named("cancel")
            handle = await runs.enqueue(run_id, "Payer", "a b c", session_id=run_id)
            async with asyncio.timeout(60):
                while lines(book) != ["a", "b"]:
                    await asyncio.sleep(0.05)
            await handle.cancel()
            with pytest.raises(WorkflowFailureError):
                await handle.result()
            await is_status(runs, run_id, "cancelled")
    assert lines(book) == ["a", "b"]


async def test_a_run_that_fails_for_good_fails_its_workflow_with_a_short_error(tmp_path: Path, book: str):
    """G1a: an error is a part of the history, too."""
    talker: Any = Agent(name="Talker", model=ScriptedModel([]))
    async with temporal(tmp_path, book, talker, attempts_max=1) as runs, working(runs):
        handle = await runs.enqueue(named("fails"), "Talker", "x" * 100_000)
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert await history_bytes(handle) < 10_000


async def test_runs_are_found_by_their_attributes(tmp_path: Path, book: str):
    teller: Any = Agent(name="Teller", model=ScriptedModel([final("x" * 3_000)]))
    async with temporal(
        tmp_path, book, teller, search_attributes=True, link=lambda job: f"https://office.example/runs/{job.run_id}"
    ) as runs:
        for _ in range(2):
            await runs.register_search_attributes()
        session, run_id = named("talk"), named("found")
        async with working(runs):
            async with asyncio.timeout(60):  # the server's caches learn of new attributes after a while
                while True:
                    try:
                        handle = await runs.enqueue(run_id, "Teller", "Tell me.", session_id=session)
                        break
                    except RPCError:
                        await asyncio.sleep(0.2)
            assert (await handle.result())["output_left_out"]
            query = f"StandfastSession = '{session}' AND StandfastAgent = 'Teller' AND StandfastStatus = 'done'"
            async with asyncio.timeout(60):
                while not (found := [one.id async for one in runs.client.list_workflows(query)]):
                    await asyncio.sleep(0.1)
            assert found == [run_id]


async def test_workers_have_versions(tmp_path: Path, book: str):
    """A worker of a version takes runs when the version is the current one of its deployment."""
    version = WorkerDeploymentVersion(named("office"), "1")
    deployment = WorkerDeploymentConfig(
        version=version, use_worker_versioning=True, default_versioning_behavior=VersioningBehavior.AUTO_UPGRADE
    )
    async with temporal(tmp_path, book) as runs:
        task = asyncio.create_task(runs.work(tend_s=None, deployment_config=deployment))
        try:
            from temporalio.api.workflowservice.v1 import SetWorkerDeploymentCurrentVersionRequest as Current

            request = Current(
                namespace=runs.client.namespace, deployment_name=version.deployment_name, build_id="1", identity="test"
            )
            async with asyncio.timeout(60):
                while True:
                    try:
                        await runs.client.workflow_service.set_worker_deployment_current_version(request)
                        break
                    except RPCError:
                        await asyncio.sleep(0.2)
            handle = await runs.enqueue(named("versioned"), "Payer", "a")
            assert (await handle.result())["output"] == done("a")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_repeat_gives_the_first_workflow(tmp_path: Path, book: str):
    async with temporal(tmp_path, book) as runs:
        run_id = named("twice")
        handles = [await runs.enqueue(run_id, "Payer", "a", session_id=run_id) for _ in range(2)]
        async with working(runs):
            ends = [await handle.result() for handle in handles]
            assert await (await runs.enqueue(run_id, "Payer", "a", session_id=run_id)).result() == ends[0] == ends[1]
    assert lines(book) == ["a"]
