"""Going on with one run never closes another: every pair of unfinished runs, in every way of going on, in both orders.

C15: a person waits for the answer of each. Only a new message settles, and only where its sender asks for that.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from service.settings import Settings
from service.worker import Worker

from standfast import RunClaimedError, Runner, RunStateError, SQLiteSession, open_store
from standfast.workers import RunJob, RunJobs
from tests.helpers import servers
from tests.helpers.ledger_oracle import done, lines, outputs, says_unknown, wrongs
from tests.workers.pairs import PAIRS, RUNS, clerk, copied, left_in, session_of

PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return left_in(tmp_path_factory.mktemp("left"))


class Office:
    """A worker's agent, store and book, and the order in which it goes on with the runs of each session."""

    def __init__(self, folder: Path, left: tuple[Path, Path], order: Sequence[int]) -> None:
        self.path, self.book = copied(left[0], folder / "talks.db"), folder / "book"
        shutil.copy(left[1], self.book)
        self.agent = clerk(self.book)
        self.runs = [run_id for number in order for run_id in RUNS if run_id.endswith(f".{number}")]

    def session(self, session_id: str) -> Any:
        return SQLiteSession(session_id, self.path)

    async def decide(self) -> None:
        async with open_store(self.path) as store:
            for run_id, state in RUNS.items():
                if state in ("decided", "rejected"):
                    await store.decide(run_id, run_id, state == "decided", by="ann")

    async def check(self) -> None:
        """Every run has ended with its own answer; every effect is in the history once, or said to be unknown."""
        done_lines = lines(self.book)
        async with open_store(self.path) as store:
            views = {run_id: await store.run(run_id) for run_id in RUNS}
        assert {run_id: view.status for run_id, view in views.items()} == dict.fromkeys(RUNS, "done")
        for session_id in PAIRS:
            session = self.session(session_id)
            items = await session.get_items()
            await session.close()
            own = [run_id for run_id in RUNS if session_of(run_id) == session_id]
            assert not wrongs([one for one in done_lines if one in own], items)
            assert sorted(item["content"] for item in items if item.get("role") == "user") == own
            for run_id in own:
                (output,) = outputs(items)[run_id]
                assert f"{run_id}: {output}" in str(views[run_id].output)
                assert {
                    "decided": output == done(run_id),
                    "rejected": output != done(run_id) and run_id not in done_lines,
                    "gone": says_unknown(output),
                    "handed over": output == done(run_id),
                }[RUNS[run_id]]


async def resume(office: Office) -> None:
    await office.decide()
    for run_id in office.runs:
        session = office.session(session_id := session_of(run_id))
        try:
            await Runner.resume(office.agent, run_id, session=session)
        except RunStateError:
            # It was let go first by the other run of its session, which was resumed before.
            assert (await Runner.result(office.agent, run_id, session=session)).final_output, session_id
        await session.close()


async def resume_streamed_all_at_once(office: Office) -> None:
    await office.decide()

    async def one(run_id: str) -> None:
        session = office.session(session_of(run_id))
        try:
            result = await Runner.resume_streamed(office.agent, run_id, session=session)
            async for _ in result.stream_events():
                pass
        except (RunStateError, RunClaimedError):
            pass  # the other one has it, or had it
        await session.close()

    await asyncio.gather(*map(one, office.runs))


async def recover(office: Office) -> None:
    await office.decide()
    report = await Runner.recover(office.agent, sessions=office.session)
    assert report.counts == {"continued": len(RUNS)}


async def jobs(office: Office) -> None:
    await office.decide()
    async with RunJobs([office.agent], office.path) as made:
        for run_id in office.runs:
            assert (await made.perform(RunJob(run_id, "Clerk", session_of(run_id)))).status == "done"


async def dbos(office: Office) -> None:
    # In a loop of its own: DBOS gives the loop its own executor, and ends that with itself.
    await asyncio.to_thread(asyncio.run, _dbos(office))


async def _dbos(office: Office) -> None:
    from dbos import DBOS

    from standfast.workers.dbos_workflows import RunWorkflows

    await office.decide()
    # It keeps the standard error of the test that launched it first in this process, which pytest has closed.
    logging.getLogger("dbos").handlers.clear()
    # Not on SQLite: what DBOS asks it needs a newer one than some Pythons have.
    url, schema = servers.postgres_url(), f"q{uuid.uuid4().hex[:12]}"
    system = {"system_database_url": url, "dbos_system_schema": schema}
    DBOS(config={"name": "office", **system, "application_version": "1", "log_level": "ERROR"})
    made = RunWorkflows([office.agent], office.path, tend=None, polling_s=0.05)
    try:
        await asyncio.to_thread(DBOS.launch)
        await made.start()
        handles = [await made.enqueue(one, "Clerk", session_id=session_of(one)) for one in office.runs]
        for handle in handles:
            assert (await asyncio.wait_for(handle.get_result(), PATIENCE_S))["status"] == "done"
    finally:
        await made.jobs.close()
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
        servers.drop_schema(url, schema)


async def procrastinate(office: Office) -> None:
    from procrastinate import App, PsycopgConnector

    from standfast.workers.procrastinate_queue import RunQueue

    await office.decide()
    url, schema = servers.postgres_url(), f"q{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"CREATE SCHEMA {schema}")
    connector = PsycopgConnector(conninfo=url, kwargs={"options": f"-c search_path={schema}"}, min_size=1)
    queue = RunQueue(App(connector=connector), [office.agent], office.path, tend=None)
    try:
        async with queue.app.open_async():
            await queue.app.schema_manager.apply_schema_async()
            for run_id in office.runs:
                await queue.enqueue(run_id, "Clerk", session_id=session_of(run_id))
            await queue.app.run_worker_async(queues=[queue.name], wait=False, concurrency=4)
            ended = list(await queue.app.job_manager.list_jobs_async())
            assert {job.status for job in ended} == {"succeeded"}
    finally:
        await queue.jobs.close()
        servers.drop_schema(url, schema)


async def service(office: Office) -> None:
    """People decide in one order or the other, while the worker takes up what others have left."""
    worker = Worker(Settings(store=f"sqlite:///{office.path}", tend_s=0.05), office.agent)
    waiting = {one: RUNS[one] == "decided" for one in office.runs if RUNS[one] in ("decided", "rejected")}
    for run_id, approve in waiting.items():
        call = (await worker.store.run(run_id)).waiting[0]
        await worker.decide(
            run_id, run_id, approve=approve, arguments=call.arguments,
            prepared_arguments=call.prepared_arguments, by="ann", reason=None,
        )  # fmt: skip
    worker.start()
    try:
        async with asyncio.timeout(PATIENCE_S):
            for run_id in office.runs:
                while (await worker.store.run(run_id)).status not in ("done", "failed", "cancelled"):
                    await asyncio.sleep(0.02)
    finally:
        await worker.close()


WAYS = [resume, resume_streamed_all_at_once, recover, jobs, service]
ON_A_SERVER = [pytest.param(way, marks=pytest.mark.postgres) for way in (dbos, procrastinate)]


@pytest.mark.parametrize("order", [(1, 2), (2, 1)], ids=["the older first", "the younger first"])
@pytest.mark.parametrize("way", [*WAYS, *ON_A_SERVER])
async def test_both_runs_end_with_an_answer(way: Any, order: Sequence[int], left: Any, tmp_path: Path) -> None:
    """C15."""
    office = Office(tmp_path, left, order)
    await way(office)
    await office.check()
