"""Runs in a queue of procrastinate, on a real PostgreSQL, with worker processes that are really killed and stopped.

Every effect happens once, or the history says that its outcome is not known.
"""

from __future__ import annotations

import asyncio
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from procrastinate.jobs import Job

from standfast import RunHandedOverError
from standfast._kits.workers.jobs import RunJob
from standfast.workers import procrastinate_queue
from tests.helpers import servers
from tests.helpers.ledger_oracle import done, lines, says_unknown
from tests.workers.payment_worker import QUEUE, queue_of
from tests.workers.payment_workers import office
from tests.workers.waiting import PATIENCE_S, is_status, outputs

pytestmark = pytest.mark.postgres

ENGINE = "procrastinate"


@pytest.fixture
async def settings(tmp_path: Path) -> AsyncIterator[dict[str, Any]]:
    """A schema of its own, with procrastinate's tables: what a worker process is told."""
    url, schema = servers.postgres_url(), f"q{uuid.uuid4().hex[:12]}"
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"CREATE SCHEMA {schema}")
    made = {"url": url, "schema": schema, "book": str(tmp_path / "book")}
    app = queue_of(made).app
    async with app.open_async():
        await app.schema_manager.apply_schema_async()
    yield made
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.fixture
async def queue(settings: dict[str, Any]) -> AsyncIterator[Any]:
    """The queue, as a web process has it: it puts runs in and decides, and works none off."""
    made = queue_of(settings)
    async with made.app.open_async():
        yield made
    await made.jobs.close()


async def jobs_end(queue: Any) -> list[str]:
    """Wait until the queue is empty: how its jobs have ended, in order."""
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        jobs = list(await queue.app.job_manager.list_jobs_async())
        if all(job.status not in ("todo", "doing") for job in jobs):
            return [job.status for job in sorted(jobs, key=lambda job: job.id)]
        assert asyncio.get_running_loop().time() < end, [job.status for job in jobs]
        await asyncio.sleep(0.05)


async def test_a_message_that_is_delivered_twice_is_worked_off_once(settings: dict[str, Any], queue: Any):
    with office(ENGINE, settings):
        assert await queue.enqueue("m1", "Payer", "a b", session_id="s") is not None
        await is_status(queue, "m1", "done")
        assert await queue.enqueue("m1", "Payer", "a b", session_id="s") is not None  # its first job is over
        assert await queue.enqueue("m2", "Payer", "c") is not None  # without a session
        assert await jobs_end(queue) == ["succeeded"] * 3
        assert await queue.enqueue("m2", "Payer", "c") is not None
        assert await jobs_end(queue) == ["succeeded"] * 4
    assert sorted(lines(settings["book"])) == ["a", "b", "c"]
    assert await outputs(queue, "s") == {"a": done("a"), "b": done("b")}


async def test_messages_that_come_while_a_run_is_under_way_are_the_next_runs_in_order(
    settings: dict[str, Any], queue: Any
):
    await queue.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, sleep="a") as worker:
        worker.hears("paid a")
        with office(ENGINE, settings):  # it has nothing else to do, and leaves the conversation to the other one
            for run_id, what in (("m2", "c"), ("m3", "d"), ("m2", "c")):  # one of them twice, as a client would retry
                await queue.enqueue(run_id, "Payer", what, session_id="s")
            worker.send(signal.SIGCONT)
            assert await jobs_end(queue) == ["succeeded"] * 3
    assert lines(settings["book"]) == ["a", "b", "c", "d"]
    assert list(await outputs(queue, "s")) == ["a", "b", "c", "d"]


