"""A saved run is consumed once: of any number of resumers, in any processes, one goes on and the others are told."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    ApprovalError,
    InMemorySession,
    RunClaimedError,
    RunConfig,
    Runner,
    RunState,
    RunStateError,
    SQLiteSession,
    UserError,
)
from standfast._src.runs.steps.reply_parsing import call_digest

from .job_worker import RUN_ID, Forker, Job, Steps, build, evidence
from .payment_app import Desk, asks, kinds, look, pay, says


@pytest.fixture(scope="module")
def forker() -> Iterator[Forker]:
    made = Forker()
    yield made
    made.close()


def paused_in(job: Job) -> str:
    """The job, run until it waits for a person; its state as text."""

    async def start() -> str:
        agent = build(job, Steps())
        session = SQLiteSession("conversation", job.database)
        try:
            result = await Runner.run(agent, "go", session=session, run_config=RunConfig(run_id=RUN_ID))
            assert [item.call_id for item in result.interruptions] == ["c3"]
            return str(result.to_state().to_string())
        finally:
            session.close()

    return asyncio.run(start())


@pytest.mark.clause("C12", backend="runs")
@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_any_number_of_processes_resume_one_saved_run_and_it_pays_once(count: int, forker: Forker, tmp_path: Path):
    job = Job(str(tmp_path))
    text = paused_in(job)
    outcomes = forker.run([Job(job.folder, text=text) for _ in range(count)])
    told = Counter(str(outcome.get("output") or outcome.get("refused")) for outcome in outcomes if outcome)
    assert told == Counter({"finished": 1, "RunClaimedError": count - 1})
    assert Counter(line["what"] for line in evidence(job)) == {"look": 1, "count": 1, "pay": 1, "inner": 1}


@pytest.mark.clause("C12", backend="runs")
@pytest.mark.parametrize("count", [2, 8])
def test_any_number_of_processes_resume_a_killed_run_by_its_id_and_nothing_runs_twice(
    count: int, forker: Forker, tmp_path: Path
):
    job = Job(str(tmp_path))
    assert forker.run([Job(job.folder, die_at=40)]) == [None]  # inside the helper, after the payment
    outcomes = forker.run([Job(job.folder, by_id=True) for _ in range(count)])
    told = Counter(str(outcome.get("output") or outcome.get("refused")) for outcome in outcomes if outcome)
    # Whoever came too late saw a run that is taken; whoever came later still, one that has ended.
    assert told["finished"] == 1
    assert told["RunClaimedError"] + told["RunStateError"] == count - 1
    assert max(Counter(line["what"] for line in evidence(job)).values()) == 1


@pytest.mark.clause("C12", backend="runs")
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("concurrency", ["wait", "reject", "allow"])
async def test_of_many_tasks_in_one_process_one_goes_on(kind: str, concurrency: Any, tmp_path: Path):
    """Whatever is done about two runs on one session, a saved run is taken by one."""
    session: Any = InMemorySession("s") if kind == "memory" else SQLiteSession("s", tmp_path / "runs.db")
    desk = Desk([asks(pay(5, "c1")), says("done")])
    config = RunConfig(concurrency=concurrency)
    text = (await desk.run("hi", session=session, run_config=config)).to_state().to_string()

    async def resume() -> str:
        state = await RunState.from_string(desk.agent, text)
        state.approve(state.get_interruptions()[0])
        result = await desk.run(state, session=session, run_config=config)
        return str(result.final_output)

    told = await asyncio.gather(*(resume() for _ in range(16)), return_exceptions=True)
    done = [one for one in told if one == "done"]
    refused = [one for one in told if isinstance(one, Exception)]
    assert len(done) == 1
    assert len(refused) == 15
    if concurrency != "reject":  # there the session may be refused before the run is
        assert {type(one) for one in refused} == {RunClaimedError}
    assert desk.done == [("pay", 5)]
    assert kinds(await session.get_items()) == ["user", "call c1", "output c1", "assistant"]
    await session.close()


async def test_one_object_is_not_resumed_twice_at_once():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.approve(state.get_interruptions()[0])
    told = await asyncio.gather(desk.run(state), desk.run(state), return_exceptions=True)
    assert sorted(type(one).__name__ for one in told) == ["RunClaimedError", "RunResult"]
    assert desk.done == [("pay", 5)]


async def test_a_decision_is_not_played_twice_after_the_run_went_on():
    """The approved text is kept by somebody and sent again a day later."""
    session = InMemorySession("s")
    desk = Desk([asks(pay(5, "c1")), asks(pay(6, "c2")), says("done")])
    state = (await desk.run("hi", session=session)).to_state()
    state.approve(state.get_interruptions()[0])
    text = state.to_string()
    await desk.run(await RunState.from_string(desk.agent, text), session=session)  # pauses again, at c2
    with pytest.raises(RunClaimedError) as caught:
        await desk.run(await RunState.from_string(desk.agent, text), session=session)
    assert "Load it again" in caught.value.remedy
    assert desk.done == [("pay", 5)]


# --- a changed call --------------------------------------------------------------------------------------------------


Change = Callable[[dict[str, Any]], None]


def the_call(payload: dict[str, Any]) -> dict[str, Any]:
    return payload["turn"]["calls"][0]  # type: ignore[no-any-return]


def the_item(payload: dict[str, Any]) -> dict[str, Any]:
    return payload["turn"]["reply"][0]["item"]  # type: ignore[no-any-return]


def arguments_of_the_call(payload: dict[str, Any]) -> None:
    the_call(payload)["arguments"] = '{"amount":5000}'


def tool_of_the_call(payload: dict[str, Any]) -> None:
    the_call(payload)["name"] = "look"


def arguments_of_the_item(payload: dict[str, Any]) -> None:
    the_item(payload)["arguments"] = '{"amount":5000}'


def both_and_the_digest(payload: dict[str, Any]) -> None:
    arguments_of_the_call(payload)
    arguments_of_the_item(payload)
    the_call(payload)["digest"] = call_digest(the_item(payload))


def the_id(payload: dict[str, Any]) -> None:
    the_call(payload)["id"] = "c9"


def the_decision_is_for_another_call(payload: dict[str, Any]) -> None:
    the_call(payload)["decision"]["call_id"] = "c9"


def the_decision_is_for_another_tool(payload: dict[str, Any]) -> None:
    the_call(payload)["decision"]["scope"] = '["function",null,"look"]'


def the_decision_is_for_anything(payload: dict[str, Any]) -> None:
    the_call(payload)["decision"] |= {"arguments_digest": None, "scope": None, "call_id": None}


CHANGES: list[Change] = [
    arguments_of_the_call,
    tool_of_the_call,
    arguments_of_the_item,
    both_and_the_digest,
    the_id,
    the_decision_is_for_another_call,
    the_decision_is_for_another_tool,
    the_decision_is_for_anything,
]


@pytest.mark.clause("C12", backend="runs")
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
async def test_an_approval_does_not_cover_a_call_that_was_changed(change: Change):
    """It is bound to the call's id, its tool and a hash of its arguments."""
    desk = Desk([asks(pay(5, "c1")), says("done")])
    state = (await desk.run("hi")).to_state()
    state.approve(state.get_interruptions()[0])
    payload = json.loads(state.to_string())
    change(payload)
    with pytest.raises((RunStateError, ApprovalError)) as caught:
        await RunState.from_json(desk.agent, payload)
    assert isinstance(caught.value, UserError)
    assert desk.done == []


