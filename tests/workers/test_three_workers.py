"""Three worker processes of each engine on one PostgreSQL, killed, stopped, sent away, and the server killed too.

The jobs are those of `tests/attacks/test_workers_and_jobs.py`: two calls at once, a payment that a person approves from
another process, a helper agent. Each effect happens once, or the history says that its outcome is not known; every job
ends. `--worker-jobs=N` does half as many, with up to as many deaths.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest
from dbos import DBOS
from helpers.job_checks import checked
from helpers.jobs import is_in_a_session, run_id_of

from tests.helpers import servers
from tests.helpers.ledger_oracle import lines
from tests.workers.payment_worker import LEASE_S, queue_of, workflows_of
from tests.workers.payment_workers import Office

pytestmark = pytest.mark.postgres

PATIENCE_S = 240.0
WORKERS = 3


class Offices:
    """Three places for workers: whoever dies in one is followed by the next."""

    def __init__(self, engine: str, settings: dict[str, Any], count: int) -> None:
        chance = random.Random(count)
        kinds = [kind for _ in range(count) for kind in ("kill", "stop", "term")][:count]
        self._fates: list[tuple[str | None, int]] = [(kind, chance.randint(2, 20)) for kind in kinds]
        self._engine, self._settings = engine, settings
        self._stopped: list[tuple[float, Office]] = []
        self.met: Counter[str] = Counter()
        self._offices = [self._opened(number) for number in range(WORKERS)]

    def _opened(self, number: int) -> Office:
        fate = self._fates.pop(0) if self._fates else (None, 0)
        more = {"fate": fate, "executor": f"w{number}", "tend": True, "endures": True, "within_s": 2.0}
        return Office(self._engine, self._settings | more)

    def look_after(self) -> None:
        """Hear what the workers say, wake up whoever has slept for longer than its lease, replace whoever is gone."""
        while self._stopped and self._stopped[0][0] <= time.monotonic():
            _wake(self._stopped.pop(0)[1])
        for number, office in enumerate(self._offices):
            for said in office.said():
                if said is None:
                    self.met["ended"] += 1
                    office.remove()
                    self._offices[number] = self._opened(number)
                    break
                self.met[said] += said in ("kill", "stop", "term")
                if said == "stop":
                    self._stopped.append((time.monotonic() + 2 * LEASE_S, office))

    @property
    def are_awake(self) -> bool:
        return not self._stopped

    def close(self) -> None:
        for office in self._offices:
            office.remove()


def _wake(office: Office) -> None:
    with suppress(ProcessLookupError):
        office.send(signal.SIGCONT)


@asynccontextmanager
async def opened(engine: str, settings: dict[str, Any]) -> AsyncIterator[Any]:
    """The engine as a web process has it: it enqueues and decides, and works nothing off."""
    if engine == "procrastinate":
        queue = queue_of(settings)
        async with queue.app.open_async():
            await queue.app.schema_manager.apply_schema_async()
            yield queue
        await queue.jobs.close()
        return
    flows = await asyncio.to_thread(workflows_of, settings | {"executor": "web", "works": False})
    await flows.start()
    yield flows
    await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
    await flows.jobs.close()


DYING = pytest.param(True, marks=pytest.mark.restarts, id="and the server")


@pytest.mark.parametrize("server_dies", [pytest.param(False, id="of the workers"), DYING])
@pytest.mark.parametrize("engine", ["procrastinate", "dbos"])
async def test_three_workers_do_every_job_once_whoever_dies(
    engine: str,
    server_dies: bool,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """C12, C13, C14, C15, C16, with a queue between; the server, if it dies, does so when half of the jobs are done."""
    count = max(3, request.config.getoption("worker_jobs") // 2)
    begun_at, server = time.monotonic(), servers.PostgresServer() if server_dies else None
    url = servers.postgres_url() if server is None else server.url
    schema, book = f"q{uuid.uuid4().hex[:12]}", tmp_path / "book"
    settings = {"url": url, "schema": schema, "book": str(book)}
    offices: Offices | None = None
    try:
        with psycopg.connect(url, autocommit=True) as link:
            link.execute(f"CREATE SCHEMA {schema}")
        async with opened(engine, settings) as made:
            for job in range(count):
                session_id = f"s{job}" if is_in_a_session(job) else None
                await made.enqueue(run_id_of(job), "worker", str(job), session_id=session_id)
            offices = Offices(engine, settings, count)
            await _until_done(made, offices, count, server)
            told, wrong = await checked(made.jobs.store.session, lines(book), count)
    finally:
        if offices is not None:
            offices.close()
        if server is not None:
            server.stop()
        else:
            for one in (schema, f"{schema}_dbos"):
                servers.drop_schema(url, one)
    with capsys.disabled():
        met = offices.met
        print(
            f"\n{engine}: {count} jobs in {time.monotonic() - begun_at:.1f} s; killed {met['kill']}, stopped"
            f" {met['stop']}, sent away {met['term']}, ended {met['ended']}, server killed: {server_dies}; effects"
            f" once {told['once']}, unknown {told['unknown']}"
        )
    assert wrong == []
    assert told["once"]


async def _until_done(made: Any, offices: Offices, count: int, server: Any) -> None:
    looking = asyncio.create_task(_look_after(offices))
    statuses: list[tuple[str, str]] = []
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                await asyncio.sleep(0.05)
                if looking.done():
                    looking.result()
                try:
                    runs = (await made.jobs.store.runs(limit=1000)).runs
                except Exception:
                    continue
                statuses = [(run.run_id, run.status) for run in runs]
                for run in runs:
                    if run.status == "paused":
                        with suppress(Exception):  # a worker came first, or the server is away: it is asked again
                            await made.decide(run.run_id, f"{run.run_id.removeprefix('job-')}.pay", True, by="ann")
                done = [run for run in runs if run.status == "done"]
                if len(done) >= count // 2 and server is not None:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                    server = None
                elif len(done) == count and offices.are_awake:
                    return
    except TimeoutError:
        left = [one for one in statuses if one[1] != "done"]
        raise AssertionError(
            f"of {count} jobs {len(statuses)} have begun, and not ended: {left}; {offices.met}"
        ) from None
    finally:
        looking.cancel()


async def _look_after(offices: Offices) -> None:
    while True:
        offices.look_after()
        await asyncio.sleep(0.02)