async def test_a_message_that_comes_while_a_run_waits_is_answered_and_the_run_goes_on_behind_it(
    settings: dict[str, Any], queue: Any
):
    """C15: what waits is shown to the next run as waiting, and its turn is stored behind what was said meanwhile."""
    with office(ENGINE, settings):
        await queue.enqueue("m1", "Payer", "ask1", session_id="s")
        await is_status(queue, "m1", "paused")
        await queue.enqueue("m2", "Payer", "b", session_id="s")
        await is_status(queue, "m2", "done")
        await queue.decide("m1", "ask1", True, by="ann")
        await is_status(queue, "m1", "done")
    assert lines(settings["book"]) == ["b", "ask1"]
    assert await outputs(queue, "s") == {name: done(name) for name in ("b", "ask1")}


async def test_a_run_that_waits_in_the_queue_is_not_put_there_again(queue: Any):
    assert await queue.enqueue("m1", "Payer", "a", session_id="s") is not None
    assert await queue.enqueue("m1", "Payer", "a", session_id="s") is None


async def test_a_run_that_was_enqueued_again_while_a_dead_worker_had_it_leaves_no_job_behind(
    settings: dict[str, Any], queue: Any
):
    """G1e: the two jobs once held the session's lock and the run's name, each against the other."""
    await queue.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, die="a") as victim:
        assert victim.ended() == -signal.SIGKILL
    assert await queue.enqueue("m1", "Payer", "a b", session_id="s") is not None
    await queue.enqueue("m2", "Payer", "c", session_id="s")
    with office(ENGINE, settings, tend=True):
        assert sorted(await jobs_end(queue)) == ["failed", "succeeded", "succeeded"]
    assert lines(settings["book"]) == ["a", "b", "c"]


async def test_the_job_of_a_killed_worker_is_found_and_its_run_goes_on(settings: dict[str, Any], queue: Any):
    """The call in which it died is said to be unknown; what came before is kept, and what comes after is done."""
    await queue.enqueue("m1", "Payer", "a b c", session_id="s")
    await queue.enqueue("m2", "Payer", "d", session_id="s")  # the next message of the same conversation
    with office(ENGINE, settings, die="b") as victim:
        assert victim.ended() == -signal.SIGKILL
        with office(ENGINE, settings, tend=True):
            assert await jobs_end(queue) == ["succeeded", "succeeded"]
    assert lines(settings["book"]) == ["a", "b", "c", "d"]
    told = await outputs(queue, "s")
    assert says_unknown(told.pop("b"))
    assert told == {"a": done("a"), "c": done("c"), "d": done("d")}


async def test_a_worker_that_slept_past_its_lease_is_told_and_does_nothing_more(settings: dict[str, Any], queue: Any):
    """Its job was delivered to another meanwhile; awake again, it stands between a call and the next, and stops."""
    await queue.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, sleep="a") as sleeper:
        sleeper.hears("paid a")
        sleeper.send(signal.SIGSTOP)
        with office(ENGINE, settings, tend=True):
            assert await jobs_end(queue) == ["succeeded"]
        sleeper.send(signal.SIGCONT)
        sleeper.hears("woke a")
        sleeper.send(signal.SIGTERM)
        sleeper.hears("stopped")
    assert lines(settings["book"]) == ["a", "b"]
    told = await outputs(queue, "s")
    assert says_unknown(told["a"])
    assert told["b"] == done("b")


async def test_a_run_that_lost_its_job_is_found_by_the_periodic_one(settings: dict[str, Any], queue: Any):
    await queue.enqueue("m1", "Payer", "a b")
    with office(ENGINE, settings, die="a") as victim:
        assert victim.ended() == -signal.SIGKILL
    with psycopg.connect(settings["url"], autocommit=True) as link:
        link.execute(f"SET search_path TO {settings['schema']}")
        link.execute("DELETE FROM procrastinate_jobs")
    with office(ENGINE, settings, tend=True):
        view = await is_status(queue, "m1", "done")
    assert lines(settings["book"]) == ["a", "b"]
    assert says_unknown(view.output.split("; ")[0])


