"""`Runner.recover`: one pass that goes on with what nobody is at, and leaves everything else as it is."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import lines
from helpers.processes import Child
from helpers.starters import recover as recover_once, start

from standfast import (
    Agent,
    InMemoryRunStore,
    InvalidSettingError,
    ModelBehaviorError,
    OwnerError,
    RunConfig,
    RunHandedOverError,
    Runner,
    RunStateError,
    SettingTypeError,
    SQLiteSession,
    StoreUnavailableError,
    ToolContext,
    UserError,
    function_tool,
    handing_over_on,
    open_store,
)
from standfast.testing import AnsweringModel, function_call
from tests.helpers.model_texts import UNKNOWN_OUTCOME
from tests.runs.saved_runs.payment_app import kinds, outputs

PATIENCE_S = 60.0


def calls_of(*names: str) -> Callable[[Any], Any]:
    """What a model answers that calls these tools, one in each turn, and then says that it has finished."""

    def answer(call: Any) -> Any:
        count = sum(1 for item in call.input if item.get("type") == "function_call_output")
        if count == len(names):
            return "finished"
        return function_call(names[count], {}, call_id=f"c{count + 1}")

    return answer


class Office:
    """Agents whose work is a function of the conversation, on one database, and a book of what was really done."""

    def __init__(self, folder: Path) -> None:
        self.database = folder / "talks.db"
        self.done: list[str] = []
        self.stands = asyncio.Event()
        """Set when a call of `wait` has begun."""
        self.may_go = asyncio.Event()

    def session(self, session_id: str) -> SQLiteSession:
        return SQLiteSession(session_id, self.database)

    def agent(self, *names: str, name: str = "clerk", asks: bool = False, **more: Any) -> Any:
        """An agent that calls these tools, one in each turn, and then says so."""

        async def act(context: ToolContext[Any]) -> str:
            self.done.append(context.tool_name)
            if context.tool_name == "wait":
                self.stands.set()
                await self.may_go.wait()
            return f"{context.tool_name} done"

        tools = [
            function_tool(act, name_override=one, description_override=one, needs_approval=asks and one == "pay")
            for one in dict.fromkeys(names)
        ]
        return Agent(name=name, model=AnsweringModel(calls_of(*names)), tools=tools, **more)

    @asynccontextmanager
    async def at_work(self, agent: Any, run_id: str, session_id: str | None = None) -> AsyncIterator[asyncio.Task[Any]]:
        """A run that stands in its tool `wait`."""
        self.stands.clear()
        session = self.session(session_id or "-")
        config = RunConfig(run_id=run_id, run_store=session.run_store())
        owned = session if session_id is not None else None
        task = asyncio.ensure_future(Runner.run(agent, "go", session=owned, run_config=config))
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self.stands.wait()
            yield task
        finally:
            task.cancel()
            await asyncio.wait([task])
            await session.close()

    async def left(self, agent: Any, run_id: str, session_id: str | None = None) -> None:
        """A run that its worker has left in the middle of its tool `wait`, as a crash would."""
        async with self.at_work(agent, run_id, session_id) as task:
            await Runner.hand_over(within_s=0)
            with pytest.raises(RunHandedOverError):
                await task

    async def recover(self, *agents: Any, **more: Any) -> Any:
        return await Runner.recover(agents, sessions=self.session, **more)

    async def status(self, run_id: str) -> tuple[str, int]:
        async with open_store(self.database) as store:
            view = await store.run(run_id)
            return view.status, view.revision


@pytest.fixture
def office(tmp_path: Path) -> Office:
    return Office(tmp_path)


# --- what is taken ---------------------------------------------------------------------------------------------------


@pytest.mark.clause("C12", "C16", backend="runs")
@pytest.mark.parametrize("session_id", ["guest", None])
async def test_a_run_whose_worker_is_gone_is_continued_and_what_had_begun_is_said_to_be_unknown(
    office: Office, session_id: str | None
) -> None:
    agent = office.agent("look", "wait", "pay")
    await office.left(agent, "job", session_id)
    report = await office.recover(agent)
    (one,) = report.runs
    assert (one.run_id, one.session_id, one.agent, one.outcome) == ("job", session_id, "clerk", "continued")
    assert one.result is not None
    assert one.result.final_output == "finished"
    assert office.done == ["look", "wait", "pay"]
    assert outputs(one.result.to_input_list()) == {"c1": "look done", "c2": UNKNOWN_OUTCOME, "c3": "pay done"}
    assert report.is_whole
    assert (await office.recover(agent)).runs == ()
    if session_id is not None:
        session = office.session(session_id)
        calls = [f"{what} c{number}" for number in (1, 2, 3) for what in ("call", "output")]
        assert kinds(await session.get_items()) == ["user", *calls, "assistant"]
        await session.close()


@pytest.mark.parametrize("session_id", ["guest", None])
async def test_a_run_that_a_worker_is_at_is_left_alone(office: Office, session_id: str | None) -> None:
    agent = office.agent("wait")
    async with office.at_work(agent, "job", session_id) as task:
        report = await office.recover(agent)
        assert report.counts == {"alive": 1}
        office.may_go.set()
        assert (await task).final_output == "finished"
    assert office.done == ["wait"]


async def test_a_run_that_works_beside_its_session_s_lease_is_left_alone(office: Office) -> None:
    """With `concurrency="allow"` nobody holds the session: the run's own lease says that its worker lives."""
    agent, session = office.agent("wait"), office.session("guest")
    config = RunConfig(run_id="job", concurrency="allow")
    task = asyncio.ensure_future(Runner.run(agent, "go", session=session, run_config=config))
    await office.stands.wait()
    assert (await office.recover(agent)).counts == {"alive": 1}
    office.may_go.set()
    assert (await task).final_output == "finished"
    assert office.done == ["wait"]
    await session.close()


