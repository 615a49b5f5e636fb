"""One job, delivered in every way a queue can think of, on SQLite: what any adapter relies on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from standfast import (
    Agent,
    ApprovalError,
    InputGuardrailTripwireTriggered,
    InvalidSettingError,
    MaxTurnsExceeded,
    ModelBehaviorError,
    NotFoundError,
    OutcomeUnknownError,
    RunClaimedError,
    RunConfig,
    RunStateError,
    SessionBusyError,
    SessionConflictError,
    StoreError,
    ToolContext,
    function_tool,
    open_store,
)
from standfast.testing import AnsweringModel, ModelStep, ScriptedModel, assistant_message, final, function_call
from standfast.workers import JobEnd, RunJob, RunJobs, again_after_s
from tests.helpers.ledger_oracle import done, lines
from tests.workers.payment_worker import payer


@pytest.fixture
def book(tmp_path: Path) -> str:
    return str(tmp_path / "book")


@pytest.fixture
async def jobs(tmp_path: Path, book: str) -> AsyncIterator[RunJobs]:
    async with RunJobs([payer(book)], tmp_path / "talks.db") as made:
        yield made


@pytest.mark.parametrize("session_id", ["s", None])
async def test_a_job_that_is_delivered_again_gives_its_first_end(jobs: RunJobs, book: str, session_id: str | None):
    job = RunJob("m1", "Payer", "a b", session_id)
    ends = [await jobs.perform(job) for _ in range(3)]
    assert ends == [JobEnd("m1", "done", f"{done('a')}; {done('b')}")] * 3
    assert lines(book) == ["a", "b"]


async def test_an_output_of_a_type_is_json_every_time(tmp_path: Path):
    class Bill(BaseModel):
        cents: int

    clerk: Any = Agent(name="Clerk", output_type=Bill, model=ScriptedModel([final('{"cents": 5}')]))
    async with RunJobs([clerk], tmp_path / "talks.db") as jobs:
        ends = [await jobs.perform(RunJob("m1", "Clerk", "how much?", "s")) for _ in range(2)]
    assert [end.as_json() for end in ends] == [
        {"run_id": "m1", "status": "done", "output": {"cents": 5}, "waiting": []}
    ] * 2


async def test_a_decision_that_is_delivered_again_does_not_approve_values_that_were_not_shown(tmp_path: Path):
    """C16: the next release's tool would get other values, and asks again about the same call."""
    paid: list[Any] = []

    def clerk(kind: Any) -> Agent[Any]:
        async def pay(euros: Any) -> str:
            paid.append(euros)
            return "paid"

        pay.__annotations__["euros"] = kind
        steps = [[function_call("pay", '{"euros": "5"}', call_id="c1")]] if kind is int else []
        return Agent(name="Clerk", tools=[function_tool(pay, needs_approval=True)], model=ScriptedModel(steps))

    shown: Any = {"arguments": '{"euros": "5"}', "prepared_arguments": '{"euros": 5}'}
    async with RunJobs([clerk(int)], tmp_path / "talks.db") as jobs:
        await jobs.perform(RunJob("m1", "Clerk", "pay", "s"))
        going_on = await jobs.decide("m1", "c1", True, by="ann", **shown)
    assert going_on is not None
    async with RunJobs([clerk(float)], tmp_path / "talks.db") as jobs:
        assert (await jobs.perform(going_on)).waiting == ("c1",)
        with pytest.raises(ApprovalError, match="not the one that was shown"):
            await jobs.decide("m1", "c1", True, by="ann", **shown)
        with pytest.raises(ApprovalError, match="not the one that was shown"):
            await jobs.decide("m1", "c1", True, by="ann", prepared_arguments=shown["prepared_arguments"])
        assert await jobs.decide("m1", "c1", True, by="ann", prepared_arguments='{"euros": 5.0}') is not None
    assert paid == []


@pytest.mark.parametrize("session_id", ["s", None])
@pytest.mark.parametrize("approve", [True, False])
async def test_a_run_waits_without_its_job_until_all_is_decided(
    jobs: RunJobs, book: str, session_id: str | None, approve: bool
):
    job = RunJob("m1", "Payer", "ask1", session_id)
    for _ in range(2):
        assert await jobs.perform(job) == JobEnd("m1", "waits", waiting=("ask1",))
    going_on = await jobs.decide("m1", "ask1", approve, by="ann", reason=None if approve else "too much")
    assert going_on == RunJob("m1", "Payer", None, session_id)
    end = await jobs.perform(going_on)
    assert end == JobEnd("m1", "done", done("ask1") if approve else "too much")
    assert await jobs.perform(job) == await jobs.perform(going_on) == end  # either may be delivered late
    assert lines(book) == (["ask1"] if approve else [])


async def test_while_another_call_waits_there_is_nothing_to_enqueue(tmp_path: Path):
    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    replies = [[function_call("pay", {}, call_id="a"), function_call("pay", {}, call_id="b")], final("both")]
    clerk: Any = Agent(name="Clerk", tools=[pay], model=ScriptedModel(replies))
    async with RunJobs([clerk], tmp_path / "talks.db") as jobs:
        assert (await jobs.perform(RunJob("m1", "Clerk", "pay twice", "s"))).waiting == ("a", "b")
        assert await jobs.decide("m1", "a", True, by="ann") is None
        last = await jobs.decide("m1", "b", True, by="ann")
        assert last is not None
        assert (await jobs.perform(last)).output == "both"


async def test_a_cancelled_run_says_so_to_every_later_delivery(jobs: RunJobs):
    job = RunJob("m1", "Payer", "ask1", "s")
    await jobs.perform(job)
    await jobs.store.cancel("m1", by="ann")
    assert [(await jobs.perform(job)).status, (await jobs.perform(job)).status] == ["cancelled", "cancelled"]