async def test_sigterm_hands_over_what_does_not_end_in_time(settings: dict[str, Any], queue: Any):
    """Within the time it was given, the worker is gone; the next one goes on with the run at once."""
    await queue.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, stand="a", within_s=0.2) as stopped:
        stopped.hears("paid a")
        stopped.send(signal.SIGTERM)
        stopped.hears("stopped")
        assert stopped.ended() == 0
    with office(ENGINE, settings):
        assert await jobs_end(queue) == ["succeeded"]
    assert lines(settings["book"]) == ["a", "b"]
    told = await outputs(queue, "s")
    assert says_unknown(told["a"])
    assert told["b"] == done("b")


@pytest.mark.parametrize("error", [asyncio.CancelledError(), RunHandedOverError("it stops", "Go on.", run_id="m1")])
def test_a_job_whose_worker_stops_is_delivered_at_once_however_often_it_was(tmp_path: Path, error: BaseException):
    queue = queue_of({"url": "postgresql://nobody", "schema": "s", "book": str(tmp_path / "book")})
    job = Job(id=1, queue=QUEUE, lock=None, queueing_lock=None, task_name="standfast:run", attempts=1000)
    decided = queue.app.tasks["standfast:run"].get_retry_exception(exception=error, job=job)
    assert decided is not None
    assert decided.retry_decision.retry_at is None
    assert queue.app.tasks["standfast:run"].get_retry_exception(exception=ConnectionError(), job=job) is None


async def test_a_paused_run_ends_its_job_and_goes_on_when_somebody_decides_elsewhere(
    settings: dict[str, Any], queue: Any
):
    with office(ENGINE, settings):
        await queue.enqueue("m1", "Payer", "a ask1 b", session_id="s")
        assert await jobs_end(queue) == ["succeeded"]  # it waits, and keeps no place of a worker
        view = await is_status(queue, "m1", "paused")
        await queue.decide("m1", view.waiting[0].call_id, True, by="ann")
        await is_status(queue, "m1", "done")
        assert await jobs_end(queue) == ["succeeded", "succeeded"]
    assert lines(settings["book"]) == ["a", "ask1", "b"]
    assert await outputs(queue, "s") == {name: done(name) for name in ("a", "ask1", "b")}


async def test_a_decision_whose_job_was_never_enqueued_is_found(settings: dict[str, Any], queue: Any):
    """Whoever decided died before the run was in the queue: it is ready, and the periodic job takes it."""
    with office(ENGINE, settings, tend=True):
        await queue.enqueue("m1", "Payer", "ask1", session_id="s")
        await is_status(queue, "m1", "paused")
        await jobs_end(queue)
        await queue.jobs.store.decide("m1", "ask1", False, by="ann", reason="too much")
        await is_status(queue, "m1", "done")
    assert lines(settings["book"]) == []
    assert await outputs(queue, "s") == {"ask1": "too much"}


async def test_a_run_at_work_is_cancelled_from_another_process(settings: dict[str, Any], queue: Any):
    await queue.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, stand="a") as worker:
        worker.hears("paid a")
        await queue.cancel("m1", by="ann")  # its worker is told, and one of the two gives the run up
        await is_status(queue, "m1", "cancelled")
        assert (await jobs_end(queue)) == ["aborted"]
        assert await queue.enqueue("m1", "Payer", "a b", session_id="s") is None  # put there again: it has ended
        assert (await jobs_end(queue)) == ["aborted"]
    assert lines(settings["book"]) == ["a"]
    assert await queue.cancel("m1", by="ann") is True


async def test_a_run_that_waits_in_the_queue_is_cancelled_there(settings: dict[str, Any], queue: Any):
    await queue.enqueue("m1", "Payer", "a", session_id="s")
    assert await queue.cancel("m1", by="ann") is True
    assert await jobs_end(queue) == ["cancelled"]
    assert lines(settings["book"]) == []


