"""Descriptions of our engines for the kit, each on servers of the tests."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psycopg
from dbos import DBOS, DBOSClient, EnqueueOptions
from procrastinate import App, PsycopgConnector
from psycopg import sql

from standfast import Agent, RunConfig
from standfast.conformance.engines import Engine
from standfast.workers import RunJob
from standfast.workers.dbos_workflows import RunWorkflows
from standfast.workers.procrastinate_queue import RunQueue
from tests.helpers import servers

BEAT_S = 0.2
DEAD_AFTER_S = 3.0


class OnPostgres(Engine):
    """An engine in PostgreSQL, with the runs beside it. `own_server`: one that a check may kill."""

    def __init__(self, *, own_server: bool = False) -> None:
        self.own_server = own_server

    def setup(self) -> None:
        self._server = servers.PostgresServer() if self.own_server else None
        self.url = servers.postgres_url() if self._server is None else self._server.url
        with psycopg.connect(self.url, autocommit=True) as link:
            link.execute(sql.SQL("CREATE SCHEMA {}").format(sql.Identifier(self.unique)))

    def teardown(self) -> None:
        if self._server is not None:
            self._server.stop()
            return
        for schema in (self.unique, f"{self.unique}_dbos"):
            servers.drop_schema(self.url, schema)

    def child_state(self) -> dict[str, Any]:
        return {"url": self.url}

    @property
    def store_url(self) -> str:
        return f"{self.url}?schema={self.unique}"

    def _restart(self) -> None:
        assert self._server is not None
        self._server.kill()
        self._server.start()

    def _bytes(self, query: str, *values: Any) -> int:
        with psycopg.connect(self.url, autocommit=True) as link:
            return sum(len(str(row)) for row in link.execute(query, values).fetchall())


class Procrastinate(OnPostgres):
    name = "procrastinate"
    about = "procrastinate 3, with the run store in the same PostgreSQL"

    @asynccontextmanager
    async def open(self, agents: Sequence[Agent[Any]], run_config: RunConfig, *, works: bool) -> AsyncIterator[Any]:
        connector = PsycopgConnector(conninfo=self.url, kwargs={"options": f"-c search_path={self.unique}"}, min_size=1)
        queue = RunQueue(
            App(connector=connector), agents, self.store_url, run_config=run_config, max_turns=None,
            heartbeat_s_max=DEAD_AFTER_S, tend=None,
        )  # fmt: skip
        async with queue.app.open_async():
            if not works:
                await queue.app.schema_manager.apply_schema_async()
            yield queue
        await queue.jobs.close()

    async def work(self, client: Any, *, within_s: float) -> None:
        await client.work(
            within_s=within_s, concurrency=2, update_heartbeat_interval=BEAT_S, fetch_job_polling_interval=BEAT_S,
            abort_job_polling_interval=BEAT_S,
        )  # fmt: skip

    async def deliver(self, client: Any, job: RunJob, delivery: str) -> None:
        task = client.app.configure_task("standfast:run", queue=client.name, queueing_lock=f"run {delivery}")
        await task.defer_async(run_id=job.run_id, agent=job.agent, session_id=job.session_id)

    async def is_over(self, client: Any, run_id: str) -> bool:
        jobs = await client.app.job_manager.list_jobs_async(queueing_lock=f"run {run_id}")
        return not [job for job in jobs if job.status in ("todo", "doing")]

    async def log_bytes(self, client: Any, run_id: str) -> int:
        jobs, events = f"{self.unique}.procrastinate_jobs", f"{self.unique}.procrastinate_events"
        return self._bytes(f"SELECT * FROM {jobs} WHERE args->>'run_id' = %s", run_id) + self._bytes(
            f"SELECT * FROM {events} WHERE job_id IN (SELECT id FROM {jobs} WHERE args->>'run_id' = %s)", run_id
        )


class Dbos(OnPostgres):
    name = "DBOS"
    about = "DBOS 3, its system database and the run store in the same PostgreSQL"

    @asynccontextmanager
    async def open(self, agents: Sequence[Agent[Any]], run_config: RunConfig, *, works: bool) -> AsyncIterator[Any]:
        DBOS(
            config={
                "name": "kit",
                "system_database_url": self.url,
                "dbos_system_schema": f"{self.unique}_dbos",
                "executor_id": f"worker-{self.place}",
                "application_version": "1",
                "log_level": "CRITICAL",
                "notification_listener_polling_interval_sec": BEAT_S,
            }
        )
        made = RunWorkflows(
            agents, self.store_url, run_config=run_config, max_turns=None, tend=None, polling_s=BEAT_S,
            worker_concurrency=2,
        )  # fmt: skip
        if not works:
            DBOS.listen_queues([])
        await asyncio.to_thread(DBOS.launch)
        await made.start()
        try:
            yield made
        finally:
            if not works:
                await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
                await made.jobs.close()

    async def work(self, client: Any, *, within_s: float) -> None:
        stop = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()
        await client.stop(within_s=within_s)

    async def deliver(self, client: Any, job: RunJob, delivery: str) -> None:
        asker = DBOSClient(system_database_url=self.url, dbos_system_schema=f"{self.unique}_dbos")
        try:
            options: EnqueueOptions = {
                "workflow_name": "standfast.run", "queue_name": client.name, "workflow_id": delivery
            }  # fmt: skip
            await asker.enqueue_async(options, job.run_id, job.agent, job.session_id)
        finally:
            asker.destroy()

    async def is_over(self, client: Any, run_id: str) -> bool:
        found = await DBOS.list_workflows_async(workflow_id_prefix=run_id, load_input=False, load_output=False)
        mine = [one for one in found if one.workflow_id == run_id or one.workflow_id.startswith(f"{run_id}@")]
        return all(one.status not in ("PENDING", "ENQUEUED") for one in mine)

    async def log_bytes(self, client: Any, run_id: str) -> int:
        status = f"{self.unique}_dbos.workflow_status"
        return self._bytes(f"SELECT * FROM {status} WHERE workflow_uuid LIKE %s", f"{run_id}%")


class _Killable:
    """The engine and its store share a server that a check may kill: one restart is both."""

    def restart_server(self) -> None:
        self._restart()  # type: ignore[attr-defined]

    restart_store = restart_server


class ProcrastinateKillable(_Killable, Procrastinate):
    def __init__(self) -> None:
        super().__init__(own_server=True)


class DbosKillable(_Killable, Dbos):
    def __init__(self) -> None:
        super().__init__(own_server=True)
