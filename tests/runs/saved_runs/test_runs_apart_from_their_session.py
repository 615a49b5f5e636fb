"""Runs that are saved in another store than their session: a turn can be stored there and not be saved here yet."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    InMemoryRunStore,
    InMemorySession,
    RunConfig,
    Runner,
    SQLiteSession,
    UserError,
    function_tool,
)
from standfast._src.base.errors import StoreUnavailableError
from standfast.testing import ScriptedModel, final, function_call
from tests.helpers.runs_apart import KeepsNoRuns, without_runs
from tests.mistakes.planting import planted
from tests.mistakes.registry import named


class Dying(InMemoryRunStore):
    """Takes so many saves, and then none, as if the process had been killed there."""

    saves_left = 10**9

    async def save_run(self, *args: Any, **options: Any) -> Any:
        if self.saves_left <= 0:
            raise StoreUnavailableError("gone", "Start it again.")
        self.saves_left -= 1
        return await super().save_run(*args, **options)


@function_tool
async def look() -> str:
    """Look."""
    return "blue"


async def requests_after_dying_at(save: int) -> list[list[str]] | None:
    """What the models of a resumed run see whose worker died at that save; None if it came to its end before."""
    session, store = KeepsNoRuns("s"), Dying()
    store.saves_left = save
    replies: list[Any] = [
        [function_call("look", {}, call_id="c1")],
        [function_call("look", {}, call_id="c2")],
        final("done"),
    ]
    config = RunConfig(run_id="r", run_store=store)
    try:
        await Runner.run(
            Agent(name="A", model=ScriptedModel(replies), tools=[look]), "hi", session=session, run_config=config
        )
    except StoreUnavailableError:
        pass
    else:
        return None
    store.saves_left = 10**9
    if await store.load_run("r") is None:
        return []
    stored = await session.get_items()
    left: list[Any] = [
        reply for number, reply in enumerate(replies) if number >= sum(i.get("type") == "function_call" for i in stored)
    ]
    model = ScriptedModel([*left, final("done"), final("done")])
    await Runner.resume(
        Agent(name="A", model=model, tools=[look]), "r", session=session, run_store=store, takeover=True
    )
    return [
        [str(item.get("call_id") or item.get("content")) + str(item.get("type")) for item in call.input]
        for call in model.calls
    ]


async def doubled() -> list[list[str]]:
    found: list[list[str]] = []
    for save in range(1, 40):
        requests = await requests_after_dying_at(save)
        if requests is None:
            return found
        found += [request for request in requests if len(set(request)) != len(request)]
    pytest.fail("the run never came to its end")


async def test_what_the_session_holds_already_is_not_sent_a_second_time() -> None:
    assert await doubled() == []


async def test_a_resumer_that_does_not_ask_what_the_session_holds_is_seen() -> None:
    with planted(named("engine/a-claim-does-not-ask-what-the-session-holds")):
        assert await doubled()


class Killed(KeepsNoRuns):
    """Its store has not got what a run that was told twice to stop had submitted last: its process was killed."""

    def record(self, **given: Any) -> Any:
        if given.get("detached"):
            given |= {"items": (), "costs": None, "nested": ()}
        return super().record(**given)


async def test_a_run_that_was_saved_and_whose_last_turn_was_not_stored_goes_on_with_it() -> None:
    """C8, C12: the two submissions are to two stores, and a kill may come between them, whichever was first."""
    session, store = Killed("s"), InMemoryRunStore()
    begun, ended = asyncio.Event(), asyncio.Event()

    @function_tool
    async def wait() -> str:
        """Wait, also when told to stop."""
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            await ended.wait()
        return "waited"

    calls = [function_call("look", {}, call_id="c1"), function_call("wait", {}, call_id="c2")]
    agent = Agent(name="A", model=ScriptedModel([calls, final("done")]), tools=[look, wait])
    config = RunConfig(run_id="r", run_store=store)
    run = asyncio.create_task(Runner.run(agent, "hi", session=session, run_config=config))
    await begun.wait()
    for _ in range(2):
        run.cancel()
        await asyncio.sleep(0.01)
    ended.set()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert await session.get_items() == []
    result = await Runner.resume(agent, "r", session=session, run_store=store)
    assert result.final_output == "done"
    kinds = [item.get("type", "input") for item in await session.get_items()]
    assert kinds == ["input", *["function_call"] * 2, *["function_call_output"] * 2, "message"]


# --- a session that can keep its runs ---------------------------------------------------------------------------------


async def test_another_store_is_refused_where_the_sessions_own_can_keep_the_run(tmp_path: Path) -> None:
    """C12: nothing was begun, saved or asked for."""
    store = InMemoryRunStore()
    for session in (InMemorySession("s"), SQLiteSession("s", tmp_path / "talks.db")):
        model = ScriptedModel([final("done")])
        with pytest.raises(UserError, match="keeps its runs itself") as caught:
            await Runner.run(Agent(name="A", model=model), "hi", session=session, run_config=RunConfig(run_store=store))
        assert "Leave run_store out" in caught.value.remedy
        assert not model.calls
        assert await session.get_items() == []
    assert await store.list_runs() == ([], None)


async def test_the_sessions_own_store_may_be_given_through_another_object(tmp_path: Path) -> None:
    session, other = SQLiteSession("s", tmp_path / "talks.db"), SQLiteSession("-", tmp_path / "talks.db")
    never = RunConfig(save="never", run_store=InMemoryRunStore())
    for config in (RunConfig(run_store=other.run_store()), RunConfig(run_store=None), never):
        result = await Runner.run(
            Agent(name="A", model=ScriptedModel([final("done")])), "hi", session=session, run_config=config
        )
        assert result.final_output == "done"
    never = RunConfig(save="never", run_store=InMemoryRunStore())
    assert (
        await Runner.run(Agent(name="A", model=ScriptedModel([final("done")])), "hi", session=session, run_config=never)
    ).final_output == "done"


async def test_runs_that_are_saved_elsewhere_are_resumed_cancelled_and_deleted() -> None:
    apart, store = KeepsNoRuns("s"), InMemoryRunStore()
    session = without_runs(apart)
    session.__class__ = InMemorySession  # the same conversation, by a release that kept no runs beside it

    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    for run_id in ("resumed", "cancelled"):
        calls = [function_call("pay", {}, call_id=run_id)]
        agent = Agent(name="A", model=ScriptedModel([calls, final("done")]), tools=[pay])
        config = RunConfig(run_id=run_id, run_store=store, unfinished="ignore")
        await Runner.run(agent, "hi", session=apart, run_config=config)
        if run_id == "cancelled":
            await Runner.cancel_run(agent, run_id, session=session, run_store=store)
            continue
        state = await Runner.load(agent, run_id, run_store=store)
        state.approve(state.get_interruptions()[0])
        assert (await Runner.run(agent, state, session=session)).final_output == "done"
    assert await Runner.delete_run("cancelled", run_store=store)
