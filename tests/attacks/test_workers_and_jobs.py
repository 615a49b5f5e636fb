"""Three workers on one store, killed, stopped past their leases, sent away: each effect once, or told as unknown.

Each worker starts its share of the jobs, again after each death as a queue would have it, and calls `Runner.recover`
over and over; a person approves from another process, without the agents. When a worker meets its fate is a number of
steps from a seed; what is asserted depends on no clock. `--worker-jobs=N` does N jobs, with up to N deaths; half of
that where the server dies, too.
"""

from __future__ import annotations

import asyncio
import random
import signal
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.job_checks import checked
from helpers.jobs import worker
from helpers.ledger_oracle import lines
from helpers.processes import Child, wait_until

from standfast import Runner, StandfastError, StoreError
from standfast._kits.operators.approvals import decide
from tests.helpers import servers
from tests.helpers.stores import SERVERS, SHARED, looked_at, place

TTL_S = 1.0
PATIENCE_S = 240.0
WORKERS = 3


class Workers:
    """Three places for workers: whoever dies in one is followed by the next, with the same jobs."""

    def __init__(self, where: str, book: Path, count: int, seed: int, *, endure: bool = False) -> None:
        chance = random.Random(seed)
        kinds = [kind for _ in range(count) for kind in ("kill", "stop", "kill", "term")][:count]
        self._fates = [(kind, chance.randint(2, 30)) for kind in kinds]
        self._told: dict[str, Any] = {"where": where, "book": str(book), "ttl_s": TTL_S, "endures": endure}
        self._shares = [[job for job in range(count) if job % WORKERS == number] for number in range(WORKERS)]
        self._stopped: list[tuple[float, Child]] = []
        self.met: Counter[str] = Counter()
        self.did: Counter[str] = Counter()
        self._children = [self._born(number) for number in range(WORKERS)]

    def _born(self, number: int) -> Child:
        kind, at = self._fates.pop(0) if self._fates else (None, 0)
        return Child(worker, jobs=self._shares[number], kind=kind, at=at, **self._told)

    def look_after(self) -> None:
        """Hear what the workers say, wake up whoever has slept for longer than its lease, replace whoever is gone."""
        while self._stopped and self._stopped[0][0] <= time.monotonic():
            _wake(self._stopped.pop(0)[1])
        for number, child in enumerate(self._children):
            while child.has_said():
                said = child.hear()
                if said is None or said[0] == "ended":
                    self._ended(number, child, said)
                    break
                if said == ("fate", "stop"):
                    self._stopped.append((time.monotonic() + 2 * TTL_S, child))
                self.met[said[1]] += 1

    def _ended(self, number: int, child: Child, said: Any) -> None:
        if said is not None:
            assert said[1] == "ok", said
            self.did.update(said[2])
        child.__exit__(None, None, None)
        self._children[number] = self._born(number)

    @property
    def are_awake(self) -> bool:
        """Whether nobody is stopped: one that wakes up when all is done must do nothing more either."""
        return not self._stopped

    def end(self) -> None:
        for child in self._children:
            with suppress(OSError):  # it has ended since
                child.say("leave")
        for child in self._children:
            while (said := self._heard(child)) is not None and said[0] != "ended":
                self.met[said[1]] += 1
            if said is not None:
                assert said[1] == "ok", said
                self.did.update(said[2])

    def _heard(self, child: Child) -> Any:
        def has_said() -> bool:
            _wake(child)  # it may meet its fate in this very moment
            return child.has_said()

        wait_until(has_said)
        return child.hear()

    def close(self) -> None:
        for child in self._children:
            child.__exit__(None, None, None)


def _wake(child: Child) -> None:
    with suppress(ProcessLookupError):
        child.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("kind", SHARED)
def test_three_workers_do_every_job_once_whoever_dies(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """C12, C13, C14, C15, C16."""
    count = request.config.getoption("worker_jobs")
    where, book, begun_at = place(kind, tmp_path), tmp_path / "book", time.monotonic()
    workers = Workers(where, book, count, seed=count)
    told = asyncio.run(_worked_off(where, workers, book, count))
    with capsys.disabled():
        print(f"\n{kind}: {count} jobs in {time.monotonic() - begun_at:.1f} s; {_counted(workers, told)}")
    assert told["once"]


@pytest.mark.restarts
@pytest.mark.parametrize("kind", SERVERS)
def test_three_workers_do_every_job_once_though_the_server_dies_too(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str]
) -> None:
    """The server is killed when half of the jobs are done, and started again (Redis: with every write in its file)."""
    count = max(3, request.config.getoption("worker_jobs") // 2)
    server: Any = servers.PostgresServer() if kind == "postgres" else servers.RedisServer(aof="always")
    try:
        where, book, begun_at = place(kind, tmp_path, server.url), tmp_path / "book", time.monotonic()
        workers = Workers(where, book, count, seed=count, endure=True)
        told = asyncio.run(_worked_off(where, workers, book, count, server))
    finally:
        server.stop()
    with capsys.disabled():
        errors = f"; the server was killed once, and {workers.did['store errors']} times workers were told"
        print(f"\n{kind}: {count} jobs in {time.monotonic() - begun_at:.1f} s; {_counted(workers, told)}{errors}")
    assert told["once"]


def _counted(workers: Workers, told: Counter[str]) -> str:
    met, did = workers.met, workers.did
    return (
        f"killed {met['kill']}, stopped {met['stop']}, sent away {met['term']}; effects once {told['once']}, unknown"
        f" {told['unknown']}; passes {did['passes']}, continued {did['continued']}"
    )


async def _worked_off(where: str, workers: Workers, book: Path, count: int, server: Any = None) -> Counter[str]:
    """How often effects are in the book once, or are said to be unknown, when every job has ended."""
    try:
        await _until_done(where, workers, count, server)
        await asyncio.to_thread(workers.end)
    finally:
        workers.close()
    told, wrong = await checked(partial(looked_at, where), lines(book), count)
    assert wrong == []
    return told


async def _until_done(where: str, workers: Workers, count: int, server: Any = None) -> None:
    session, may_fail = looked_at(where), server is not None
    store = session.run_store()
    # By itself: whoever was stopped may have the file's lock, and then the store answers nobody until it is woken.
    looking = asyncio.create_task(_look_after(workers))
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                if looking.done():
                    looking.result()
                await asyncio.sleep(0.02)
                try:
                    await _approve(store)
                    ended, _ = await Runner.list_runs(run_store=store, status="done", limit=1000)
                except StoreError:
                    if not may_fail:
                        raise
                    continue  # it is being started again
                if len(ended) >= count // 2 and server is not None:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start)
                    server = None
                if len(ended) == count and workers.are_awake:
                    return
    except TimeoutError:
        left = [one for one in (await store.list_runs(limit=1000))[0] if one.status != "done"]
        raise AssertionError(f"{len(left)} of {count} jobs have not ended: {left[:9]}; met: {workers.met}") from None
    finally:
        looking.cancel()
        await session.close()


async def _look_after(workers: Workers) -> None:
    while True:
        workers.look_after()
        await asyncio.sleep(0.02)


async def _approve(store: Any) -> None:
    """What an operator does in another process, without any agent."""
    paused, _ = await Runner.list_runs(run_store=store, status="paused", limit=1000)
    for run in paused:
        number = run.run_id.removeprefix("job-")
        try:
            await decide(store, run.run_id, f"{number}.pay", approve=True, by="an operator")
        except StandfastError:
            continue  # a worker came first: it is asked again, if it still waits
