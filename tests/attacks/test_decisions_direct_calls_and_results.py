"""What attacks on the newest parts of runs found: deciding without agents, runs by hand, sealed runs, results."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, EncryptedSession, RunConfig, Runner, SQLiteSession, ToolContext, function_tool, open_store
from standfast._src.base.errors import InvalidSettingError, OwnerError, RunStateError
from standfast.testing import ScriptedModel, function_call
from tests.helpers.cancelling import WAYS, Way, cancelled_at, suspensions
from tests.runs.saved_runs.payment_app import Desk, asks, kinds, look, outputs, pay, says

RUN = RunConfig(run_id="r1")


async def test_a_question_that_was_decided_and_not_yet_run_is_named_when_it_is_asked_again(tmp_path: Path) -> None:
    session = SQLiteSession("s", tmp_path / "t.db")
    await Desk([asks(pay(5, "c1"))]).run("Pay 5.", session=session, run_config=RUN)
    async with open_store(tmp_path / "t.db") as store:
        await store.decide("r1", "c1", True, by="ada")
    again = await Desk([asks(pay(5, "c2"))]).run("Did you pay?", session=session)
    assert [item.same_as_run for item in again.interruptions] == ["r1"]
    await session.close()


@pytest.mark.parametrize("by_operator", [False, True])
async def test_a_given_up_run_stores_what_a_run_inside_it_had_done_on_the_session(
    tmp_path: Path, by_operator: bool
) -> None:
    session = SQLiteSession("s", tmp_path / "t.db")
    inner = Desk([asks(look("the book", "i1"), pay(7, "i2"))])
    helper = inner.agent.as_tool("helper", "Help.", session=session)
    asking = ScriptedModel([asks(function_call("helper", {"input": "go"}, call_id="o1"))])
    outer: Any = Agent(name="outer", tools=[helper], model=asking)
    assert (await Runner.run(outer, "start", session=session, run_config=RUN)).interruptions
    if by_operator:
        async with open_store(tmp_path / "t.db") as store:
            await store.cancel("r1", by="ada")
    else:
        await Runner.cancel_run(outer, "r1", session=session)
    said = outputs(await session.get_items())
    assert said["i1"] == "saw the book"
    assert "not approved" in said["i2"]
    assert "not known" in said["o1"]
    assert await session.holder() is None
    await session.close()


def by_hand(inner: Agent[Any], session: Any) -> Any:
    """A tool that calls the tool of an agent itself."""
    helper = inner.as_tool("helper", "Help.", session=session)

    @function_tool
    async def ask_helper(context: ToolContext[Any]) -> str:
        """Ask the helper."""
        return str(await helper.on_invoke_tool(context, json.dumps({"input": "go"})))

    return ask_helper


@pytest.mark.parametrize("inner_id", ["s", "inner"])
async def test_what_a_run_by_hand_did_before_it_had_to_wait_is_stored_and_paid_for(
    tmp_path: Path, inner_id: str
) -> None:
    session = SQLiteSession("s", tmp_path / "t.db")
    at = session if inner_id == "s" else SQLiteSession(inner_id, tmp_path / "t.db")
    inner = Desk([asks(look("the book", "i1"), pay(7, "i2"))])
    model = ScriptedModel([asks(function_call("ask_helper", {}, call_id="o1")), says("It could not.")])
    outer: Any = Agent(name="outer", tools=[by_hand(inner.agent, at)], model=model)
    await Runner.run(outer, "start", session=session, run_config=RUN)
    assert inner.done == [("look", "the book")]
    said = outputs(await at.get_items())
    assert said["i1"] == "saw the book"
    assert said["i2"].startswith("This call did not run")
    (cost,) = await session.usage()
    assert len(cost.requests) == 3
    for one in {session, at}:
        await one.close()


async def test_a_repeated_call_runs_its_agent_by_hand_as_another_run(tmp_path: Path) -> None:
    """Its first attempt was cut after the inner run had stored a turn; the second has other replies."""
    session, at = SQLiteSession("s", tmp_path / "t.db"), SQLiteSession("inner", tmp_path / "t.db")

    def world(call_id: str, *steps: Any, is_cut: bool) -> Any:
        inner = Desk([asks(look("the book", call_id)), says("Seen.")])

        @function_tool(idempotent=True)
        async def ask_helper(context: ToolContext[Any]) -> str:
            """Ask the helper."""
            helper = inner.agent.as_tool("helper", "Help.", session=at)
            said = str(await helper.on_invoke_tool(context, json.dumps({"input": "go"})))
            if is_cut:
                async with open_store(tmp_path / "t.db") as store:
                    await store.unlock("s")  # its worker is taken for gone: it can record nothing any more
            return said

        return Agent(name="outer", tools=[ask_helper], model=ScriptedModel(list(steps)))

    asking = asks(function_call("ask_helper", {}, call_id="o1"))
    with pytest.raises(Exception, match="lease"):
        await Runner.run(world("a1", asking, is_cut=True), "start", session=session, run_config=RUN)
    result = await Runner.resume(world("b1", says("Done."), is_cut=False), "r1", session=session)
    assert result.final_output == "Done."
    assert outputs(await session.get_items()) == {"o1": "Seen."}
    both = ["user", "call a1", "output a1", "assistant", "user", "call b1", "output b1", "assistant"]
    assert kinds(await at.get_items()) == both
    await session.close()
    await at.close()


async def test_the_result_of_a_run_is_not_shown_from_another_session(tmp_path: Path) -> None:
    session, other = SQLiteSession("s", tmp_path / "t.db"), SQLiteSession("other", tmp_path / "t.db")
    desk = Desk([says("Hello.")])
    await desk.run("Hi.", session=session, run_config=RUN)
    with pytest.raises(OwnerError, match="another's"):
        await Runner.result(desk.agent, "r1", session=other)
    assert len((await Runner.result(desk.agent, "r1", session=session)).to_input_list()) == 2
    await session.close()
    await other.close()


async def test_without_its_key_a_sealed_run_that_waits_is_neither_stepped_over_nor_deleted(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    sealed = EncryptedSession("s", SQLiteSession("s", path), "a key of thirty-two characters!!")
    await Desk([asks(pay(5, "c1"))]).run("Pay 5.", session=sealed, run_config=RUN)
    await Desk([says("Later.")]).run("When?", session=sealed, run_config=RunConfig(run_id="r2"))
    plain, other = SQLiteSession("s", path), Desk([says("Hello.")])
    with pytest.raises(RunStateError, match="sealed"):
        await other.run("Hi.", session=plain)
    assert other.sent == []
    with pytest.raises(RunStateError, match="sealed"):
        await Runner.delete_run("r1", session=plain)
    async with open_store(path) as store:
        with pytest.raises(RunStateError, match="sealed"):
            await store.delete_run("r1")
        assert await store.prune_runs(keep=0) == 0
    clerk = Desk([says("Paid.")])
    state = await Runner.load(clerk.agent, "r1", session=sealed)
    state.approve(state.get_interruptions()[0])
    assert (await Runner.run(clerk.agent, state, session=sealed)).final_output == "Paid."
    assert clerk.done == [("pay", 5)]
    assert await Runner.prune_runs(session=sealed, keep=0) == 2
    await plain.close()
    await sealed.close()


async def test_a_policy_that_is_none_is_refused_when_a_cut_call_is_settled_and_the_run_does_not_hang(
    tmp_path: Path,
) -> None:
    session = SQLiteSession("s", tmp_path / "t.db")

    @function_tool
    async def act() -> str:
        """Act."""
        async with open_store(tmp_path / "t.db") as store:
            await store.unlock("s")  # its worker is taken for gone: it can record nothing any more
        return "acted"

    asking = ScriptedModel([asks(function_call("act", {}, call_id="c1"))])
    with pytest.raises(Exception, match="lease"):
        await Runner.run(Agent(name="a", tools=[act], model=asking), "start", session=session, run_config=RUN)
    act.on_unknown = "retry"  # type: ignore[assignment]  # set behind the constructor's check
    agent: Any = Agent(name="a", tools=[act], model=ScriptedModel([says("Done.")]))
    with pytest.raises(InvalidSettingError, match="is not a policy"):
        await asyncio.wait_for(Runner.resume(agent, "r1", session=session), 30)
    act.on_unknown = "report"
    assert (await Runner.resume(agent, "r1", session=session)).final_output == "Done."
    await session.close()


@pytest.mark.parametrize("way", WAYS)
async def test_looking_at_a_run_that_waits_writes_nothing_wherever_it_is_cancelled(tmp_path: Path, way: Way) -> None:
    """Written on the way out, its head was ahead of its logs, and nobody could read the run any more."""
    session = SQLiteSession("s", tmp_path / "t.db")
    await Desk([asks(look("the book", "c0"), pay(5, "c1"))]).run("Pay 5.", session=session, run_config=RUN)
    clerk = Desk([says("Paid.")])

    async def looked() -> None:
        assert (await Runner.resume(clerk.agent, "r1", session=session)).interruptions

    async with open_store(tmp_path / "t.db") as store:
        before = await store.run("r1")
        for at in range(await suspensions(looked)):
            await cancelled_at(looked, at, way)
            assert await store.run("r1") == before
        await store.decide("r1", "c1", True, by="ada")
    assert (await Runner.resume(clerk.agent, "r1", session=session)).final_output == "Paid."
    assert clerk.done == [("pay", 5)]
    await session.close()


async def test_a_run_that_was_given_up_does_not_go_on_when_it_is_started_again_under_its_id(tmp_path: Path) -> None:
    """A queue delivers a message twice; meanwhile an operator has given its run up."""
    session = SQLiteSession("s", tmp_path / "t.db")
    await Desk([asks(pay(5, "c1"))]).run("Pay 5.", session=session, run_config=RUN)
    async with open_store(tmp_path / "t.db") as store:
        await store.cancel("r1", by="ada")
    again = Desk([asks(pay(5, "c2"))])
    with pytest.raises(RunStateError, match="given up"):
        await again.run("Pay 5.", session=session, run_config=RUN)
    assert again.sent == []
    result = await Runner.result(again.agent, "r1", session=session)
    assert (result.final_output, result.to_state().status) == (None, "cancelled")
    assert len(result.to_input_list()) == 3
    await session.close()


async def test_what_a_nested_run_cost_that_failed_is_kept_with_the_conversation(tmp_path: Path) -> None:
    session = SQLiteSession("s", tmp_path / "t.db")
    helper = Desk([asks(look("the book", "i1"))]).agent.as_tool("helper", "Help.", max_turns=1)
    model = ScriptedModel([asks(function_call("helper", {"input": "go"}, call_id="o1")), says("It could not.")])
    outer: Any = Agent(name="outer", tools=[helper], model=model)
    result = await Runner.run(outer, "start", session=session, run_config=RUN)
    (cost,) = await session.usage()
    assert len(cost.requests) == result.context_wrapper.usage.requests == 3
    await session.close()