async def test_a_run_that_was_cancelled_in_the_queue_does_not_begin_when_its_message_comes_again(
    settings: dict[str, Any], queue: Any
):
    """The message is delivered twice, and the second one behind the cancellation."""
    await queue.enqueue("m1", "Payer", "a", session_id="s")
    assert await queue.cancel("m1", by="ann") is True
    assert await queue.enqueue("m1", "Payer", "a", session_id="s") is None
    await queue.enqueue("m2", "Payer", "b", session_id="s")
    with office(ENGINE, settings):
        await is_status(queue, "m2", "done")
    assert lines(settings["book"]) == ["b"]


async def test_a_run_that_was_cancelled_while_it_waited_for_its_session_does_not_begin_when_its_message_comes_again(
    settings: dict[str, Any], queue: Any
):
    """A worker had taken its job, and nothing of it had begun: its message is taken back, whoever has the session."""
    session = queue.jobs.store.session("s")
    lease = await session.lease(ttl_s=600.0, wait_s=PATIENCE_S)  # somebody outside of the queue is at the session
    await queue.enqueue("m1", "Payer", "a", session_id="s")
    with office(ENGINE, settings):
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while [job.status for job in await queue.app.job_manager.list_jobs_async()] != ["doing"]:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)
        assert await queue.cancel("m1", by="ann") is True
        assert await jobs_end(queue) == ["aborted"]
        await lease.release()
        assert await queue.enqueue("m1", "Payer", "a", session_id="s") is None
        await queue.enqueue("m2", "Payer", "b", session_id="s")
        await is_status(queue, "m2", "done")
    assert lines(settings["book"]) == ["b"]
    await session.close()


async def test_a_cancelled_run_of_a_dead_worker_is_not_gone_on_with(
    settings: dict[str, Any], queue: Any, monkeypatch: pytest.MonkeyPatch
):
    """Nobody tells a dead worker anything: the run is taken from it, and whoever looks for such runs finds it ended."""
    monkeypatch.setattr(procrastinate_queue, "GIVING_UP_S", 0.5)
    await queue.enqueue("m1", "Payer", "a b", session_id="s")
    with office(ENGINE, settings, die="a") as victim:
        assert victim.ended() == -signal.SIGKILL
        assert await queue.cancel("m1", by="ann") is False  # while the lease of the dead worker lives
    await queue.enqueue("m2", "Payer", "c", session_id="t")
    with office(ENGINE, settings, tend=True):
        await is_status(queue, "m1", "cancelled")
        await is_status(queue, "m2", "done")
        await jobs_end(queue)
    assert lines(settings["book"]) == ["a", "c"]
    assert says_unknown((await outputs(queue, "s"))["a"])


async def test_a_run_that_somebody_without_a_job_goes_on_with_is_cancelled(settings: dict[str, Any], queue: Any):
    """Whoever tends hears of no abortion: its worker meets the wish, and the next call does not begin."""
    await queue.enqueue("m1", "Payer", "ask1 b", session_id="s")
    with office(ENGINE, settings):
        await is_status(queue, "m1", "paused")
        await jobs_end(queue)
    await queue.jobs.store.decide("m1", "ask1", True, by="ann")  # and nobody enqueues it
    with office(ENGINE, settings, tend=True, sleep="ask1") as worker:
        worker.hears("paid ask1")
        assert await queue.cancel("m1", by="ann") is False
        worker.send(signal.SIGCONT)
        worker.hears("woke ask1")
        worker.send(signal.SIGTERM)
        worker.hears("stopped")
    assert lines(settings["book"]) == ["ask1"]
    told = (await outputs(queue, "s"))["ask1"]
    assert told == "ask1 done" or says_unknown(told)


