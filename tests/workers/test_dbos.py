"""Runs as workflows of DBOS, its system database on a real PostgreSQL, with worker processes that are really killed.

The open package takes up a dead worker's workflows only when a worker of the same executor id is started: both are
tried, a worker that comes back and one that never does.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from dbos import DBOS
from sqlalchemy.exc import IntegrityError

from tests.helpers import servers
from tests.helpers.ledger_oracle import done, lines, says_unknown
from tests.helpers.processes import eventually
from tests.workers.payment_worker import workflows_of
from tests.workers.payment_workers import office
from tests.workers.waiting import PATIENCE_S, is_status, outputs

pytestmark = pytest.mark.postgres

ENGINE = "dbos"


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """Schemas of its own: what a worker process is told."""
    url, schema = servers.postgres_url(), f"q{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"CREATE SCHEMA {schema}")
    yield {"url": url, "schema": schema, "book": str(tmp_path / "book"), "executor": "one"}
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"DROP SCHEMA {schema} CASCADE")
        link.execute(f"DROP SCHEMA IF EXISTS {schema}_dbos CASCADE")


@asynccontextmanager
async def launched(told: dict[str, Any]) -> AsyncIterator[Any]:
    """The workflows as a web process has them: it enqueues and decides, and works none off."""
    made = None
    try:
        made = await asyncio.to_thread(workflows_of, told | {"executor": "web", "works": False})
        await made.start()
        yield made
    finally:
        # Also of one that failed to launch: there is one for each process, and the next test launches another.
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)
        if made is not None:
            await made.jobs.close()


@pytest.fixture
async def workflows(settings: dict[str, Any]) -> AsyncIterator[Any]:
    """Workflows whose system database is a server's."""
    async with launched(settings | {"cron": "0 0 1 1 *"}) as made:
        yield made


async def test_a_message_that_is_enqueued_twice_is_one_workflow(settings: dict[str, Any], workflows: Any):
    with office(ENGINE, settings):
        first = await workflows.enqueue("m1", "Payer", "a b", session_id="s")
        again = await workflows.enqueue("m1", "Payer", "a b", session_id="s")
        ended = await first.get_result(polling_interval_sec=0.1)
        assert ended == await again.get_result(polling_interval_sec=0.1)
        assert (ended["status"], ended["output"]) == ("done", f"{done('a')}; {done('b')}")
    assert lines(settings["book"]) == ["a", "b"]


async def test_a_worker_on_two_files_is_killed_comes_back_and_goes_on(tmp_path: Path):
    """The open package can keep its system database in SQLite, and so can we: one machine, and no server."""
    files = {"system": f"sqlite:///{tmp_path / 'dbos.db'}", "store": str(tmp_path / "talks.db")}
    told = {"url": "", "schema": "s", "book": str(tmp_path / "book"), "executor": "one", **files}
    if sys.version_info >= (3, 12) and sqlite3.sqlite_version_info < (3, 42):
        # DBOS asks SQLite in a way that this one does not know: docs/how-to/run-agents-from-a-queue.md
        with pytest.raises(IntegrityError, match="version_timestamp"):
            async with launched(told):
                pass
        return
    async with launched(told) as workflows:
        handle = await workflows.enqueue("m1", "Payer", "a b", session_id="s")
        with office(ENGINE, told, die="a") as victim:
            assert victim.ended() == -signal.SIGKILL
        with office(ENGINE, told):
            assert (await handle.get_result(polling_interval_sec=0.1))["status"] == "done"
        outcome = await outputs(workflows, "s")
    assert lines(told["book"]) == ["a", "b"]
    assert says_unknown(outcome["a"])
    assert outcome["b"] == done("b")


async def test_a_message_that_comes_while_a_run_is_under_way_is_the_next_run(settings: dict[str, Any], workflows: Any):
    """The session's lease keeps the second back until the first has ended."""
    with office(ENGINE, settings, sleep="a") as worker:
        await workflows.enqueue("m1", "Payer", "a b", session_id="s")
        worker.hears("paid a")
        second = await workflows.enqueue("m2", "Payer", "c", session_id="s")
        await asyncio.sleep(0.5)  # long enough for it to be taken; nothing depends on it
        worker.send(signal.SIGCONT)
        assert (await second.get_result(polling_interval_sec=0.1))["status"] == "done"
        await is_status(workflows, "m1", "done")
    assert lines(settings["book"]) == ["a", "b", "c"]
    assert list(await outputs(workflows, "s")) == ["a", "b", "c"]


async def test_a_message_that_comes_while_a_run_waits_is_answered_and_the_run_goes_on_behind_it(
    settings: dict[str, Any], workflows: Any
):
    """C15: what waits is shown to the next run as waiting, and its turn is stored behind what was said meanwhile."""
    with office(ENGINE, settings):
        await workflows.enqueue("m1", "Payer", "ask1", session_id="s")
        await is_status(workflows, "m1", "paused")
        await workflows.enqueue("m2", "Payer", "b", session_id="s")
        await is_status(workflows, "m2", "done")
        await workflows.decide("m1", "ask1", True, by="ann")
        await is_status(workflows, "m1", "done")
    assert lines(settings["book"]) == ["b", "ask1"]
    assert await outputs(workflows, "s") == {name: done(name) for name in ("b", "ask1")}


async def test_a_killed_worker_that_comes_back_goes_on_with_its_workflows(settings: dict[str, Any], workflows: Any):
    handle = await workflows.enqueue("m1", "Payer", "a b c", session_id="s")
    with office(ENGINE, settings, die="b") as victim:
        assert victim.ended() == -signal.SIGKILL
    with office(ENGINE, settings):
        assert (await handle.get_result(polling_interval_sec=0.1))["status"] == "done"
    assert lines(settings["book"]) == ["a", "b", "c"]
    told = await outputs(workflows, "s")
    assert says_unknown(told.pop("b"))
    assert told == {"a": done("a"), "c": done("c")}


