"""Workers killed with SIGKILL at every step, on SQLite: the record of calls tells the truth, and the job gets done.

`--conformance-rounds=N` sets how many kills each sampled test makes; the test of every step makes them all.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from standfast import NotFoundError, Runner, RunStateError, SQLiteSession
from tests.helpers.model_texts import UNKNOWN_OUTCOME

from .job_worker import RUN_ID, Forker, Job, Steps, build, evidence, work
from .payment_app import kinds, outputs

TOGETHER = 4
# Workers that are alive at one time: enough to use two cores.
CALLS = {"c1": "look", "c2": "count", "c3": "pay", "c4": "helper"}
HISTORY = ["user", "call c1", "call c2", "output c1", "output c2", "call c3", "output c3", "call c4", "output c4"]


@pytest.fixture(scope="module")
def step_count(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How many places there are to die at in a calm run of the job."""
    job = Job(str(tmp_path_factory.mktemp("calm")))
    steps = Steps()
    result = asyncio.run(work(job, steps))
    assert result.final_output == "finished"
    return steps.count


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    made = Forker()
    yield made
    made.close()


def left_by(job: Job) -> tuple[dict[str, str] | None, list[Any]]:
    """What the saved run says of each of its calls, by idempotency key (None: no run to resume), and the history."""

    async def look() -> tuple[dict[str, str] | None, list[Any]]:
        session = SQLiteSession("conversation", job.database)
        records = None
        try:
            state = await Runner.load(build(job, Steps()), RUN_ID, session=session)
            records = {record.idempotency_key: record.status for record in state.get_calls()}
        except (NotFoundError, RunStateError):
            pass
        try:
            return records, await session.get_items()
        finally:
            session.close()

    return asyncio.run(look())


def assert_the_record_is_true(job: Job) -> None:
    """What the saved run says about its calls agrees with what was really done."""
    records, history = left_by(job)
    happened = Counter(line["key"] for line in evidence(job))
    if records is None:  # it ended, and is in its session; or nothing of it was saved, and then nothing has happened
        assert not happened or kinds(history)[-1] == "assistant"
        return
    for key, status in records.items():
        if status in ("intended", "waiting"):
            assert not happened[key], f"{key} is said not to have begun, and has run"
    for key in happened:
        known = records.get(key) or records.get(f"{RUN_ID}:c4")  # an inner call that is done with its run
        assert known in ("started", "done", "unknown"), f"{key} has run and is said to be {known}"


def assert_the_job_is_done(job: Job, outcome: dict[str, Any] | None) -> None:
    assert outcome is not None
    assert outcome["output"] == "finished"
    _, stored = left_by(job)
    assert kinds(stored) == [*HISTORY, "assistant"]
    happened = Counter(line["call"] for line in evidence(job))
    for call_id, text in outputs(stored).items():
        if call_id == "c4":
            assert text == "helped"
            assert happened["i1"] >= 1 or job.policy == "report"
        elif text == UNKNOWN_OUTCOME:
            assert job.policy == "report"
            assert happened[call_id] <= 1
        else:
            assert text == f"{CALLS[call_id]} done"
            assert happened[call_id] >= 1
    if job.policy == "report":
        assert all(happened[call_id] <= 1 for call_id in ("c1", "c3", "i1"))
    assert len({line["key"] for line in evidence(job)}) == len(happened)  # one key for each call, in every process


def killed_and_finished(forker: Forker, folder: Path, policy: str, dying_at: Sequence[int]) -> None:
    """Kill a worker at each of these steps, look at what it left, and let another finish; a few at a time."""
    for first in range(0, len(dying_at), TOGETHER):
        jobs = {}
        for number, die_at in enumerate(dying_at[first : first + TOGETHER], first):
            (folder / str(number)).mkdir()
            jobs[Job(str(folder / str(number)), policy)] = Job(str(folder / str(number)), policy, die_at)
        assert set(forker.run(list(jobs.values()))) == {None}
        for job in jobs:
            assert_the_record_is_true(job)
        for job, outcome in zip(jobs, forker.run(list(jobs)), strict=True):
            assert_the_job_is_done(job, outcome)


@pytest.mark.clause("C12", backend="runs")
def test_killed_at_every_step_the_record_is_true_and_the_job_is_done_once(
    step_count: int, forker: Forker, tmp_path: Path
):
    killed_and_finished(forker, tmp_path, "report", range(1, step_count + 1))


@pytest.mark.clause("C12", backend="runs")
@pytest.mark.parametrize("policy", ["rerun", "ask"])
def test_every_policy_gets_the_job_done(
    policy: str, step_count: int, forker: Forker, tmp_path: Path, request: pytest.FixtureRequest
):
    """`rerun` runs a call again that had begun; `ask` leaves it to a person, who says yes here."""
    rounds = max(1, request.config.getoption("conformance_rounds") // 2)
    chance = random.Random(policy)
    killed_and_finished(forker, tmp_path, policy, [chance.randint(1, step_count) for _ in range(rounds)])


@pytest.mark.clause("C12", backend="runs")
def test_killed_again_and_again_the_job_is_done_once(
    step_count: int, forker: Forker, tmp_path: Path, request: pytest.FixtureRequest
):
    """Whoever takes over dies too, until one does not."""
    rounds = max(1, request.config.getoption("conformance_rounds") // 8)
    chance = random.Random(0)
    for number in range(rounds):
        job = Job(str(tmp_path / str(number)))
        Path(job.folder).mkdir()
        for _ in range(4):
            (outcome,) = forker.run([Job(job.folder, die_at=chance.randint(1, step_count // 2))])
            assert_the_record_is_true(job)
            if outcome is not None:
                break
        assert_the_job_is_done(job, *forker.run([job]))


@pytest.mark.clause("C12", backend="runs")
def test_a_killed_run_is_resumed_by_its_id(step_count: int, forker: Forker, tmp_path: Path):
    """What is done is not done again, and nobody carried a blob."""
    found = 0
    for die_at in range(step_count // 4, step_count, step_count // 4):
        job = Job(str(tmp_path / str(die_at)))
        Path(job.folder).mkdir()
        assert forker.run([Job(job.folder, die_at=die_at)]) == [None]
        if left_by(job)[0] is not None:
            found += 1
            assert_the_job_is_done(job, *forker.run([Job(job.folder, by_id=True)]))
    assert found


def test_a_worker_that_is_not_killed_does_the_job_and_says_so(forker: Forker, tmp_path: Path):
    """The tests above can fail: they would notice a job that is not done."""
    job = Job(str(tmp_path))
    assert_the_job_is_done(job, *forker.run([job]))
    job.evidence.write_text(job.evidence.read_text() * 2)
    with pytest.raises(AssertionError):
        assert_the_job_is_done(job, {"output": "finished"})
