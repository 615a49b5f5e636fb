"""One job, delivered in every way a queue can think of, on SQLite: what any adapter relies on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from standfast import (
    Agent,
    ApprovalError,
    GuardrailFunctionOutput,
    InputGuardrail,
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
    job = await jobs.put("m1", "Payer", "a b", session_id=session_id)
    ends = [await jobs.perform(job) for _ in range(3)]
    assert ends == [JobEnd("m1", "done", f"{done('a')}; {done('b')}")] * 3
    assert lines(book) == ["a", "b"]


async def test_an_output_of_a_type_is_json_every_time(tmp_path: Path):
    class Bill(BaseModel):
        cents: int

    clerk: Any = Agent(name="Clerk", output_type=Bill, model=ScriptedModel([final('{"cents": 5}')]))
    async with RunJobs([clerk], tmp_path / "talks.db") as jobs:
        ends = [await jobs.perform(await jobs.put("m1", "Clerk", "how much?", session_id="s")) for _ in range(2)]
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
        await jobs.perform(await jobs.put("m1", "Clerk", "pay", session_id="s"))
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
    job = await jobs.put("m1", "Payer", "ask1", session_id=session_id)
    for _ in range(2):
        assert await jobs.perform(job) == JobEnd("m1", "waits", waiting=("ask1",))
    going_on = await jobs.decide("m1", "ask1", approve, by="ann", reason=None if approve else "too much")
    assert going_on == job == RunJob("m1", "Payer", session_id)
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
        assert (await jobs.perform(await jobs.put("m1", "Clerk", "pay twice", session_id="s"))).waiting == ("a", "b")
        assert await jobs.decide("m1", "a", True, by="ann") is None
        last = await jobs.decide("m1", "b", True, by="ann")
        assert last is not None
        assert (await jobs.perform(last)).output == "both"


async def test_a_cancelled_run_says_so_to_every_later_delivery(jobs: RunJobs):
    job = await jobs.put("m1", "Payer", "ask1", session_id="s")
    await jobs.perform(job)
    await jobs.store.cancel("m1", by="ann")
    assert [(await jobs.perform(job)).status, (await jobs.perform(job)).status] == ["cancelled", "cancelled"]


async def test_a_job_for_an_agent_that_this_worker_lacks_is_left_for_another(jobs: RunJobs):
    with pytest.raises(NotFoundError, match="has no agent 'Newer'") as caught:
        await jobs.perform(await jobs.put("m1", "Newer", "a", session_id="s"))
    assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) == 1


async def test_a_run_whose_tool_an_older_worker_lacks_is_left_for_another(jobs: RunJobs, tmp_path: Path, book: str):
    job = await jobs.put("m1", "Payer", "ask1", session_id="s")
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
        job = await jobs.put("m1", "Payer", "pay", session_id="s")
        with pytest.raises(ConnectionError) as caught:
            await jobs.perform(job)
        assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) == 1
        assert await jobs.perform(job) == JobEnd("m1", "done", "paid")
    assert lines(book) == ["a"]


@pytest.mark.parametrize("session_id", ["s", None])
async def test_one_id_with_another_input_fails_for_good(jobs: RunJobs, session_id: str | None):
    await jobs.perform(await jobs.put("m1", "Payer", "ask1", session_id=session_id))
    with pytest.raises(SessionConflictError) as caught:
        await jobs.put("m1", "Payer", "another text", session_id=session_id)
    assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) is None


async def test_a_store_that_cannot_be_reached_is_tried_again():
    clerk: Any = Agent(name="Clerk", model=ScriptedModel([]))
    store = open_store("redis://127.0.0.1:1/0", timeout_s=0.2)  # nobody listens there
    async with RunJobs([clerk], store) as jobs:
        with pytest.raises(StoreError) as caught:
            await jobs.perform(await jobs.put("m1", "Clerk", "hello", session_id="s"))
        assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) == 1
    await store.close()


async def test_a_store_that_was_handed_in_stays_open(tmp_path: Path, book: str):
    async with open_store(tmp_path / "talks.db", create=True) as store:
        async with RunJobs([payer(book)], store) as jobs:
            await jobs.perform(await jobs.put("m1", "Payer", "a", session_id="s"))
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
        await jobs.perform(await jobs.put("m1", "Clerk", "note it", session_id="s"))
        await jobs.decide("m1", "n", True, by="ann")
        assert await jobs.recover() == {"continued": 1}
    assert seen == ["of m1"]


async def test_settings_of_the_jobs_hold_for_every_run(tmp_path: Path, book: str):
    async with RunJobs([payer(book)], tmp_path / "talks.db", max_turns=2) as jobs:
        with pytest.raises(MaxTurnsExceeded) as caught:
            await jobs.perform(await jobs.put("m1", "Payer", "a b c", session_id="s"))
    assert again_after_s(caught.value, 0, attempts_max=20, lease_ttl_s=15) is None
    model = AnsweringModel(lambda call: [assistant_message("another model")])
    async with RunJobs([payer(book)], tmp_path / "talks.db", run_config=RunConfig(model=model)) as jobs:
        assert (await jobs.perform(await jobs.put("m2", "Payer", "a", session_id="s"))).output == "another model"


async def test_a_run_that_is_not_there_cannot_go_on(jobs: RunJobs):
    with pytest.raises(NotFoundError):
        await jobs.job_of("nobody")
    await jobs.perform(await jobs.put("m1", "Payer", "a", session_id="s"))
    with pytest.raises(RunStateError):
        await jobs.job_of("m1")


# --- a run's name ----------------------------------------------------------------------------------------------------


def test_a_job_is_three_names():
    """G1a."""
    assert [field.name for field in fields(RunJob)] == ["run_id", "agent", "session_id"]


@pytest.mark.parametrize("session_id", ["s", None])
async def test_a_run_that_was_put_and_never_delivered_is_found(jobs: RunJobs, book: str, session_id: str | None):
    """F1: the process that put it died before the engine had the job."""
    for _ in range(2):
        job = await jobs.put("m1", "Payer", "a", session_id=session_id)
    assert await jobs.end_of(job) is None
    assert await jobs.recover() == {"continued": 1}
    assert await jobs.end_of(job) == JobEnd("m1", "done", done("a")) == await jobs.perform(job)
    assert lines(book) == ["a"]


async def test_a_message_that_was_heard_has_the_answer_of_the_run_that_heard_it(jobs: RunJobs, book: str):
    """F1, F3: the second message is delivered first, and its run hears the one that was sent before."""
    first, second = [await jobs.put(name, "Payer", f"ask{name}", session_id="s") for name in ("1", "2")]
    assert (await jobs.perform(second)).waiting == ("ask2",)
    assert await jobs.perform(first) == JobEnd("1", "waits", waiting=("ask2",), heard_by="2")
    assert await jobs.end_of(first) is None
    await jobs.decide("2", "ask2", True, by="ann")
    end = await jobs.perform(first)
    assert end == JobEnd("1", "done", done("ask2"), heard_by="2") == await jobs.end_of(first)
    assert await jobs.perform(second) == JobEnd("2", "done", done("ask2"))
    assert lines(book) == ["ask2"]


async def test_two_deliveries_at_once_have_one_end(tmp_path: Path, book: str):
    """C16: the later one waits for the worker that has the run, and reads what became of it."""
    async with RunJobs([payer(book)], tmp_path / "talks.db") as one, RunJobs([payer(book)], one.store) as other:
        job = await one.put("m1", "Payer", "a b", session_id="s")
        ends = await asyncio.gather(one.perform(job), other.perform(job), one.perform(job))
    assert ends == [JobEnd("m1", "done", f"{done('a')}; {done('b')}")] * 3
    assert lines(book) == ["a", "b"]


async def test_a_run_whose_record_was_pruned_has_ended_as_before(jobs: RunJobs):
    job = await jobs.put("m1", "Payer", "a", session_id="s")
    end = await jobs.perform(job)
    assert await jobs.store.prune_runs(keep=0) == 1
    assert await jobs.perform(job) == end


async def test_an_engine_keeps_no_long_output(tmp_path: Path):
    """G1a: the job's result is a part of the engine's log."""
    clerk: Any = Agent(name="Clerk", model=ScriptedModel([final("x" * 3_000)]))
    async with RunJobs([clerk], tmp_path / "talks.db") as jobs:
        end = await jobs.perform(job := await jobs.put("m1", "Clerk", "write", session_id="s"))
        assert end.as_json() == {
            "run_id": "m1", "status": "done", "output": None, "output_left_out": True, "waiting": []
        }  # fmt: skip
        assert await jobs.end_of(job) == end


async def test_a_message_is_taken_back_while_another_run_has_its_session(jobs: RunJobs, book: str):
    """F1: it does not begin when its job comes, and the next message is not held up by it."""
    session = jobs.store.session("s")
    lease = await session.lease(ttl_s=600.0, wait_s=0.0)
    first, second = [await jobs.put(name, "Payer", name, session_id="s") for name in ("a", "b")]
    await jobs.store.cancel("a", by="ann")
    await lease.release()
    assert (await jobs.perform(first)).status == "cancelled"
    assert (await jobs.perform(second)).output == done("b")
    assert [item["content"] for item in await session.get_items() if item.get("role") == "user"] == ["b"]
    await session.close()


async def test_a_message_that_may_steer_is_not_taken_from_a_run_that_may_be_hearing_it(jobs: RunJobs):
    """F1: the run under way stores it in a step of its own, which a message that is gone would break."""
    session = jobs.store.session("s")
    lease = await session.lease(ttl_s=600.0, wait_s=0.0)
    await jobs.put("m1", "Payer", "a", session_id="s", when_busy="steer")
    with pytest.raises(SessionBusyError):
        await jobs.store.cancel("m1", by="ann")
    await lease.release()
    await session.close()
    assert (await jobs.store.cancel("m1", by="ann")).status == "cancelled"


async def test_a_message_that_is_taken_back_while_a_run_hears_it_does_not_end_that_run(tmp_path: Path, book: str):
    """F1: the run that begins had loaded it, and hears the other one alone."""

    async def judge(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        if "taken back" in str(given):
            await jobs.store.cancel("m1", by="ann")
        return GuardrailFunctionOutput(None, False)

    agent = payer(book)
    agent.input_guardrails = [InputGuardrail(judge, run_in_parallel=False)]
    async with RunJobs([agent], tmp_path / "talks.db") as jobs:
        texts = ("m1", "taken back"), ("m2", "kept"), ("m3", "a")
        *_, last = [await jobs.put(name, "Payer", text, session_id="s") for name, text in texts]
        assert (await jobs.perform(last)).output == done("a")
        session = jobs.store.session("s")
        items = await session.get_items()
        await session.close()
        assert [item["content"] for item in items if item.get("role") == "user"] == ["kept", "a"]
        assert (await jobs.store.receipt("s", "m1")).state == "cancelled"
        assert (await jobs.store.receipt("s", "m2")).state == "heard"


async def test_a_refused_message_says_so_to_every_later_delivery(tmp_path: Path, book: str):
    """F4."""
    agent = payer(book)
    agent.input_guardrails = [InputGuardrail(lambda *_: GuardrailFunctionOutput(None, True), name="no")]
    async with RunJobs([agent], tmp_path / "talks.db") as jobs:
        job = await jobs.put("m1", "Payer", "a", session_id="s")
        with pytest.raises(InputGuardrailTripwireTriggered):
            await jobs.perform(job)
        assert await jobs.perform(job) == JobEnd("m1", "refused") == await jobs.end_of(job)


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
