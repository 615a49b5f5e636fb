"""What a person decided stands, whoever holds the run's state, and is remembered after the run has ended (C16).

The rule is in docs/reference/saved-runs.md: without a name a decision is the program's own, which may change its mind
until the call runs; one that an operator made with `Store.decide`, under their name, nobody overrides.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, AlreadyDecidedError, RunConfig, RunContextWrapper, Runner, RunState, SQLiteSession
from standfast._kits.operators.open_store import open_store
from standfast._src.base.errors import RunClaimedError
from standfast.testing import ScriptedModel, function_call
from tests.runs.saved_runs.payment_app import Desk, asks, look, outputs, pay, says

R1 = RunConfig(run_id="r1")


async def waiting(path: Path) -> tuple[SQLiteSession, Any]:
    """A run that waits for a payment, and what it showed."""
    session = SQLiteSession("s", path)
    result = await Desk([asks(look("b", "c0"), pay(5, "c1"))]).run("pay 5", session=session, run_config=R1)
    return session, result.interruptions[0]


async def decide(path: Path, approve: bool, call_id: str = "c1", by: str = "ada") -> None:
    async with open_store(path) as store:
        await store.decide("r1", call_id, approve, by=by, reason=None if approve else "Not today.")


async def test_a_state_that_was_loaded_before_an_operator_decided_cannot_go_on(tmp_path: Path) -> None:
    session, shown = await waiting(tmp_path / "a.db")
    desk = Desk([says("ok")])
    state = await Runner.load(desk.agent, "r1", session=session)
    await decide(tmp_path / "a.db", approve=False)
    state.approve(shown)
    with pytest.raises(RunClaimedError, match="somebody decided"):
        await desk.run(state, session=session)
    assert desk.done == []


@pytest.mark.parametrize("way", ["approve", "approve always", "in the context", "after a trip through text"])
async def test_a_state_that_was_loaded_afterwards_cannot_override_an_operator(tmp_path: Path, way: str) -> None:
    session, shown = await waiting(tmp_path / "a.db")
    await decide(tmp_path / "a.db", approve=False)
    desk = Desk([says("ok")])
    state: Any = await Runner.load(desk.agent, "r1", session=session)
    if way == "after a trip through text":
        state = await RunState.from_string(desk.agent, state.to_string())

    async def override() -> None:
        if way == "in the context":
            context: RunContextWrapper[Any] = state.context_wrapper
            context.approve_tool(shown)
            await desk.run(state, session=session)
        else:
            state.approve(shown, always_approve=way == "approve always")

    with pytest.raises(AlreadyDecidedError, match="ada rejected") as refused:
        await override()
    assert (refused.value.by, refused.value.approved) == ("ada", False)
    assert desk.done == []
    done = Desk([says("ok")])
    await Runner.resume(done.agent, "r1", session=session)
    assert done.done == []
    assert outputs(await session.get_items())["c1"] == "Not today."


async def test_whoever_holds_the_state_may_change_their_own_mind(tmp_path: Path) -> None:
    session, shown = await waiting(tmp_path / "a.db")
    desk = Desk([says("ok")])
    state = await Runner.load(desk.agent, "r1", session=session)
    state.reject(shown)
    state = await RunState.from_string(desk.agent, state.to_string())
    state.approve(shown)
    await desk.run(state, session=session)
    assert desk.done == [("pay", 5)]


# --- who decided, afterwards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("approve", [True, False])
async def test_who_decided_is_known_after_the_run_has_ended(tmp_path: Path, approve: bool) -> None:
    session, _ = await waiting(tmp_path / "a.db")
    await decide(tmp_path / "a.db", approve)
    await Runner.resume(Desk([says("ok")]).agent, "r1", session=session)
    async with open_store(tmp_path / "a.db", read_only=True) as store:
        view = await store.run("r1")
    assert view.status == "done"
    seen, paid = view.calls
    assert (seen.call_id, seen.tool, seen.output, seen.decision) == ("c0", "look", "saw b", None)
    assert (paid.call_id, paid.tool, paid.arguments, paid.turn) == ("c1", "pay", '{"amount":5}', 1)
    assert paid.output == ("paid 5" if approve else "Not today.")
    assert paid.decision is not None
    assert (paid.decision.by, paid.decision.approved) == ("ada", approve)
    assert paid.decision.at is not None
    assert [item["content"] for item in view.input] == ["pay 5"]


async def test_who_decided_is_known_while_the_run_goes_on(tmp_path: Path) -> None:
    session, _ = await waiting(tmp_path / "a.db")
    await decide(tmp_path / "a.db", approve=True)
    await Runner.resume(Desk([asks(pay(6, "c2"))]).agent, "r1", session=session)  # it waits again
    async with open_store(tmp_path / "a.db", read_only=True) as store:
        calls = {call.call_id: call for call in (await store.run("r1")).calls}
    assert calls["c1"].decision is not None
    assert calls["c1"].decision.by == "ada"
    assert calls["c2"].decision is None


async def test_who_decided_about_a_call_inside_an_agent_tool_is_known_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    session = SQLiteSession("s", path)

    def outer(inner: Desk, *steps: Any) -> Agent[Any]:
        helper = inner.agent.as_tool("helper", "Help.")
        return Agent(name="outer", tools=[helper], model=ScriptedModel(list(steps)))

    asked = asks(function_call("helper", {"input": "go"}, call_id="o1"))
    await Runner.run(outer(Desk([asks(pay(7, "i1"))]), asked), "start", session=session, run_config=R1)
    await decide(path, approve=True, call_id="i1")
    inner = Desk([says("in")])
    await Runner.resume(outer(inner, says("ok")), "r1", session=session)
    assert inner.done == [("pay", 7)]
    async with open_store(path, read_only=True) as store:
        calls = {call.call_id: call for call in (await store.run("r1")).calls}
    assert calls["o1"].decision is None
    assert calls["i1"].decision is not None
    assert (calls["i1"].decision.by, calls["i1"].tool, calls["i1"].run_id) == ("ada", "pay", "r1/o1")


async def test_who_decided_is_known_of_a_run_that_was_cancelled_then(tmp_path: Path) -> None:
    await waiting(tmp_path / "a.db")
    await decide(tmp_path / "a.db", approve=True)
    async with open_store(tmp_path / "a.db") as store:
        await store.cancel("r1", by="grace")
        view = await store.run("r1")
    assert view.status == "cancelled"
    (paid,) = [call for call in view.calls if call.call_id == "c1"]
    assert paid.decision is not None
    assert paid.decision.by == "ada"
    assert "grace" in str(paid.output)


# --- what it cost, afterwards -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["result", "started again"])
async def test_the_result_of_an_ended_run_knows_what_it_cost(tmp_path: Path, way: str) -> None:
    """The session keeps it (B15); read again by its id, or started again, it is the same run."""
    session = SQLiteSession("s", tmp_path / "a.db")
    desk = Desk([asks(look("b", "c0")), says("ok")])
    first = await desk.run("look", session=session, run_config=R1)
    spent = first.context_wrapper.usage
    assert spent.requests == 2
    again = Desk([])
    if way == "result":
        result: Any = await Runner.result(again.agent, "r1", session=session)
    else:
        result = await again.run("look", session=session, run_config=R1)
    assert result.final_output == "ok"
    assert (result.context_wrapper.usage.requests, result.context_wrapper.usage.total_tokens) == (2, spent.total_tokens)