async def test_a_run_that_waits_for_a_person_waits_and_once_decided_is_continued(office: Office) -> None:
    """C15, and the operators' word: whoever decides without the agents leaves the run to whoever recovers."""
    agent, session = office.agent("look", "pay", asks=True), office.session("guest")
    await Runner.run(agent, "go", session=session, run_config=RunConfig(run_id="job"))
    assert (await office.recover(agent)).counts == {"waits": 1}
    async with open_store(office.database) as store:
        (call,) = (await store.run("job")).waiting
        await store.decide("job", call.call_id, approve=True, by="ann")
        assert (await store.run("job")).status == "ready"
    report = await office.recover(agent)
    assert report.counts == {"continued": 1}
    assert report.runs[0].result.final_output == "finished"
    assert office.done == ["look", "pay"]
    await session.close()


async def test_a_run_that_an_operator_has_cancelled_is_not_taken(office: Office) -> None:
    agent = office.agent("wait")
    await office.left(agent, "job", "guest")
    async with open_store(office.database) as store:
        await store.cancel("job", by="ann", reason="not needed")
    assert (await office.recover(agent)).runs == ()


async def test_runs_that_failed_or_were_cancelled_are_left_to_those_who_were_told(office: Office) -> None:
    agent = office.agent("look", "wait")
    async with office.at_work(agent, "cancelled", "a") as task:
        task.cancel()
        await asyncio.wait([task])

    def broken(call: Any) -> Any:
        raise RuntimeError("the model is broken")

    session = office.session("b")
    with pytest.raises(RuntimeError):
        await Runner.run(
            Agent(name="clerk", model=AnsweringModel(broken)),
            "go",
            session=session,
            run_config=RunConfig(run_id="failed"),
        )
    await session.close()
    assert (await office.recover(agent)).runs == ()


