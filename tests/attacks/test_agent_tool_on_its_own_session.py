"""An agent tool on a session of its own: what it did is known to the next run there, whatever became of its parent.

C15 holds for each conversation. The nested run is saved beside its own session, too, so that whoever comes next there
finds it; its parent's record is what it goes on from.
"""

from __future__ import annotations

import asyncio
import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from helpers.cancelling import WAYS, Way, cancelled_at, no_task_is_left
from helpers.ledger_oracle import asked_next, done, lines, write, wrongs
from helpers.processes import Child, Line, eventually

from standfast import (
    Agent,
    RunConfig,
    RunHooks,
    Runner,
    RunStateError,
    SQLiteSession,
    ToolContext,
    function_tool,
    open_store,
)
from standfast._src.base.errors import UnfinishedRunError
from standfast.testing import ScriptedModel, function_call
from tests.helpers.stores import SHARED, opened, place
from tests.runs.saved_runs.payment_app import Desk, asks, look, outputs, pay, says

OUTER, INNER = RunConfig(run_id="r1"), "r1/o1"
WAITS, UNKNOWN, NOT_RUN = "waits", "not known", "did not run"


def agents(own: Any, inner_steps: list[Any], outer_steps: list[Any]) -> tuple[Desk, Agent[Any]]:
    """An agent that pays, on a session of its own, and one around it which has it as a tool."""
    inner = Desk(inner_steps)
    helper = inner.agent.as_tool("helper", "Help.", session=own)
    return inner, Agent(name="outer", tools=[helper], model=ScriptedModel(outer_steps))


async def left_waiting(session: Any, own: Any) -> Desk:
    """Run until the payment inside waits; the looking beside it is done."""
    calls = [asks(look("b", "i1"), pay(7, "i2"))]
    inner, outer = agents(own, calls, [asks(function_call("helper", {"input": "go"}, call_id="o1"))])
    result = await Runner.run(outer, "start", session=session, run_config=OUTER)
    assert [item.call_id for item in result.interruptions] == ["i2"]
    return inner


async def asked(session: Any, **config: Any) -> tuple[dict[str, Any], Any]:
    """By call id what a model is told that is asked something on this session; and the result."""
    model = ScriptedModel([says("noted")])
    result = await Runner.run(Agent(name="n", model=model), "well?", session=session, run_config=RunConfig(**config))
    assert model.first_call is not None
    seen: Any = model.first_call.input
    return outputs(seen), result


@pytest.fixture(params=SHARED)
def two(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any]:
    """Two sessions of one store."""
    where = place(request.param, tmp_path)
    return opened(where, "a"), opened(where, "b")


async def test_the_next_run_there_is_shown_what_waits_and_stores_nothing_of_it(two: tuple[Any, Any]) -> None:
    session, own = two
    await left_waiting(session, own)
    told, result = await asked(own)
    assert told["i1"] == "saw b"
    assert WAITS in told["i2"]
    assert [(one.run_id, one.found) for one in result.unfinished] == [(INNER, "paused")]
    assert outputs(await own.get_items()) == {}


async def test_decided_later_it_goes_on_inside_its_parent_and_is_stored_once_there(two: tuple[Any, Any]) -> None:
    session, own = two
    await left_waiting(session, own)
    await asked(own)
    inner, outer = agents(own, [says("in")], [says("ok")])
    state = await Runner.load(outer, "r1", session=session)
    state.approve(state.get_interruptions()[0])
    result = await Runner.run(outer, state, session=session)
    assert result.final_output == "ok"
    assert [one[0] for one in inner.done] == ["pay"]
    assert outputs(await own.get_items()) == {"i1": "saw b", "i2": "paid 7"}
    told, after = await asked(own)
    assert told == {"i1": "saw b", "i2": "paid 7"}
    assert after.unfinished == ()


@pytest.mark.parametrize("how", ["cancelled", "by an operator", "cut"])
async def test_what_waits_in_a_run_that_was_ended_is_closed_by_the_next_run_there(tmp_path: Path, how: str) -> None:
    """Nobody can go on with it: what it did is stored, and what waited is said not to have run."""
    session, own = SQLiteSession("a", tmp_path / "s.db"), SQLiteSession("b", tmp_path / "s.db")
    if how == "cut":
        await _cut_beside_another_call(session, own)
    else:
        await left_waiting(session, own)
    if how == "cancelled":
        await Runner.cancel_run(agents(own, [], [])[1], "r1", session=session)
    elif how == "by an operator":
        async with open_store(tmp_path / "s.db") as store:
            await store.cancel("r1", by="ada")
    told, result = await asked(own)
    assert told["i1"] == "saw b"
    assert WAITS not in told["i2"]
    assert [(one.run_id, one.found) for one in result.unfinished] == [(INNER, "gone")]
    assert set(outputs(await own.get_items())) == {"i1", "i2"}
    assert (await asked(own))[1].unfinished == ()


