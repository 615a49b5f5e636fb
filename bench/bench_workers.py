"""Runs as jobs of procrastinate and of DBOS, beside an empty job and the SDK in the same engine, on a PostgreSQL.

One worker in this process, ten jobs at once, each a turn of the same model on a session of its own in that PostgreSQL;
the SDK's is its SQLAlchemySession. What is printed: jobs a second, CPU of this process for each job (the server's is
not in it), and how many times an empty job's. The SDK's job keeps a history and nothing of the run: delivered again, it
says and does everything again. `./dev bench bench_workers 200` works off 200 jobs of each kind; `--recovery` also
measures the seconds from `kill -9` to the next effect, which the settings decide, not the machine.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

import agents as sdk
import psycopg
from agents.extensions.memory import SQLAlchemySession as SDKSession
from bench_runs import fake_model, text
from dbos import DBOS
from procrastinate import App, PsycopgConnector
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

import standfast
from standfast.workers.dbos_workflows import RunWorkflows
from standfast.workers.procrastinate_queue import RunQueue
from tests.helpers import servers
from tests.helpers.ledger_oracle import lines
from tests.workers.payment_worker import queue_of, workflows_of
from tests.workers.payment_workers import office

AT_ONCE = 10


def clerk(library: Any) -> Any:
    """The same agent of either library."""
    return library.Agent(name="Clerk", model=fake_model(library, [lambda: text("done")]))


class SDKRuns:
    """What a job of the SDK does: one run on a session in the same PostgreSQL."""

    def __init__(self, url: str, schema: str) -> None:
        address = url.replace("postgresql://", "postgresql+psycopg://", 1)
        self.engine: AsyncEngine = create_async_engine(
            address, connect_args={"options": f"-c search_path={schema}"}, pool_size=AT_ONCE
        )
        self._agent, self._config = clerk(sdk), sdk.RunConfig(tracing_disabled=True)

    async def begin(self) -> None:
        """Make its tables, once."""
        await SDKSession("-", engine=self.engine, create_tables=True).get_items()

    async def run(self, session_id: str) -> str:
        session = SDKSession(session_id, engine=self.engine)
        result = await sdk.Runner.run(self._agent, "hello", session=session, run_config=self._config)
        return str(result.final_output)


def schema() -> str:
    name = f"b{uuid.uuid4().hex[:12]}"
    with psycopg.connect(servers.postgres_url(), autocommit=True) as link:
        link.execute(f"CREATE SCHEMA {name}")
    return name


async def measured(title: str, count: int, work: Callable[[], Awaitable[Any]], empty_s: float | None = None) -> float:
    """CPU seconds of one job."""
    started, cpu = time.perf_counter(), time.process_time()
    await work()
    took, each = time.perf_counter() - started, (time.process_time() - cpu) / count
    beside = "" if empty_s is None else f"   {each / empty_s:4.1f} x an empty job's"
    print(f"{title:<36} {count / took:7.0f} jobs/s   {each * 1000:6.2f} ms CPU a job{beside}", flush=True)
    return each


async def procrastinate(count: int) -> None:
    name, url = schema(), servers.postgres_url()
    app = App(connector=PsycopgConnector(conninfo=url, kwargs={"options": f"-c search_path={name}"}))
    queue = RunQueue(app, [clerk(standfast)], f"{url}?schema={name}", tend=None)
    runs = SDKRuns(url, name)

    @app.task(queue="empty")
    async def empty(number: int) -> None:
        pass

    @app.task(queue="sdk")
    async def sdk_run(session_id: str) -> str:
        return await runs.run(session_id)

    async with app.open_async():
        await app.schema_manager.apply_schema_async()
        await runs.begin()

        def worked_off(which: str) -> Callable[[], Awaitable[Any]]:
            return lambda: app.run_worker_async(
                queues=[which], concurrency=AT_ONCE, wait=False, listen_notify=False, install_signal_handlers=False
            )

        for round_ in ("warm", "first"):
            number = count if round_ == "first" else AT_ONCE
            for one in range(number):
                await empty.defer_async(number=one)
                await sdk_run.defer_async(session_id=f"{round_}-{one}")
                await queue.enqueue(f"{round_}-{one}", "Clerk", "hello", session_id=f"{round_}-{one}")
            if round_ == "warm":
                for which in ("empty", queue.name, "sdk"):
                    await worked_off(which)()
        base = await measured("procrastinate, an empty job", count, worked_off("empty"))
        await measured("procrastinate, a run of one turn", count, worked_off(queue.name), base)
        await measured("procrastinate, the SDK's run", count, worked_off("sdk"), base)
    await queue.jobs.close()
    await runs.engine.dispose()


async def dbos(count: int) -> None:
    name, url = schema(), servers.postgres_url()
    DBOS(config={"name": "bench", "system_database_url": url, "dbos_system_schema": name, "log_level": "ERROR"})
    flows = RunWorkflows(
        [clerk(standfast)], f"{url}?schema={name}_runs", worker_concurrency=AT_ONCE, tend=None, polling_s=0.05
    )
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"CREATE SCHEMA {name}_runs")

    runs = SDKRuns(url, f"{name}_runs")

    @DBOS.workflow(name="empty")
    async def empty(number: int) -> None:
        pass

    @DBOS.workflow(name="sdk")
    async def sdk_run(session_id: str) -> str:
        return await runs.run(session_id)

    await asyncio.to_thread(DBOS.launch)
    await flows.start()

    async def all_of(kind: str, number: int) -> None:
        handles = []
        for one in range(number):
            if kind == "empty":
                handles.append(await DBOS.enqueue_workflow_async(flows.name, empty, one))
            elif kind.startswith("sdk"):
                handles.append(await DBOS.enqueue_workflow_async(flows.name, sdk_run, f"{kind}-{one}"))
            else:
                handles.append(await flows.enqueue(f"{kind}-{one}", "Clerk", "hello", session_id=f"{kind}-{one}"))
        for handle in handles:
            await handle.get_result(polling_interval_sec=0.05)

    await all_of("empty", AT_ONCE)
    await all_of("warm", AT_ONCE)
    await runs.begin()
    await all_of("sdk warm", AT_ONCE)
    base = await measured("DBOS, an empty workflow *", count, lambda: all_of("empty", count))
    await measured("DBOS, a run of one turn *", count, lambda: all_of("run", count), base)
    await measured("DBOS, the SDK's run *", count, lambda: all_of("sdk", count), base)
    print("* with putting it into the queue and fetching its result, which for DBOS cannot be told apart")
    await flows.stop(within_s=1)
    await runs.engine.dispose()


async def recovery(engine: str, of: Callable[[dict[str, Any]], Any], folder: Path) -> None:
    """Seconds from a worker's death in a tool to the next effect, by another worker."""
    name, url = schema(), servers.postgres_url()
    settings = {"url": url, "schema": name, "book": str(folder / engine), "executor": "one"}
    if engine == "procrastinate":
        app = of(settings).app
        async with app.open_async():
            await app.schema_manager.apply_schema_async()
            await (
                app.tasks["standfast:run"]
                .configure(lock="s", queueing_lock="s")
                .defer_async(run_id="m1", agent="Payer", input="a b", session_id="s")
            )
    else:
        made = of(settings | {"executor": "web", "works": False})
        await made.start()
        await made.enqueue("m1", "Payer", "a b", session_id="s")
    with office(engine, settings, die="a") as victim:
        assert victim.ended() == -signal.SIGKILL
        died = time.perf_counter()
        with office(engine, settings, executor="two", tend=True) as other:
            other.hears("paid b")
            print(f"{engine}: {time.perf_counter() - died:.1f} s from kill -9 to the next effect", flush=True)
    assert lines(settings["book"]) == ["a", "b"]


async def main() -> None:
    logging.disable(logging.WARNING)
    count = next((int(word) for word in sys.argv[1:] if word.isdecimal()), 200)
    await procrastinate(count)
    await dbos(count)
    if "--recovery" in sys.argv:
        print(
            "a lease of 2 s, dead after 3 s without a heartbeat, tended every 0.2 s, the start of a process included:"
        )
        with tempfile.TemporaryDirectory() as folder:
            await recovery("procrastinate", queue_of, Path(folder))
            await recovery("dbos", workflows_of, Path(folder))
            await asyncio.to_thread(DBOS.destroy)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    finally:
        servers.stop_all()
