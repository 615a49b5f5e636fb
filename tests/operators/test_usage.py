"""What a run cost stays with its conversation: once, by turn and request, whatever becomes of the run (B15)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, InMemoryRunStore, RunConfig, Runner, SQLiteSession, Usage, open_store
from standfast.testing import ModelStep, ScriptedModel, assistant_message, function_call
from tests.helpers.runs_apart import FileWithoutRuns
from tests.runs.saved_runs.payment_app import Desk, asks, pay, says


def costing(tokens: int, *output: Any) -> ModelStep:
    return ModelStep(output=list(output), usage=Usage(1, tokens, output_tokens=1, total_tokens=tokens + 1))


@pytest.fixture
def session(tmp_path: Path) -> SQLiteSession:
    return SQLiteSession("talk", tmp_path / "talks.db")


async def test_each_turn_is_kept_and_survives_pruning(session: SQLiteSession) -> None:
    desk = Desk(
        [costing(10, function_call("look", {"what": "x"}, call_id="c1")), costing(20, assistant_message("Seen."))]
    )
    desk.model.model = "small-1"  # type: ignore[attr-defined]  # as models with a name have it
    await desk.run("Look.", session=session, run_config=RunConfig(run_id="run-1"))
    await Desk([costing(5, assistant_message("Hi."))]).run("Hi.", session=session, run_config=RunConfig(run_id="run-2"))
    await session.run_store().prune_runs(keep=0)
    found = await session.usage()
    assert [one.run_id for one in found] == ["run-1", "run-2"]
    assert {turn: usage.total_tokens for turn, usage in found[0].turns.items()} == {1: 11, 2: 21}
    assert [(one.model, one.agent) for one in found[0].requests] == [("small-1", "clerk")] * 2
    assert found[0].total.requests == 2
    assert found[1].total.total_tokens == 6
    async with open_store(session.db_path, read_only=True) as store:
        total = await store.usage()
    assert (total.total.total_tokens, total.sessions, total.runs) == (38, 1, 2)
    assert {name: usage.requests for name, usage in total.by_model.items()} == {"": 1, "small-1": 2}
    await session.close()


async def test_a_run_that_paused_and_went_on_elsewhere_is_billed_once(session: SQLiteSession) -> None:
    await Desk([asks(pay(1, "c1"))]).run("Pay.", session=session, run_config=RunConfig(run_id="run-1"))
    before = (await session.usage())[0].total.requests
    async with open_store(session.db_path) as store:
        view = await store.decide("run-1", "c1", True, by="ada")
        assert view.usage.requests == before == 1
    await Runner.resume(Desk([says("Paid.")]).agent, "run-1", session=session)
    (found,) = await session.usage()
    assert [one.turn for one in found.requests] == [1, 2]
    async with open_store(session.db_path) as store:
        ended = await store.run("run-1")
    assert (ended.status, ended.turns, ended.usage.requests) == ("done", 2, 2)
    await session.close()


async def test_a_run_that_is_saved_in_another_store_is_billed_too(tmp_path: Path) -> None:
    """A turn that is stored apart from its run brings its costs along."""
    session = FileWithoutRuns("s", tmp_path / "apart.db")
    look, seen = function_call("look", {"what": "x"}, call_id="c1"), assistant_message("Seen.")
    config = RunConfig(run_id="run-1", run_store=InMemoryRunStore())
    await Desk([costing(10, look), costing(20, seen)]).run("Look.", session=session, run_config=config)
    (found,) = await session.usage()
    assert {turn: usage.total_tokens for turn, usage in found.turns.items()} == {1: 11, 2: 21}
    await session.close()


async def test_a_nested_run_is_billed_with_the_turn_that_asked_for_it(session: SQLiteSession) -> None:
    inner = Agent(name="inner", model=ScriptedModel([costing(7, assistant_message("inner"))]))
    tool: Any = inner.as_tool("ask_inner", "Ask.", session=session)
    outer = Agent(
        name="outer",
        tools=[tool],
        model=ScriptedModel(
            [costing(10, function_call("ask_inner", {"input": "?"}, call_id="c")), costing(20, assistant_message("ok"))]
        ),
    )
    await Runner.run(outer, "Go.", session=session, run_config=RunConfig(run_id="run-1"))
    costs = await session.usage()
    assert [one.run_id for one in costs] == ["run-1"]
    seen = [(one.turn, one.usage.input_tokens, one.is_nested) for one in costs[0].requests]
    assert seen == [(1, 10, False), (1, 7, True), (2, 20, False)]
    await session.close()


async def test_a_nested_run_that_is_ended_on_its_own_session_is_billed_once(session: SQLiteSession) -> None:
    """Whoever ends it: what it costs is its parent's to keep."""
    inner = Desk([costing(7, pay(1, "p1"))])
    inside = SQLiteSession("inside", session.db_path)
    tool: Any = inner.agent.as_tool("ask_inner", "Ask.", session=inside)
    steps = [costing(10, function_call("ask_inner", {"input": "?"}, call_id="c")), costing(20, assistant_message("ok"))]
    outer = Agent(name="outer", tools=[tool], model=ScriptedModel(steps))
    paused = await Runner.run(outer, "Go.", session=session, run_config=RunConfig(run_id="run-1"))
    state = paused.to_state()
    async with open_store(session.db_path) as store:
        await store.cancel("run-1/c", by="ada")
    state.approve(state.get_interruptions()[0])
    await Runner.run(outer, state, session=session)
    assert inner.done == []
    billed = {run.run_id: run.total.input_tokens for one in (session, inside) for run in await one.usage()}
    assert billed == {"run-1": 37}
    await session.close()
    await inside.close()


async def test_a_run_that_fails_after_a_reply_has_cost_what_it_cost(session: SQLiteSession) -> None:
    desk = Desk([costing(10, function_call("no_such_tool", {}, call_id="c1"))])
    failing = Desk([costing(10, function_call("look", {"what": "x"}, call_id="c1")), RuntimeError("the model is away")])
    for one in (failing, desk):
        with pytest.raises(Exception, match=r"away|no_such_tool"):
            await one.run("Look.", session=session)
    found = await session.usage()
    assert [one.total.total_tokens for one in found] == [11]  # the other reply could not be read
    await session.close()


async def test_a_cancelled_run_keeps_what_it_cost(session: SQLiteSession) -> None:
    await Desk([asks(pay(1, "c1"))]).run("Pay.", session=session, run_config=RunConfig(run_id="run-1"))
    async with open_store(session.db_path) as store:
        await store.cancel("run-1", by="ada")
    (found,) = await session.usage()
    assert found.total.requests == 1
    await session.close()


@pytest.mark.parametrize("save", ["never", "auto"])
async def test_running_again_under_an_id_keeps_what_it_cost_before(session: SQLiteSession, save: Any) -> None:
    """Costs go by number of reply: where no run store knows the run, its second start must count on."""
    config = RunConfig(run_id="run-1", save=save)
    looks = [costing(n * 10, function_call("look", {"what": "x"}, call_id=f"c{n}")) for n in (1, 2)]
    with pytest.raises(ValueError, match="away"):
        await Desk([*looks, ValueError("away")]).run("Look.", session=session, run_config=config)
    result = await Desk([costing(40, assistant_message("Seen."))]).run("Look.", session=session, run_config=config)
    assert result.final_output == "Seen."
    (kept,) = await session.usage()
    assert [(one.turn, one.usage.input_tokens, one.is_nested) for one in kept.requests] == [
        (1, 10, False), (2, 20, False), (3, 40, False),
    ]  # fmt: skip
    assert result.context_wrapper.usage.input_tokens == 70
    await session.close()