async def _cut_beside_another_call(session: Any, own: Any) -> None:
    """The agent tool waits, a call beside it goes on, and whoever waits for the run goes away."""
    begun = asyncio.Event()

    @function_tool
    async def slow() -> str:
        begun.set()
        await asyncio.sleep(600)
        return "done"

    inner = Desk([asks(look("b", "i1"), pay(7, "i2"))])
    helper = inner.agent.as_tool("helper", "Help.", session=own)
    calls = asks(function_call("helper", {"input": "go"}, call_id="o1"), function_call("slow", {}, call_id="o2"))
    outer = Agent(name="outer", tools=[helper, slow], model=ScriptedModel([calls]))
    run = asyncio.create_task(Runner.run(outer, "start", session=session, run_config=OUTER))
    await asyncio.wait_for(begun.wait(), 60)
    await eventually(lambda: _waits(own))
    run.cancel()
    await asyncio.wait([run])


async def _waits(own: Any) -> bool:
    return [run.run_id for run in (await Runner.list_runs(session=own, status="paused"))[0]] == [INNER]


async def test_a_second_run_of_the_tool_is_told_of_the_first(two: tuple[Any, Any]) -> None:
    """Nested or not, it is the outermost run on that conversation, and the same question names the one that waits."""
    session, own = two
    await left_waiting(session, own)
    again, outer = agents(own, [asks(pay(7, "i3"))], [asks(function_call("helper", {"input": "again"}, call_id="o2"))])
    result = await Runner.run(outer, "again", run_config=RunConfig(run_id="r2"))
    assert [item.call_id for item in result.interruptions] == ["i3"]
    seen: Any = again.model.first_call.input
    assert outputs(seen)["i1"] == "saw b"
    assert again.done == []


async def test_refused_by_name_where_the_policy_says_so(two: tuple[Any, Any]) -> None:
    session, own = two
    await left_waiting(session, own)
    with pytest.raises(UnfinishedRunError, match=INNER):
        await asked(own, unfinished="refuse")


async def test_only_its_parent_goes_on_with_it(tmp_path: Path) -> None:
    """Else both would: each from its own state of the call that waits."""
    session, own = SQLiteSession("a", tmp_path / "s.db"), SQLiteSession("b", tmp_path / "s.db")
    inner = await left_waiting(session, own)
    state = await Runner.load(inner.agent, INNER, session=own)
    state.approve(state.get_interruptions()[0])
    with pytest.raises(RunStateError, match="inside run 'r1'"):
        await Runner.run(inner.agent, state, session=own)
    async with open_store(tmp_path / "s.db") as store:
        with pytest.raises(RunStateError, match="inside run 'r1'"):
            await store.decide(INNER, "i2", True, by="ada")
    report = await Runner.recover([inner.agent], sessions=lambda name: SQLiteSession(name, tmp_path / "s.db"))
    assert report.of("continued") == ()
    assert [one.run_id for one in report.of("waits")] == ["r1"]  # said once
    assert [done for done in inner.done if done[0] == "pay"] == []


async def test_given_up_there_its_parent_is_told_that_its_outcome_is_unknown(tmp_path: Path) -> None:
    session, own = SQLiteSession("a", tmp_path / "s.db"), SQLiteSession("b", tmp_path / "s.db")
    inner = await left_waiting(session, own)
    await Runner.cancel_run(inner.agent, INNER, session=own)
    assert outputs(await own.get_items())["i1"] == "saw b"
    again, outer = agents(own, [says("in")], [says("ok")])
    state = await Runner.load(outer, "r1", session=session)
    state.approve(state.get_interruptions()[0])
    await Runner.run(outer, state, session=session)
    assert again.done == []  # it was given up: the approval came too late
    assert UNKNOWN in outputs(await session.get_items())["o1"]


# --- its process is killed -------------------------------------------------------------------------------------------

PLACES = ("before", "paid", "behind")
"""Before the effect of its only call, after it, and in the request that follows: the turn is stored then."""


def paying(where: str, line: Line | None, at: str | None, *, steps: list[Any], outer_steps: list[Any]) -> Agent[Any]:
    """The agents of a worker that stands still at a place inside the agent tool."""

    async def stand(place: str) -> None:
        if line is not None and place == at:
            await line.stand(place)

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        await stand("before")
        write(book_of(where), ctx.tool_call_id)
        await stand("paid")
        return done(ctx.tool_call_id)

    class Behind(RunHooks[Any]):
        requests = 0

        async def on_llm_start(self, *_: Any) -> None:
            self.requests += 1
            if self.requests == 2:
                await stand("behind")

    inner = Agent(name="inner", tools=[pay], model=ScriptedModel(steps))
    helper = inner.as_tool("helper", "Help.", session=opened(where, "b"), hooks=Behind())
    return Agent(name="outer", tools=[helper], model=ScriptedModel(outer_steps))