@pytest.mark.clause("C12", backend="runs")
async def test_where_a_store_knows_the_run_a_consistently_forged_call_is_refused_too():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    session = InMemorySession("s")
    payload = json.loads((await desk.run("hi", session=session)).to_state().to_string())
    both_and_the_digest(payload)
    state = await RunState.from_json(desk.agent, payload)  # a whole lie is not seen without the store
    state.approve(state.get_interruptions()[0])
    with pytest.raises(RunStateError, match="changed since"):
        await desk.run(state, session=session)
    assert desk.done == []


async def test_a_revision_that_was_never_saved_is_refused():
    desk = Desk([asks(pay(5, "c1"), look("sky", "c2")), says("done")])
    session = InMemorySession("s")
    payload = json.loads((await desk.run("hi", session=session)).to_state().to_string())
    state = await RunState.from_json(desk.agent, payload | {"revision": payload["revision"] + 1})
    state.approve(state.get_interruptions()[0])
    with pytest.raises(RunClaimedError):
        await desk.run(state, session=session)
    state = await RunState.from_json(desk.agent, payload | {"revision": 0})  # as if no store had ever known it
    state.approve(state.get_interruptions()[0])
    with pytest.raises(RunClaimedError):
        await desk.run(state, session=session)
    assert desk.done == [("look", "sky")]