async def test_any_number_of_passes_at_once_continue_a_run_once(office: Office) -> None:
    agent = office.agent("wait", "pay")
    for number in range(3):
        await office.left(agent, f"job-{number}", None if number else "guest")
    office.done.clear()
    reports = await asyncio.gather(*(office.recover(agent) for _ in range(4)))
    continued = [one.run_id for report in reports for one in report.of("continued")]
    assert sorted(continued) == ["job-0", "job-1", "job-2"]
    assert office.done == ["pay"] * 3
    assert {one.outcome for report in reports for one in report.runs} <= {"continued", "alive"}


async def test_each_run_goes_to_the_agent_it_was_started_with_and_its_own_context(office: Office) -> None:
    clerk, boss = office.agent("wait", "pay"), office.agent("wait", "sign", name="boss")
    await office.left(clerk, "one")
    await office.left(boss, "two")
    report = await office.recover(clerk, boss, context_of=lambda summary: f"of {summary.run_id}")
    assert {one.run_id: one.result.context_wrapper.context for one in report.runs} == {"one": "of one", "two": "of two"}
    assert sorted(office.done[2:]) == ["pay", "sign"]


# --- what nobody here can continue -----------------------------------------------------------------------------------


async def test_a_run_of_an_agent_that_was_not_given_is_told_and_not_touched(office: Office) -> None:
    await office.left(office.agent("wait"), "job")
    before = await office.status("job")
    report = await office.recover(office.agent("wait", name="other"))
    (one,) = report.runs
    assert one.outcome == "no_agent"
    assert isinstance(one.error, RunStateError)
    assert "'clerk'" in str(one.error)
    assert await office.status("job") == before


@pytest.mark.parametrize("session_id", ["guest", None])
async def test_a_worker_with_an_older_version_leaves_the_run_to_one_that_has_what_it_needs(
    office: Office, session_id: str | None
) -> None:
    """A tool is gone, or an agent it was handed to: nothing is begun or written, and the right worker goes on."""
    agent = office.agent("look", "wait", "pay")
    await office.left(agent, "job", session_id)
    before = await office.status("job")
    older = office.agent("look", "pay")
    report = await office.recover(older)
    assert report.counts == {"no_agent": 1}
    assert isinstance(report.runs[0].error, ModelBehaviorError)
    assert await office.status("job") == before
    assert (await office.recover(agent)).counts == {"continued": 1}
    assert office.done == ["look", "wait", "pay"]


async def test_a_run_that_was_handed_to_an_agent_that_is_gone_is_told(office: Office) -> None:
    boss = office.agent("look", "wait", name="boss")  # the handoff counts as the first

    def to_boss(call: Any) -> Any:
        return function_call("transfer_to_boss", {}, call_id="h1")

    clerk: Any = Agent(name="clerk", model=AnsweringModel(to_boss), handoffs=[boss])
    async with office.at_work(clerk, "job", "guest"):
        await Runner.hand_over(within_s=0)
    report = await office.recover(office.agent("look"))
    assert report.counts == {"no_agent": 1}
    assert "'boss'" in str(report.runs[0].error)


async def test_one_bad_run_stops_neither_the_pass_nor_a_limit(office: Office) -> None:
    """A record that cannot be read, a session that cannot be opened: told, and the next one is taken."""
    agent = office.agent("wait", "pay")
    session = office.session("-")
    store = session.run_store()
    save: dict[str, Any] = {"expect": 0, "tails": {}, "status": "running", "agent": "clerk"}
    await store.save_run("damaged", head=b"[", **save)
    await office.left(agent, "no-session", "broken")
    await office.left(agent, "good", "fine")

    def opened(session_id: str) -> SQLiteSession:
        if session_id == "broken":
            raise PermissionError("not yours")
        return office.session(session_id)

    report = await Runner.recover(agent, sessions=opened, limit=1)
    told = {one.run_id: one for one in report.runs}
    assert {run_id: one.outcome for run_id, one in told.items()} == {
        "damaged": "failed",
        "no-session": "failed",
        "good": "continued",
    }
    assert isinstance(told["damaged"].error, RunStateError)
    assert isinstance(told["no-session"].error, PermissionError)
    await session.close()