async def test_the_runs_of_a_worker_that_never_comes_back_are_found_by_the_periodic_one(
    settings: dict[str, Any], workflows: Any
):
    """DBOS leaves its workflow pending; the run is done all the same, by another worker."""
    handle = await workflows.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, die="a") as victim:
        assert victim.ended() == -signal.SIGKILL
    with office(ENGINE, settings, executor="two", tend=True):
        await is_status(workflows, "m1", "done")
        assert (await handle.get_status()).status == "PENDING"
    assert lines(settings["book"]) == ["a", "b"]
    with office(ENGINE, settings):  # it comes back after all: it is told the result, and nothing runs
        assert (await handle.get_result(polling_interval_sec=0.1))["status"] == "done"
    assert lines(settings["book"]) == ["a", "b"]


async def test_sigterm_puts_what_does_not_end_in_time_back_into_the_queue(settings: dict[str, Any], workflows: Any):
    await workflows.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, stand="a", within_s=0.2) as stopped:
        stopped.hears("paid a")
        stopped.send(signal.SIGTERM)
        stopped.hears("stopped")
        assert stopped.ended() == 0
    with office(ENGINE, settings, executor="two"):
        await is_status(workflows, "m1", "done")
    assert lines(settings["book"]) == ["a", "b"]
    told = await outputs(workflows, "s")
    assert says_unknown(told["a"])
    assert told["b"] == done("b")


async def test_a_paused_run_ends_its_workflow_and_goes_on_when_somebody_decides_elsewhere(
    settings: dict[str, Any], workflows: Any
):
    with office(ENGINE, settings):
        handle = await workflows.enqueue("m1", "Payer", "a ask1 b", session_id="s")
        assert await handle.get_result(polling_interval_sec=0.1) == {
            "run_id": "m1",
            "status": "waits",
            "output": None,
            "waiting": ["ask1"],
        }
        await workflows.decide("m1", "ask1", True, by="ann")
        await is_status(workflows, "m1", "done")
    assert lines(settings["book"]) == ["a", "ask1", "b"]
    assert await workflows.cancel("m1", by="ann") is True  # it has ended


async def test_the_periodic_workflow_is_one_of_dbos(settings: dict[str, Any], workflows: Any):
    """Its clock starts it; here that is not waited for."""
    handle = await workflows.enqueue("m1", "Payer", "ask1", session_id="s")
    with office(ENGINE, settings):
        assert (await handle.get_result(polling_interval_sec=0.1))["status"] == "waits"
        await workflows.jobs.store.decide("m1", "ask1", True, by="ann")  # and nobody enqueues it
        triggered = await asyncio.to_thread(DBOS.trigger_schedule, "standfast.tend")
        await asyncio.to_thread(triggered.get_result, polling_interval_sec=0.1)
        await is_status(workflows, "m1", "done")
    assert lines(settings["book"]) == ["ask1"]


async def test_a_run_that_is_cancelled_while_it_waits_for_its_session_does_not_begin(
    settings: dict[str, Any], workflows: Any
):
    """Its worker is at it and nothing is saved yet: the store says that it has ended before it has begun."""
    session = workflows.jobs.store.session("s")
    lease = await session.lease(ttl_s=600.0, wait_s=PATIENCE_S)  # somebody outside of the queue is at the session
    handle = await workflows.enqueue("m1", "Payer", "a", session_id="s")
    with office(ENGINE, settings):
        await eventually(lambda: _has_status(handle, "PENDING"))
        assert await workflows.cancel("m1", by="ann") is True
        await lease.release()
        await workflows.enqueue("m2", "Payer", "b", session_id="s")
        await is_status(workflows, "m2", "done")
    assert lines(settings["book"]) == ["b"]
    assert (await workflows.jobs.store.run("m1")).status == "cancelled"
    assert await workflows.cancel("m1", by="ann") is True
    await session.close()


async def test_a_run_that_nobody_has_begun_is_cancelled_in_the_queue(settings: dict[str, Any], workflows: Any):
    await workflows.enqueue("m1", "Payer", "a", session_id="s")
    await workflows.enqueue("m2", "Payer", "b")
    assert [await workflows.cancel(run, by="ann") for run in ("m1", "m2", "never enqueued")] == [True] * 3
    with office(ENGINE, settings):
        await workflows.enqueue("m3", "Payer", "c", session_id="s")
        await is_status(workflows, "m3", "done")
    assert lines(settings["book"]) == ["c"]
    assert [(await workflows.jobs.store.run(run)).status for run in ("m1", "m2")] == ["cancelled"] * 2


async def test_a_cancelled_run_of_a_dead_worker_is_ended_by_the_next(settings: dict[str, Any], workflows: Any):
    """The run would be gone on with by whoever comes next: DBOS knows nothing of that."""
    await workflows.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, die="a") as victim:
        assert victim.ended() == -signal.SIGKILL
    assert await workflows.cancel("m1", by="ann") is False  # while the lease of the dead worker lives
    with office(ENGINE, settings, executor="two", tend=True):
        await workflows.enqueue("m2", "Payer", "c", session_id="s")
        await is_status(workflows, "m2", "done")
    assert lines(settings["book"]) == ["a", "c"]
    assert says_unknown((await outputs(workflows, "s"))["a"])


async def _has_status(handle: Any, wanted: str) -> bool:
    return bool((await handle.get_status()).status == wanted)