async def test_a_job_for_an_agent_that_this_worker_lacks_is_left_for_another(jobs: RunJobs):
    with pytest.raises(NotFoundError, match="has no agent 'Newer'") as caught:
        await jobs.perform(RunJob("m1", "Newer", "a", "s"))
    assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) == 1


async def test_a_run_whose_tool_an_older_worker_lacks_is_left_for_another(jobs: RunJobs, tmp_path: Path, book: str):
    job = RunJob("m1", "Payer", "ask1", "s")
    await jobs.perform(job)
    going_on = await jobs.decide("m1", "ask1", True, by="ann")
    assert going_on is not None
    older: Any = Agent(name="Payer", model=ScriptedModel([final("never asked")]))
    async with RunJobs([older], tmp_path / "talks.db") as old:
        with pytest.raises(ModelBehaviorError) as caught:
            await old.perform(going_on)
        assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) is not None
    assert (await jobs.perform(going_on)).output == done("ask1")
    assert lines(book) == ["ask1"]


async def test_a_torn_run_goes_on_with_the_next_delivery(tmp_path: Path, book: str):
    """What failed is asked again; what was done is not done again."""
    steps = [
        ModelStep(output=[function_call("pay", {}, call_id="a")]),
        ModelStep(error=ConnectionError("the provider is away")),
        ModelStep(output=[assistant_message("paid")]),
    ]
    agent = payer(book)
    agent.model = ScriptedModel(steps)
    async with RunJobs([agent], tmp_path / "talks.db") as jobs:
        job = RunJob("m1", "Payer", "pay", "s")
        with pytest.raises(ConnectionError) as caught:
            await jobs.perform(job)
        assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) == 1
        assert await jobs.perform(job) == JobEnd("m1", "done", "paid")
    assert lines(book) == ["a"]


async def test_one_id_with_another_input_fails_for_good(jobs: RunJobs):
    await jobs.perform(RunJob("m1", "Payer", "ask1", "s"))
    with pytest.raises(SessionConflictError) as caught:
        await jobs.perform(RunJob("m1", "Payer", "another text", "s"))
    assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) is None


async def test_a_store_that_cannot_be_reached_is_tried_again():
    clerk: Any = Agent(name="Clerk", model=ScriptedModel([]))
    store = open_store("redis://127.0.0.1:1/0", timeout_s=0.2)  # nobody listens there
    async with RunJobs([clerk], store) as jobs:
        with pytest.raises(StoreError) as caught:
            await jobs.perform(RunJob("m1", "Clerk", "hello", "s"))
        assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) == 1
    await store.close()


async def test_a_store_that_was_handed_in_stays_open(tmp_path: Path, book: str):
    async with open_store(tmp_path / "talks.db", create=True) as store:
        async with RunJobs([payer(book)], store) as jobs:
            await jobs.perform(RunJob("m1", "Payer", "a", "s"))
        assert (await store.run("m1")).status == "done"


async def test_the_context_of_a_job_is_made_from_it(tmp_path: Path):
    seen: list[Any] = []

    async def note(context: ToolContext[Any]) -> str:
        seen.append(context.context)
        return "noted"

    tool = function_tool(note, name_override="note", description_override="Note.", needs_approval=True)
    model = ScriptedModel([[function_call("note", {}, call_id="n")], final("noted")])
    clerk: Any = Agent(name="Clerk", tools=[tool], model=model)
    async with RunJobs([clerk], tmp_path / "talks.db", context=lambda job: f"of {job.run_id}") as jobs:
        await jobs.perform(RunJob("m1", "Clerk", "note it", "s"))
        await jobs.decide("m1", "n", True, by="ann")
        assert await jobs.recover() == {"continued": 1}
    assert seen == ["of m1"]


async def test_settings_of_the_jobs_hold_for_every_run(tmp_path: Path, book: str):
    async with RunJobs([payer(book)], tmp_path / "talks.db", max_turns=2) as jobs:
        with pytest.raises(MaxTurnsExceeded) as caught:
            await jobs.perform(RunJob("m1", "Payer", "a b c", "s"))
    assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) is None
    model = AnsweringModel(lambda call: [assistant_message("another model")])
    async with RunJobs([payer(book)], tmp_path / "talks.db", run_config=RunConfig(model=model)) as jobs:
        assert (await jobs.perform(RunJob("m2", "Payer", "a", "s"))).output == "another model"


async def test_a_run_that_is_not_there_cannot_go_on(jobs: RunJobs):
    with pytest.raises(NotFoundError):
        await jobs.job_of("nobody")
    await jobs.perform(RunJob("m1", "Payer", "a", "s"))
    with pytest.raises(RunStateError):
        await jobs.job_of("m1")


def test_two_agents_of_one_name_are_refused():
    agents = [Agent(name="Clerk"), Agent(name="Clerk")]
    with pytest.raises(InvalidSettingError):
        RunJobs(agents, "talks.db")


def test_how_long_until_the_next_delivery():
    def after(error: BaseException, attempts: int) -> float | None:
        return again_after_s(error, attempts, attempts_max=20, lease_ttl_s=15)

    lost = OutcomeUnknownError("lost", "Repeat it.")
    assert [after(lost, number) for number in (0, 1, 2, 5, 6, 18)] == [1, 2, 4, 32, 60, 60]
    assert after(lost, 19) is None
    for busy in (RunClaimedError("taken", "Wait."), SessionBusyError("busy", "Wait.")):
        assert [after(busy, number) for number in (0, 4, 5)] == [15, 16, 32]
    assert after(InputGuardrailTripwireTriggered.__new__(InputGuardrailTripwireTriggered), 0) is None