async def test_a_run_that_fails_again_is_told_with_its_error(office: Office) -> None:
    await office.left(office.agent("wait", "pay"), "job")

    def broken(call: Any) -> Any:
        raise RuntimeError("the model is broken")

    agent = office.agent("wait", "pay")
    agent.model = AnsweringModel(broken)
    report = await office.recover(agent)
    assert report.counts == {"failed": 1}
    assert isinstance(report.runs[0].error, RuntimeError)
    assert office.done == ["wait"]


async def test_runs_of_sessions_need_sessions(office: Office) -> None:
    agent = office.agent("wait")
    await office.left(agent, "job", "guest")
    session = office.session("-")
    report = await Runner.recover(agent, store=session.run_store())
    assert report.counts == {"failed": 1}
    assert isinstance(report.runs[0].error, OwnerError)
    assert (await Runner.recover(agent, store=session.run_store(), sessions=office.session)).counts == {"continued": 1}
    await session.close()


# --- bounds ----------------------------------------------------------------------------------------------------------


async def test_a_limit_counts_the_runs_that_are_taken_and_begins_with_the_oldest(office: Office) -> None:
    agent = office.agent("wait", "pay")
    for name in ("first", "second", "third"):
        await office.left(agent, name)
    stranger = office.agent("wait", name="stranger")
    await office.left(stranger, "stranger")
    report = await office.recover(agent, limit=2)
    assert {one.run_id for one in report.of("continued")} == {"first", "second"}
    assert not report.is_whole
    report = await office.recover(agent, limit=2)
    assert report.counts == {"continued": 1, "no_agent": 1}
    assert report.is_whole


async def test_no_more_than_so_many_go_on_at_once(office: Office) -> None:
    agent = office.agent("wait", "count")
    for number in range(5):
        await office.left(agent, f"job-{number}")
    under_way, most, both = 0, 0, asyncio.Event()

    async def answer(call: Any) -> Any:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if under_way == 2:
            both.set()
        await both.wait()
        await asyncio.sleep(0.01)  # time for a third, if there were one
        under_way -= 1
        return calls_of("wait", "count")(call)

    agent.model = AnsweringModel(answer)
    assert (await office.recover(agent, concurrency=2)).counts == {"continued": 5}
    assert most == 2


async def test_when_its_time_is_over_a_pass_hands_over_what_it_has_begun(office: Office) -> None:
    agent, slow = office.agent("wait", "look", "pay"), office.agent("wait", "look", "pay")
    for name in ("first", "second"):
        await office.left(agent, name)
    reached = asyncio.Event()

    async def answer(call: Any) -> Any:
        reached.set()
        await asyncio.sleep(2.5)  # longer than the pass has; its answer is waited for and kept
        return calls_of("wait", "look", "pay")(call)

    slow.model = AnsweringModel(answer)
    report = await office.recover(slow, concurrency=1, timeout_s=2.0)
    assert reached.is_set()
    assert report.counts == {"handed_over": 1}
    assert not report.is_whole
    assert (await office.recover(agent)).counts == {"continued": 2}
    assert sorted(office.done[2:]) == ["look", "look", "pay", "pay"]


async def test_a_pass_that_is_cancelled_leaves_its_runs_to_the_next(office: Office) -> None:
    """A queue that aborts its periodic job on deploy: what the pass has taken is not cancelled by that."""
    agent = office.agent("look", "wait", "pay")
    await office.left(agent, "job", "guest")
    office.stands.clear()
    slow = office.agent("look", "wait", "pay")
    reached, may_go = asyncio.Event(), asyncio.Event()

    async def answer(call: Any) -> Any:
        reached.set()
        await may_go.wait()
        return calls_of("look", "wait", "pay")(call)

    slow.model = AnsweringModel(answer)
    task = asyncio.ensure_future(office.recover(slow))
    await reached.wait()
    task.cancel()
    await asyncio.sleep(0)
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await office.status("job"))[0] == "running"
    assert (await office.recover(agent)).counts == {"continued": 1}
    assert office.done == ["look", "wait", "pay"]


