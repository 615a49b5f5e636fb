"""Description of Temporal for the kit, on its development server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from standfast import Agent, RunConfig
from standfast.conformance.engines import Engine
from standfast.workers import RunJob
from standfast.workers.temporal_workflows import TemporalRuns
from tests.helpers import temporal_server


class Temporal(Engine):
    name = "Temporal"
    about = "Temporal's development server, temporalio 1.35, with the runs in an SQLite file"

    def setup(self) -> None:
        self._server = temporal_server.shared()
        self.address = self._server.address

    def child_state(self) -> dict[str, Any]:
        return {"address": self.address}

    def restart_server(self) -> None:
        self._server.kill()
        self._server.start()

    @asynccontextmanager
    async def open(self, agents: Sequence[Agent[Any]], run_config: RunConfig, *, works: bool) -> AsyncIterator[Any]:
        client = await Client.connect(self.address, lazy=False)
        runs = TemporalRuns(
            client, agents, self.store_url, task_queue=self.unique, run_config=run_config, max_turns=None,
            heartbeat_s_max=2.0, look_s=2.0,
        )  # fmt: skip
        yield runs
        await runs.jobs.close()

    async def work(self, client: Any, *, within_s: float) -> None:
        await client.work(within_s=within_s, tend_s=None, max_concurrent_activities=4)

    async def deliver(self, client: Any, job: RunJob, delivery: str) -> None:
        await client.start(job, workflow_id=delivery)

    async def is_over(self, client: Any, run_id: str) -> bool:
        try:
            found = await client.client.get_workflow_handle(run_id).describe()
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise OSError(str(error)) from error
            return True
        return found.status is not WorkflowExecutionStatus.RUNNING

    async def log_bytes(self, client: Any, run_id: str) -> int:
        found = await client.client.get_workflow_handle(run_id).describe()
        return int(found.raw_description.workflow_execution_info.history_size_bytes)
