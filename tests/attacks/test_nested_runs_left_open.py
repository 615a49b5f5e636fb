"""What an agent tool did is known however, and wherever, the run around it ends (C8, C14, C15).

An agent tool on its parent's session has looked, and waits for a payment. It is not under way any more, so nobody but
the run around it can store what it did: whoever resumes, cancels or settles that one does so in one step with it.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, Runner, SQLiteSession, StandfastError, function_tool, open_store
from standfast._src.base.errors import AlreadyDecidedError, StoreError
from standfast._src.sessions.client.session_wrapper import SessionWrapper
from standfast.run import RunConfig
from standfast.testing import ScriptedModel, function_call
from tests.helpers.cancelling import Way, cancelled_at
from tests.runs.saved_runs.payment_app import Desk, asks, look, outputs, pay, says

OUTER, INNER = RunConfig(run_id="r1"), "r1/o1"
UNKNOWN = "not known"


def desk(session: Any, inner_steps: list[Any], outer_steps: list[Any]) -> tuple[Desk, Agent[Any]]:
    """An agent that pays, and one around it which has it as a tool on the same session."""
    inner = Desk(inner_steps)
    helper = inner.agent.as_tool("helper", "Help.", session=session)
    return inner, Agent(name="outer", tools=[helper], model=ScriptedModel(outer_steps))


async def left_open(session: Any) -> Desk:
    """Run until the payment inside waits; the looking beside it is done."""
    inner, outer = desk(
        session,
        [asks(look("b", "i1"), pay(7, "i2"))],
        [asks(function_call("helper", {"input": "go"}, call_id="o1"))],
    )
    result = await Runner.run(outer, "start", session=session, run_config=OUTER)
    assert [item.call_id for item in result.interruptions] == ["i2"]
    return inner


def fresh(session: Any) -> tuple[Desk, Agent[Any]]:
    """The same agents with models that only answer."""
    return desk(session, [says("in"), says("in")], [says("ok"), says("ok")])


async def resume(outer: Agent[Any], session: Any, path: Path) -> None:
    async with open_store(path) as store:
        await store.decide("r1", "i2", True, by="ada")
    await Runner.resume(outer, "r1", session=session)


async def watch_resumed(outer: Agent[Any], session: Any, path: Path) -> None:
    async with open_store(path) as store:
        await store.decide("r1", "i2", True, by="ada")
    result = await Runner.resume_streamed(outer, "r1", session=session)
    async for _ in result.stream_events():
        pass


async def cancel(outer: Agent[Any], session: Any, path: Path) -> None:
    await Runner.cancel_run(outer, "r1", session=session)


async def cancel_as_operator(outer: Agent[Any], session: Any, path: Path) -> None:
    async with open_store(path) as store:
        await store.cancel("r1", by="ada")


async def finish(session: Any, path: Path) -> Desk:
    """Bring the run to its end, whatever it was left in."""
    inner, outer = fresh(session)
    async with open_store(path) as store:
        async with asyncio.timeout(30):
            while await store.session("s").holder() is not None:  # closed in the background
                await asyncio.sleep(0.01)
        view = await store.run("r1")
        if view.status == "paused":
            with suppress(AlreadyDecidedError):  # the decision that was cut was on its way, and has arrived since
                await store.decide("r1", "i2", True, by="grace")
        if "has ended" not in view.doing:
            await Runner.resume(outer, "r1", session=session)
    return inner


@pytest.mark.parametrize("way", ["once", "forever"])
@pytest.mark.parametrize("act", [resume, watch_resumed, cancel, cancel_as_operator])
async def test_what_an_agent_tool_did_is_stored_wherever_resuming_or_cancelling_is_cut(
    tmp_path: Path, act: Any, way: Way
) -> None:
    at, was_cut = 0, True
    while was_cut:
        path = tmp_path / f"{at}.db"
        session = SQLiteSession("s", path)
        desks = [await left_open(session)]
        inner, outer = fresh(session)

        def work(outer: Any = outer, session: Any = session, path: Path = path) -> Coroutine[Any, Any, None]:
            done: Coroutine[Any, Any, None] = act(outer, session, path)
            return done

        was_cut = await cancelled_at(work, at, way)
        desks += [inner, await finish(session, path)]
        _check(at, await session.get_items(), [done for one in desks for done in one.done])
        session.close()
        at += 1
    assert at > 5  # it was cut in the middle, too


def _check(at: int, items: list[Any], done: list[Any]) -> None:
    said, calls = outputs(items), Counter(item["call_id"] for item in items if item.get("type") == "function_call")
    assert set(calls) == set(said), f"torn, cut at {at}: {calls} and {said}"
    assert set(calls.values()) == {1}, f"doubled, cut at {at}"
    assert said["i1"] == "saw b", f"what was seen is hidden, cut at {at}"
    payments = [one for one in done if one[0] == "pay"]
    assert len(payments) <= 1, f"paid twice, cut at {at}"
    if payments:
        assert said["i2"] == "paid 7" or UNKNOWN in said["i2"], f"a payment is hidden, cut at {at}"


async def test_a_call_that_waits_beside_one_that_fails_is_told_with_what_ran_inside_it(tmp_path: Path) -> None:
    """The run around it fails in the same turn: the agent tool has come to its pause before, and is not under way."""
    session = SQLiteSession("s", tmp_path / "s.db")
    waits = asyncio.Event()

    @function_tool(failure_error_function=None)
    async def breaks() -> str:
        await asyncio.wait_for(waits.wait(), 30)
        raise ValueError("broken")

    inner = Desk([asks(look("b", "i1"), pay(7, "i2"))])
    helper = inner.agent.as_tool("helper", "Help.", session=session)
    calls = [function_call("helper", {"input": "go"}, call_id="o1"), function_call("breaks", {}, call_id="o2")]
    outer = Agent(name="outer", tools=[helper, breaks], model=ScriptedModel([asks(*calls), says("ok")]))

    async def see_it_wait() -> None:
        async with open_store(tmp_path / "s.db") as store:
            while not any(call.state == "waiting" for call in (await store.run("r1")).calls):
                await asyncio.sleep(0.01)
        waits.set()

    run = asyncio.create_task(Runner.run(outer, "start", session=session, run_config=OUTER))
    await asyncio.wait_for(_retried(see_it_wait), 30)
    with pytest.raises((ValueError, StandfastError)):
        await run
    said = outputs(await session.get_items())
    assert said["i1"] == "saw b"
    assert set(said) == {"i1", "i2", "o1", "o2"}


async def _retried(work: Any) -> None:
    while True:
        try:
            return await work()
        except StandfastError:  # the run is not saved yet
            await asyncio.sleep(0.01)


# --- the run around it dies between the two ---------------------------------------------------------------------------


class ParentDies(SessionWrapper):
    """A session that takes everything but the end of the run outside: its process was killed before that."""

    is_dead = False

    def record(self, **given: Any) -> Coroutine[Any, Any, Any]:
        run = given.get("run")
        if not (self.is_dead and run is not None and run.run_id == "r1" and run.status == "cancelled"):
            return super().record(**given)
        if given.get("detached"):
            given["lease"].release_now()

        async def fails() -> None:
            raise StoreError("the process is gone", "There is none.")

        return fails()


@pytest.mark.parametrize("then", ["a new message", "resumed"])
async def test_an_agent_tool_that_closed_itself_before_a_kill_does_not_block_the_session(
    tmp_path: Path, then: str
) -> None:
    """Its turn is stored and the run around it does not know: told again otherwise it would be a second history."""
    session, begun = ParentDies(SQLiteSession("s", tmp_path / "s.db")), asyncio.Event()

    @function_tool
    async def see() -> str:
        return "saw b"

    @function_tool
    async def slow() -> str:
        begun.set()
        await asyncio.sleep(600)
        return "done"

    def agents(inner_steps: list[Any], outer_steps: list[Any]) -> Agent[Any]:
        inner = Agent(name="inner", tools=[see, slow], model=ScriptedModel(inner_steps))
        helper = inner.as_tool("helper", "Help.", session=session, failure_error_function=None)
        return Agent(name="outer", tools=[helper], model=ScriptedModel(outer_steps))

    calls = [function_call("see", {}, call_id="i1"), function_call("slow", {}, call_id="i2")]
    outer = agents([asks(*calls)], [asks(function_call("helper", {"input": "go"}, call_id="o1"))])
    session.is_dead = True
    run = asyncio.create_task(Runner.run(outer, "start", session=session, run_config=OUTER))
    await asyncio.wait_for(begun.wait(), 30)
    run.cancel()
    await asyncio.wait([run])
    session.is_dead = False

    again = agents([says("in")], [says("ok")])
    if then == "resumed":
        result = await Runner.resume(again, "r1", session=session)
    else:
        result = await Runner.run(again, "next", session=session)
    assert result.final_output == "ok"
    items = await session.get_items()
    said = outputs(items)
    assert said["i1"] == "saw b"
    assert UNKNOWN in said["i2"]
    assert UNKNOWN in said["o1"]
    assert len([item for item in items if item.get("type") == "function_call"]) == len(said) == 3
    assert json.dumps(items).count("saw b") == 1