@pytest.mark.parametrize("ahead_s", [86_400.0, -86_400.0], ids=["a day ahead", "a day behind"])
@pytest.mark.parametrize("owner", ["session wait", "nobody"])
def test_a_worker_whose_clock_is_wrong_by_a_day_does_nothing_twice(owner: str, ahead_s: float, tmp_path: Path) -> None:
    """On a store that asks its machine for the time it may take a run from a living worker: who then begins no more."""
    path = tmp_path / "a.db"
    with Child(start, path=str(path), owner=owner, stands=True) as worker:
        worker.hear_until("ready")
        worker.say("go")
        worker.hear_until("here")
        with Child(recover_once, path=str(path), ahead_s=ahead_s) as wrong:
            name, outcome = wrong.result()
        assert (name, outcome) in (("ok", "continued"), ("ok", "alive"))
        worker.say("go on")
        told = worker.result()
        assert told[0] in (("LeaseLostError", "RunClaimedError") if outcome == "continued" else ("ok",)), told
    assert lines(f"{path}.book") == ["c1"]


class Away(InMemoryRunStore):
    """A store that cannot be reached."""

    async def list_runs(self, **asked: Any) -> Any:
        raise StoreUnavailableError("the store is away", "Try again.")


async def test_a_store_that_is_away_is_told_and_not_raised() -> None:
    report = await Runner.recover(Agent(name="clerk"), store=Away())
    assert isinstance(report.error, StoreUnavailableError)
    assert (report.runs, report.is_whole) == ((), False)


async def test_a_store_that_goes_away_in_the_middle_is_told_of_each_run(office: Office) -> None:
    agent = office.agent("wait", "pay")
    store = InMemoryRunStore()
    config = RunConfig(run_id="job", run_store=store)
    task = asyncio.ensure_future(Runner.run(agent, "go", run_config=config))
    await office.stands.wait()
    await Runner.hand_over(within_s=0)
    await asyncio.wait([task])
    real = store.load_run

    async def away(run_id: str) -> Any:
        raise StoreUnavailableError("the store is away", "Try again.")

    store.load_run = away  # type: ignore[method-assign]
    report = await Runner.recover(agent, store=store)
    assert report.counts == {"failed": 1}
    assert isinstance(report.runs[0].error, StoreUnavailableError)
    store.load_run = real  # type: ignore[method-assign]
    assert (await Runner.recover(agent, store=store)).counts == {"continued": 1}
    assert office.done == ["wait", "pay"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"limit": 0}, InvalidSettingError),
        ({"limit": True}, SettingTypeError),
        ({"concurrency": 0}, InvalidSettingError),
        ({"timeout_s": -1}, InvalidSettingError),
        ({"timeout_s": "soon"}, SettingTypeError),
        ({"run_config": RunConfig(run_id="one")}, UserError),
        ({"store": None}, UserError),
        ({"agents": [Agent(name="A"), Agent(name="A")]}, InvalidSettingError),
        ({"agents": ["clerk"]}, SettingTypeError),
    ],
    ids=["no run", "no number", "none at once", "no time", "no seconds", "one run", "no store", "one name", "no agent"],
)
async def test_wrong_arguments_are_raised(wrong: dict[str, Any], error: type[Exception]) -> None:
    given: dict[str, Any] = {"agents": [Agent(name="A")], "store": InMemoryRunStore(), **wrong}
    with pytest.raises(error):
        await Runner.recover(given.pop("agents"), **given)


# --- handing over ----------------------------------------------------------------------------------------------------


