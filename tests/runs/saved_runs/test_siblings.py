"""What becomes of the other unfinished runs of a session when one is resumed (C15), with processes that are killed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    RunConfig,
    RunHandedOverError,
    Runner,
    SQLiteSession,
    function_tool,
    open_store,
)
from standfast._src.items.texts_for_models import model_text
from standfast.testing import AnsweringModel, ScriptedModel, final, function_call
from standfast.workers import RunJob, RunJobs
from tests.helpers.children import born, ended
from tests.helpers.ledger_oracle import done, lines, says_unknown, short
from tests.helpers.runs_apart import FileWithoutRuns
from tests.runs.saved_runs.siblings import SESSION, clerk, die_asking, die_in, pay_and_die_at, recover, resume, start

WORKERS_MAX = 12
PATIENCE_S = 60.0


class Talk:
    """A conversation: `pay` was decided, and the worker of another run was killed in its call."""

    def __init__(self, folder: Path) -> None:
        self.path, self.book = str(folder / "talks.db"), str(folder / "book")

    async def begin(self, other: str = "look", name: str = "Clerk") -> None:
        await start(clerk(self.book), self.path, "pay")
        assert ended(born(die_in, other, self.path, self.book, name))
        async with open_store(self.path) as store:
            await store.decide("pay", "pay.0", True, by="ann")

    def session(self, session_id: str = SESSION) -> Any:
        return SQLiteSession(session_id, self.path)

    async def resume(self, agent: Agent[Any], run_id: str, **more: Any) -> Any:
        session = self.session()
        try:
            return await Runner.resume(agent, run_id, session=session, **more)
        finally:
            await session.close()

    async def status(self) -> dict[str, str]:
        async with open_store(self.path) as store:
            return {run.run_id: run.status for run in (await store.runs()).runs}

    async def history(self) -> list[str]:
        session = self.session()
        items = await session.get_items()
        await session.close()
        return short(items)


@pytest.fixture
def talk(tmp_path: Path) -> Talk:
    return Talk(tmp_path)


async def test_a_run_that_this_worker_cannot_resume_is_left_open_and_shown(talk: Talk) -> None:
    """C15: it is not stepped over in silence, does not block the conversation, and is resumed by a worker that can."""
    await talk.begin(name="Other")
    agent, model = clerk(talk.book), ScriptedModel([final("paid")])
    agent.model = model
    result = await talk.resume(agent, "pay", run_config=RunConfig(unfinished="settle"))
    assert [(one.run_id, one.found, one.done) for one in result.unfinished] == [
        ("look", "gone", "left open, shown in requests")
    ]
    assert model.last_call is not None
    seen: Any = model.last_call.input
    assert [item["output"] for item in seen if item.get("type") == "function_call_output"] == [
        model_text("begun_and_left_open"),
        done("pay.0"),
    ]
    before = ["U(pay)", "U(look)", "C(pay.0)", "O(pay.0: done)", f"A({result.final_output})"]
    assert await talk.history() == before
    other = await talk.resume(clerk(talk.book, name="Other"), "look")
    assert says_unknown(other.final_output)
    assert await talk.history() == [*before, "C(look.0)", "O(look.0: unknown)", f"A({other.final_output})"]
    assert await talk.status() == {"pay": "done", "look": "done"}


@pytest.mark.parametrize("go_on", [resume, recover])
async def test_a_run_that_ends_every_worker_does_not_block_the_conversation(talk: Talk, go_on: Callable[..., None]):
    """C15: it is let go first a bounded number of times, counted over all processes."""
    await talk.begin("poison")
    deaths = 0
    while (await talk.status())["pay"] != "done":
        deaths += ended(born(go_on, "pay", talk.path, talk.book))
        assert deaths < WORKERS_MAX
    assert deaths >= 1
    assert (await talk.status())["poison"] == "running"  # listed, and closed by no other run
    assert lines(talk.book).count("pay.0") == 1


async def test_a_run_that_was_handed_over_often_is_still_let_first(talk: Talk) -> None:
    """C15: a deploy each hour is not a tool that ends its process; only workers that were lost are counted."""
    deploys = 7
    leaving: list[asyncio.Task[Any]] = []

    async def work() -> str:
        if len(leaving) < deploys:
            leaving.append(asyncio.create_task(Runner.hand_over(within_s=PATIENCE_S)))
            await asyncio.sleep(0)
        return "worked"

    def answer(call: Any) -> Any:
        last = call.input[-1]
        if "pay" in (last.get("content"), str(last.get("call_id"))[:3]):
            return "paid" if "call_id" in last else [function_call("pay", {}, call_id="pay.0")]
        worked = sum(item.get("type") == "function_call_output" for item in call.input)
        return [function_call("work", {}, call_id=f"w{worked}")] if worked <= deploys else "worked"

    agent = clerk(talk.book)
    agent.tools, agent.model = [*agent.tools, function_tool(work)], AnsweringModel(answer)
    await start(agent, talk.path, "pay")
    async with open_store(talk.path) as store:
        await store.decide("pay", "pay.0", True, by="ann")
    with pytest.raises(RunHandedOverError):
        await start(agent, talk.path, "work", unfinished="ignore")
    for _ in range(deploys - 1):
        with pytest.raises(RunHandedOverError):
            await talk.resume(agent, "work", run_config=RunConfig(unfinished="ignore"))
    assert len(leaving) == deploys
    await talk.resume(agent, "pay")
    assert await talk.status() == {"pay": "done", "work": "done"}


@pytest.mark.parametrize("go_on", [resume, recover])
async def test_a_run_that_has_done_nothing_does_not_come_between_a_question_and_its_answer(
    talk: Talk, go_on: Callable[..., None]
) -> None:
    """C15: an older run was killed in its first request, a younger one in a call. A model answers the last question."""
    assert ended(born(die_asking, "pay", talk.path, talk.book))
    assert ended(born(die_in, "look", talk.path, talk.book))
    assert not ended(born(go_on, "pay", talk.path, talk.book))
    assert (await talk.history())[:3] == ["U(look)", "C(look.0)", "O(look.0: unknown)"]
    assert (await talk.history())[4:] == ["U(pay)"]
    assert await talk.status() == {"pay": "paused", "look": "done"}


async def test_a_run_that_lets_another_go_first_counts_once_what_it_cost_before(talk: Talk) -> None:
    """Started again under its id, it comes to its session a second time when the other one has ended."""
    await talk.begin()
    result = await start(clerk(talk.book), talk.path, "pay")
    assert [(one.run_id, one.done) for one in result.unfinished] == [("look", "resumed first")]
    assert result.context_wrapper.usage.requests == len(result.raw_responses) == 2


class Standing:
    """Stands in a call of `look` until told."""

    def __init__(self) -> None:
        self.stands, self.may_end = asyncio.Event(), asyncio.Event()

    async def __call__(self, call_id: str) -> None:
        if call_id != "pay.0":
            self.stands.set()
            await self.may_end.wait()


@pytest.mark.parametrize("how", ["cancelled", "handed over"])
async def test_a_run_that_was_let_first_outlives_the_caller_of_the_one_that_waits(talk: Talk, how: str) -> None:
    """C15: the caller that cancels the one has not asked for the other."""
    await talk.begin(name="Clerk")
    standing = Standing()
    # Another call of the gone run stands: what it had begun is unknown, and its model calls again.
    agent = clerk(talk.book, stands=standing)
    agent.model = ScriptedModel([[function_call("look", {}, call_id="look.1")], final("looked again"), final("paid")])
    waiting = asyncio.create_task(talk.resume(agent, "pay"))
    async with asyncio.timeout(PATIENCE_S):
        await standing.stands.wait()
    if how == "cancelled":
        waiting.cancel()
        asyncio.get_running_loop().call_soon(standing.may_end.set)  # what had begun may end
        with pytest.raises(asyncio.CancelledError):
            await waiting
    else:
        leaving = asyncio.create_task(Runner.hand_over(within_s=0.05))
        with pytest.raises(RunHandedOverError, match="pay"):
            await waiting
        await leaving
    assert await talk.status() == {"pay": "ready", "look": "running"}
    report = await Runner.recover(clerk(talk.book), sessions=talk.session)
    assert report.counts == {"continued": 2}
    assert lines(talk.book).count("pay.0") == 1


async def test_a_pass_does_not_say_alive_of_a_run_that_has_ended(talk: Talk) -> None:
    """What another worker had when the pass came to it, and has brought to its end since."""
    assert ended(born(die_in, "look", talk.path, talk.book))
    standing = Standing()
    agent = clerk(talk.book, stands=standing)
    elsewhere = SQLiteSession("elsewhere", talk.path)
    other = asyncio.create_task(Runner.run(agent, "look", session=elsewhere, run_config=RunConfig(run_id="other")))
    async with asyncio.timeout(PATIENCE_S):
        await standing.stands.wait()

    async def answer(call: Any) -> Any:
        standing.may_end.set()
        await other
        return final("looked")

    again = clerk(talk.book)
    again.model = AnsweringModel(answer)
    report = await Runner.recover(again, sessions=talk.session, concurrency=2)
    assert {one.run_id: one.outcome for one in report.runs} == {"look": "continued"}
    await elsewhere.close()


@pytest.mark.parametrize("agents", ["one agent", "two agents"])
async def test_a_new_job_lets_first_what_was_left(talk: Talk, agents: str) -> None:
    """C15: a queue without an order delivers the second message before the first comes again."""
    name = "Clerk" if agents == "one agent" else "Other"
    assert ended(born(die_in, "look", talk.path, talk.book, name))
    paid = await start(clerk(talk.book), talk.path, "pay", unfinished="ignore")
    assert paid.interruptions
    async with RunJobs([clerk(talk.book), clerk(talk.book, name="Other")], talk.path) as jobs:
        await jobs.store.decide("pay", "pay.0", True, by="ann")
        assert (await jobs.perform(await jobs.put("new", "Clerk", "look", session_id=SESSION))).status == "done"
        assert await talk.status() == {"new": "done", "pay": "done", "look": "done"}
        assert says_unknown((await jobs.perform(RunJob("look", name, SESSION))).output)


@pytest.mark.parametrize("kept", ["beside the session", "elsewhere"])
async def test_what_a_run_paused_with_stands_before_later_input(talk: Talk, kept: str, tmp_path: Path) -> None:
    """C15: killed behind any commit, a run that waits for a person has its input in the history, or the next run does.

    Saved first and stored then, it was in no history, and later input stood before it.
    """
    found, paused = None, 0
    for commit in range(1, 30):
        folder = tmp_path / str(commit)
        folder.mkdir()
        path, runs = str(folder / "talks.db"), str(folder / ("talks.db" if kept != "elsewhere" else "runs.db"))
        was_killed = ended(born(pay_and_die_at, commit, path, runs, talk.book))
        if not was_killed:
            break
        kind = SQLiteSession if kept != "elsewhere" else FileWithoutRuns
        session, store = kind(SESSION, path), SQLiteSession("-", runs).run_store()
        saved, _ = await store.list_runs()
        said = Agent(name="Clerk", model=ScriptedModel([final("later")]))
        await Runner.run(said, "later", session=session, run_config=RunConfig(run_store=store, lease_wait_s=20))
        users = [item["content"] for item in await session.get_items() if item.get("role") == "user"]
        found = [one.status for one in saved]
        if found == ["paused"]:
            paused += 1
            assert users == ["pay", "later"], commit
        await session.close()
    assert paused, "it was never killed while it waited"


async def test_later_jobs_do_not_report_failed_runs_whose_turns_the_session_has(talk: Talk) -> None:
    """C15: each of them was reported by every later job of its session. A repeated job still gets its answer."""
    fails = {"first", "second"}

    def answer(call: Any) -> Any:
        asked = [str(item["content"]) for item in call.input if item.get("role") == "user"][-1]
        if call.input[-1].get("type") != "function_call_output":
            return [function_call("look", {}, call_id=f"look.{asked}")]
        if asked in fails:
            raise RuntimeError("the provider is away")
        return f"answer to {asked}"

    agent = clerk(talk.book)
    agent.model = AnsweringModel(answer)
    async with RunJobs([agent], talk.path) as jobs:
        for name in ("first", "second"):
            with pytest.raises(RuntimeError, match="away"):
                await jobs.perform(await jobs.put(name, "Clerk", name, session_id=SESSION))
        result = await start(agent, talk.path, "third", unfinished="resume")
        assert (result.unfinished, result.final_output) == ((), "answer to third")
        fails.clear()
        agent.model = AnsweringModel(lambda call: "answer to second")
        assert (await jobs.perform(RunJob("second", "Clerk", SESSION))).output == "answer to second"
    assert await talk.status() == {"first": "failed", "second": "done", "third": "done"}