async def test_a_run_that_waits_while_another_is_under_way_is_cancelled_by_the_next_worker(
    settings: dict[str, Any], queue: Any
):
    await queue.enqueue("m1", "Payer", "ask1", session_id="s")
    with office(ENGINE, settings):
        await is_status(queue, "m1", "paused")
        await jobs_end(queue)
    await queue.enqueue("m2", "Payer", "b", session_id="s")
    with office(ENGINE, settings, sleep="b") as worker:
        worker.hears("paid b")
        assert await queue.cancel("m1", by="ann") is False
        await is_status(queue, "m1", "ready")
        worker.send(signal.SIGCONT)
        await is_status(queue, "m2", "done")
        assert await queue.cancel("m1", by="ann") is True
        await is_status(queue, "m1", "cancelled")
    assert lines(settings["book"]) == ["b"]


async def test_the_periodic_job_is_one_of_the_queue(settings: dict[str, Any], queue: Any):
    """What a worker's clock puts into the queue every minute is done by whichever worker takes it."""
    await queue.enqueue("m1", "Payer", "ask1", session_id="s")
    other = queue_of(settings | {"cron": "* * * * *"})
    (periodic,) = other.app.periodic_registry.periodic_tasks.values()
    assert (periodic.task.name, periodic.cron) == ("standfast:tend", "* * * * *")
    assert periodic.configure_kwargs == {"queueing_lock": "standfast:tend"}  # a lock would outlive a worker that dies
    async with other.app.open_async():
        await other.app.run_worker_async(queues=[QUEUE], wait=False, install_signal_handlers=False)
        await other.jobs.store.decide("m1", "ask1", True, by="ann")
        await other.app.tasks["standfast:tend"].defer_async(timestamp=0)
        await other.app.run_worker_async(queues=[QUEUE], wait=False, install_signal_handlers=False)
    await other.jobs.close()
    assert (await is_status(queue, "m1", "done")).output == done("ask1")
    assert lines(settings["book"]) == ["ask1"]


async def test_a_worker_that_dies_at_the_periodic_job_does_not_stop_the_next_one(settings: dict[str, Any], queue: Any):
    with office(ENGINE, settings):
        await queue.enqueue("m1", "Payer", "ask1 a", session_id="s")
        await jobs_end(queue)
    await queue.jobs.store.decide("m1", "ask1", True, by="ann")  # and nobody enqueues it
    tend = queue.app.tasks["standfast:tend"].configure(queueing_lock="standfast:tend")
    await tend.defer_async(timestamp=0)
    with office(ENGINE, settings, die="ask1") as victim:
        assert victim.ended() == -signal.SIGKILL
    await tend.defer_async(timestamp=60)
    with office(ENGINE, settings, tend=True):
        await is_status(queue, "m1", "done")
        assert set(await jobs_end(queue)) == {"succeeded"}  # the dead worker's is gone
    assert lines(settings["book"]) == ["ask1", "a"]
    assert says_unknown((await outputs(queue, "s"))["ask1"])


async def test_a_run_that_was_cancelled_when_its_worker_had_died_before_it_began_stays_cancelled(
    settings: dict[str, Any], queue: Any
):
    """The queue forgets jobs: the store says that it has ended."""
    session = queue.jobs.store.session("s")
    lease = await session.lease(ttl_s=600.0, wait_s=PATIENCE_S)
    await queue.enqueue("m1", "Payer", "a", session_id="s")
    with office(ENGINE, settings) as victim:
        end = asyncio.get_running_loop().time() + PATIENCE_S
        while [job.status for job in await queue.app.job_manager.list_jobs_async()] != ["doing"]:
            assert asyncio.get_running_loop().time() < end
            await asyncio.sleep(0.05)
        victim.send(signal.SIGKILL)
        assert victim.ended() == -signal.SIGKILL
    assert await queue.cancel("m1", by="ann") is True
    await lease.release()
    assert (await queue.jobs.store.run("m1")).status == "cancelled"
    end_of_it = await queue.jobs.perform(RunJob("m1", "Payer", "s"))  # as another queue, or this one, delivers it
    assert end_of_it.status == "cancelled"
    assert lines(settings["book"]) == []
    await session.close()