@pytest.mark.clause("C14", backend="runs")
@pytest.mark.parametrize("session_id", ["guest", None])
async def test_a_worker_that_stops_lets_end_what_has_begun_and_begins_nothing_more(
    office: Office, session_id: str | None
) -> None:
    agent = office.agent("wait", "pay")
    async with office.at_work(agent, "job", session_id) as task:
        stopping = asyncio.ensure_future(Runner.hand_over(within_s=PATIENCE_S))
        await asyncio.sleep(0)
        office.may_go.set()
        assert await stopping == ("job",)
        with pytest.raises(RunHandedOverError) as told:
            await task
        assert told.value.run_id == "job"
    assert office.done == ["wait"]
    assert (await office.status("job"))[0] == "running"
    report = await office.recover(agent)
    assert report.counts == {"continued": 1}
    assert outputs(report.runs[0].result.to_input_list()) == {"c1": "wait done", "c2": "pay done"}
    assert office.done == ["wait", "pay"]


async def test_a_run_that_nobody_had_saved_is_saved_when_it_is_handed_over(office: Office) -> None:
    """It has asked its model and nothing more; whoever takes it keeps what the model said."""
    agent = office.agent("pay")
    reached, may_go, asked = asyncio.Event(), asyncio.Event(), 0

    async def answer(call: Any) -> Any:
        nonlocal asked
        asked += 1
        reached.set()
        await may_go.wait()
        return "finished" if asked > 1 else function_call("pay", {}, call_id="c1")

    agent.model, session = AnsweringModel(answer), office.session("guest")
    result = Runner.run_streamed(agent, "go", session=session)

    async def watched() -> None:
        async for _ in result.stream_events():
            pass

    watching = asyncio.ensure_future(watched())
    await reached.wait()
    stopping = asyncio.ensure_future(Runner.hand_over(within_s=PATIENCE_S))
    await asyncio.sleep(0)
    may_go.set()
    await stopping
    with pytest.raises(RunHandedOverError):
        await watching
    assert office.done == []
    report = await office.recover(agent)
    assert report.counts == {"continued": 1}
    assert report.runs[0].result.final_output == "finished"
    assert asked == 2
    assert office.done == ["pay"]
    await session.close()


async def test_a_run_that_waits_for_its_session_is_sent_away_and_has_begun_nothing(office: Office) -> None:
    agent, session = office.agent("look"), office.session("guest")
    lease = await session.lease(ttl_s=60.0, wait_s=0)
    config = RunConfig(run_id="job")
    task = asyncio.ensure_future(Runner.run(agent, "go", session=office.session("guest"), run_config=config))
    await asyncio.sleep(0.05)
    await Runner.hand_over(within_s=0)
    with pytest.raises(RunHandedOverError):
        await task
    await lease.release()
    assert office.done == []
    assert (await Runner.run(agent, "go", session=session, run_config=config)).final_output == "finished"
    await session.close()


async def test_on_a_signal_the_runs_under_way_and_those_that_start_then_are_handed_over(office: Office) -> None:
    agent = office.agent("wait", "pay")
    async with handing_over_on(within_s=PATIENCE_S) as stopping, office.at_work(agent, "first") as task:
        os.kill(os.getpid(), signal.SIGTERM)
        await stopping.wait()
        session = office.session("-")
        config = RunConfig(run_id="second", run_store=session.run_store())
        with pytest.raises(RunHandedOverError):
            await Runner.run(agent, "go", run_config=config)
        await session.close()
        office.may_go.set()
        with pytest.raises(RunHandedOverError):
            await task
    assert office.done == ["wait"]
    assert (await office.recover(agent)).counts == {"continued": 2}
    assert sorted(office.done) == ["pay", "pay", "wait", "wait"]


async def test_a_run_that_is_saved_nowhere_ends_in_time_or_is_cancelled(office: Office) -> None:
    quick, slow = office.agent("look"), office.agent("wait")
    async with AsyncExitStack():
        first = asyncio.ensure_future(Runner.run(quick, "go"))
        second = asyncio.ensure_future(Runner.run(slow, "go"))
        await office.stands.wait()
        await asyncio.wait([first])
        await Runner.hand_over(within_s=0)
        assert (await first).final_output == "finished"
        with pytest.raises(asyncio.CancelledError):
            await second