def book_of(where: str) -> str:
    return where.split()[1] + ".book"


async def work(line: Line, *, where: str, at: str) -> None:
    """Run the outer agent until it stands at a place."""
    steps = [asks(function_call("pay", {}, call_id="i1")), says("in")]
    outer = paying(
        where, line, at, steps=steps, outer_steps=[asks(function_call("helper", {"input": "go"}, call_id="o1"))]
    )
    config = RunConfig(run_id="r1", lease_ttl_s=2.0)
    await Runner.run(outer, "start", session=opened(where, "a"), run_config=config)


@pytest.mark.parametrize("first", ["a message to it", "its parent is resumed", "a message to its parent"])
@pytest.mark.parametrize("at", PLACES)
def test_killed_inside_it_nothing_that_was_done_is_lost_doubled_or_forgotten(
    tmp_path: Path, at: str, first: str
) -> None:
    where = place("sqlite", tmp_path)
    with Child(work, where=where, at=at) as child:
        child.hear_until("here")
        child.kill()
    asyncio.run(_told_everywhere(where, first))


async def _told_everywhere(where: str, first: str) -> None:
    session, own = opened(where, "a"), opened(where, "b")
    outer = paying(where, None, None, steps=[says("in"), says("in")], outer_steps=[says("ok"), says("ok")])
    if first == "a message to its parent":
        assert "r1" in [one.run_id for one in (await asked(session))[1].unfinished]
    elif first == "a message to it":
        await asked_next(own)
    if first != "a message to its parent":
        await Runner.resume(outer, "r1", session=session)
    seen, book = await asked_next(own), lines(book_of(where))
    assert wrongs(book, seen) == []
    assert wrongs(book, await own.get_items()) == []
    assert set(outputs(await session.get_items())) == {"o1"}
    assert (await asked(own))[1].unfinished == ()
    session.close()
    own.close()


# --- it is cut -------------------------------------------------------------------------------------------------------


def cautious(own: Any, book: Path, *, asks_first: bool) -> Agent[Any]:
    """The agents of a run that looks, and pays at once or when a person agrees."""

    @function_tool(needs_approval=asks_first)
    async def spend(ctx: ToolContext[Any]) -> str:
        """Pay."""
        await asyncio.sleep(0)
        write(book, ctx.tool_call_id)
        await asyncio.sleep(0)
        return done(ctx.tool_call_id)

    @function_tool
    async def see(ctx: ToolContext[Any]) -> str:
        """Look."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    steps = [asks(function_call("see", {}, call_id="i1"), function_call("spend", {}, call_id="i2")), says("in")]
    helper = Agent(name="inner", tools=[spend, see], model=ScriptedModel(steps)).as_tool("helper", "Help.", session=own)
    outer_steps = [asks(function_call("helper", {"input": "go"}, call_id="o1")), says("ok")]
    return Agent(name="outer", tools=[helper], model=ScriptedModel(outer_steps))


async def run_to_its_end(outer: Agent[Any], session: Any) -> None:
    holds = RunConfig(lease_ttl_s=300.0)  # a lease that is kept is kept for longer than a test waits
    result = await Runner.run(outer, "go", session=session, run_config=holds)
    if result.interruptions:
        state = result.to_state()
        state.approve(state.get_interruptions()[0])
        await Runner.run(outer, state, session=session, run_config=holds)


@pytest.mark.parametrize("way", WAYS if "STANDFAST_ATTACK_ROUNDS" in os.environ else ("once", "anyio"))
@pytest.mark.parametrize("asks_first", [False, True])
async def test_cut_at_any_await_what_it_did_is_told_on_both_sessions(
    tmp_path: Path, asks_first: bool, way: Way
) -> None:
    at, was_cut = 0, True
    while was_cut:
        book, path = tmp_path / f"{at}.book", tmp_path / f"{at}.db"
        session, own = SQLiteSession("a", path), SQLiteSession("b", path)
        outer = cautious(own, book, asks_first=asks_first)
        was_cut = await cancelled_at(partial(run_to_its_end, outer, session), at, way)
        await no_task_is_left()
        found = wrongs(lines(book), await asked_next(own))
        assert not found, f"cut {way} at await {at}: {found}"
        assert not lines(book) or "o1" in outputs(await asked_next(session)), f"hidden from its parent, cut at {at}"
        session.close()
        own.close()
        at += 1
    assert at > 5  # it was cut in the middle, too
