"""Saved runs through the API: list, look, resume, give up, forget; and what is said when something is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    InMemoryRunStore,
    InMemorySession,
    ModelBehaviorError,
    NotFoundError,
    RunClaimedError,
    RunConfig,
    Runner,
    RunState,
    RunStateError,
    SessionConflictError,
    SQLiteSession,
    ToolContext,
    UserError,
    function_tool,
)
from standfast._src.items.texts_for_models import DEFAULT_TEXTS
from standfast._src.runs.engine.run_store import SavedRun
from standfast.testing import ScriptedModel, assistant_message, function_call, handoff_call
from tests.helpers.model_texts import UNKNOWN_OUTCOME
from tests.helpers.runs_apart import without_runs

from .payment_app import Desk, asks, kinds, look, outputs, pay, says


@pytest.fixture(params=["memory", "sqlite"])
async def session(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    made: Any = InMemorySession("s") if request.param == "memory" else SQLiteSession("s", tmp_path / "runs.db")
    yield made
    await made.close()


async def paused(session: Any, **agent: Any) -> tuple[Desk, str]:
    desk = Desk([asks(look("sky", "c0")), asks(look("sea", "c1"), pay(5, "c2")), says("done")], **agent)
    result = await desk.run("hi", session=session)
    assert [item.call_id for item in result.interruptions] == ["c2"]
    return desk, result.run_id


# --- list and look ---------------------------------------------------------------------------------------------------


async def test_saved_runs_are_listed_newest_first_in_pages_and_by_status(session: Any):
    waiting = [(await paused(session))[1] for _ in range(3)]
    desk = Desk([asks(look("sky", "c1")), says("done")])
    ended = (await desk.run("hi", session=session)).run_id
    runs, more = await Runner.list_runs(session=session)
    assert [run.run_id for run in runs] == [ended, *reversed(waiting)]
    assert [run.status for run in runs] == ["done", "paused", "paused", "paused"]
    assert {(run.session_id, run.agent) for run in runs} == {("s", "clerk")}
    assert more is None
    page, cursor = await Runner.list_runs(session=session, status="paused", limit=2)
    rest, end = await Runner.list_runs(session=session, status="paused", limit=2, after=cursor)
    assert [run.run_id for run in [*page, *rest]] == list(reversed(waiting))
    assert end is None


async def test_a_run_of_one_turn_without_tools_is_not_saved_at_all(session: Any):
    """Nothing of it must survive but its turn, and that is in the session."""
    await Desk([says("done")]).run("hi", session=session)
    assert await Runner.list_runs(session=session) == ([], None)


async def test_a_saved_run_can_be_looked_at_and_decided_about_in_another_place(session: Any):
    desk, run_id = await paused(session)
    state = await Runner.load(desk.agent, run_id, session=session, context={"who": "me"})
    assert (state.run_id, state.status, state.current_turn, state.max_turns) == (run_id, "paused", 2, 10)
    assert state.context_wrapper.context == {"who": "me"}
    assert state.context_wrapper.usage.requests == 2
    assert state.get_tool_use_tracker_snapshot() == {"clerk": ["look", "pay"]}
    calls = [(call.call_id, call.tool_name, call.status) for call in state.get_calls()]
    assert calls == [("c0", "look", "done"), ("c1", "look", "done"), ("c2", "pay", "waiting")]
    assert state.get_calls()[-1].idempotency_key == f"{run_id}:c2"
    assert "paused" in repr(state)
    state.approve(state.get_interruptions()[0])
    result = await desk.run(state, session=session)
    assert result.final_output == "done"
    assert result.context_wrapper.usage.requests == 3
    assert desk.keys == [f"{run_id}:c2"]


async def test_there_must_be_a_store_to_look_in():
    desk = Desk([])
    with pytest.raises(UserError, match="no run store"):
        await Runner.list_runs()
    with pytest.raises(NotFoundError, match="'nobody'"):
        await Runner.load(desk.agent, "nobody", run_store=InMemoryRunStore())
    with pytest.raises(NotFoundError):
        await Runner.resume(desk.agent, "nobody", run_store=InMemoryRunStore())


# --- give up ---------------------------------------------------------------------------------------------------------


async def test_giving_up_a_paused_run_rejects_what_waits_and_stores_the_turn_whole(session: Any):
    desk, run_id = await paused(session)
    assert kinds(await session.get_items()) == ["user", "call c0", "output c0"]
    assert await Runner.cancel_run(desk.agent, run_id, session=session, message="nobody answered") == []
    stored = await session.get_items()
    assert kinds(stored) == ["user", "call c0", "output c0", "call c1", "call c2", "output c1", "output c2"]
    assert outputs(stored)["c2"] == "nobody answered"
    runs, _ = await Runner.list_runs(session=session)
    assert [run.status for run in runs] == ["cancelled"]
    for again in (Runner.cancel_run, Runner.resume):
        with pytest.raises(RunStateError, match="ended"):
            await again(desk.agent, run_id, session=session)
    assert ("pay", 5) not in desk.done
    after = Desk([says("welcome back")])
    await after.run("hello again", session=session)
    assert kinds(after.sent[0]) == [*kinds(stored), "user"]  # a provider accepts the history as it is


async def test_giving_up_a_run_that_another_worker_took_meanwhile_is_refused(session: Any):
    desk, run_id = await paused(session)
    state = await Runner.load(desk.agent, run_id, session=session)
    state.approve(state.get_interruptions()[0])
    paying, go_on = asyncio.Event(), asyncio.Event()
    original = desk.pay.on_invoke_tool

    async def slowly(context: Any, arguments: str) -> Any:
        paying.set()
        await go_on.wait()
        return await original(context, arguments)

    desk.pay.on_invoke_tool = slowly
    worker = asyncio.create_task(desk.run(state, session=session))
    await paying.wait()
    giving_up = asyncio.create_task(Runner.cancel_run(desk.agent, run_id, session=session))
    await asyncio.sleep(0.05)  # it has loaded the run and waits for the session
    go_on.set()
    assert (await worker).final_output == "done"
    with pytest.raises((RunClaimedError, RunStateError)):
        await giving_up
    assert outputs(await session.get_items())["c2"] == "paid 5"


async def test_a_call_that_had_begun_is_not_said_not_to_have_run_when_its_run_is_given_up(session: Any):
    desk, run_id = await begun(session)
    await Runner.cancel_run(desk.agent, run_id, session=session, message="nobody answered")
    assert outputs(await session.get_items()) == {"c1": DEFAULT_TEXTS.not_completed}


async def test_a_server_that_owns_the_conversation_is_owed_the_outputs_of_a_run_that_was_given_up():
    desk = Desk([asks(pay(5, "c1"), look("sea", "c2"), response_id="r1")])
    store = InMemoryRunStore()
    result = await desk.run("hi", conversation_id="conv", run_config=RunConfig(run_store=store))
    owed = await Runner.cancel_run(desk.agent, result.run_id, run_store=store, message="no")
    assert outputs(owed) == {"c1": "no", "c2": "saw sea"}
    assert kinds(owed) == ["output c1", "output c2"]


# --- forget ----------------------------------------------------------------------------------------------------------


async def test_ended_runs_are_forgotten_by_number_and_by_age_and_waiting_ones_are_kept(session: Any):
    desk, waiting = await paused(session)
    ended = []
    for _ in range(4):
        one = Desk([asks(look("sky", "c1")), says("done")])
        ended.append((await one.run("hi", session=session)).run_id)
    assert await Runner.prune_runs(session=session, older_than_s=3600) == 0
    assert await Runner.prune_runs(session=session, keep=3) == 1
    runs, _ = await Runner.list_runs(session=session)
    assert [run.run_id for run in runs] == [*reversed(ended[1:]), waiting]
    assert await Runner.prune_runs(session=session, older_than_s=0) == 3
    with pytest.raises(RunStateError, match="has not ended"):
        await Runner.delete_run(waiting, session=session)
    await Runner.cancel_run(desk.agent, waiting, session=session)
    assert await Runner.delete_run(waiting, session=session) is True
    assert await Runner.delete_run(waiting, session=session) is False
    assert await Runner.list_runs(session=session) == ([], None)
    assert kinds(await session.get_items())[0] == "user"  # the history stays
    with pytest.raises(NotFoundError):
        await Runner.resume(desk.agent, waiting, session=session)


# --- what is gone ----------------------------------------------------------------------------------------------------


async def test_a_run_whose_tool_is_gone_says_so_before_anything_runs_and_is_not_consumed(session: Any):
    desk = Desk([asks(pay(5, "c1"), pay(6, "c2")), says("done")])
    run_id = (await desk.run("hi", session=session)).run_id
    desk.agent.tools = [desk.look]
    state = await Runner.load(desk.agent, run_id, session=session)
    for item in state.get_interruptions():
        state.approve(item)
    with pytest.raises(ModelBehaviorError, match="'pay'"):
        await desk.run(state, session=session)
    desk.agent.tools = [desk.pay, desk.look]
    assert (await desk.run(state, session=session)).final_output == "done"
    assert desk.done == [("pay", 5), ("pay", 6)]


async def test_a_tool_that_is_gone_may_be_told_to_the_model_instead(session: Any):
    desk, run_id = await paused(session)
    desk.agent.tools = [desk.look]
    state = await Runner.load(desk.agent, run_id, session=session)
    state.approve(state.get_interruptions()[0])
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    assert (await desk.run(state, session=session, run_config=config)).final_output == "done"
    assert "'pay'" in outputs(desk.sent[-1])["c2"]


async def test_a_run_whose_agent_is_gone_says_so(session: Any):
    second = Desk([asks(pay(5, "c1")), says("done")])
    first: Any = Agent(
        name="front", model=ScriptedModel([asks(handoff_call(second.agent, call_id="h1"))]), handoffs=[second.agent]
    )
    result = await Runner.run(first, "hi", session=session)
    text = result.to_state().to_string()
    lonely: Any = Agent(name="front", model=ScriptedModel([]))
    for attempt in (
        Runner.load(lonely, result.run_id, session=session),
        Runner.resume(lonely, result.run_id, session=session),
        Runner.cancel_run(lonely, result.run_id, session=session),
        RunState.from_string(lonely, text),
    ):
        with pytest.raises(RunStateError, match="'clerk'"):
            await attempt
    state = await RunState.from_string(first, text)
    state.approve(state.get_interruptions()[0])
    with pytest.raises(RunStateError, match="'clerk'"):
        await Runner.run(lonely, state, session=session)
    assert (await Runner.run(first, state, session=session)).final_output == "done"


# --- a call that had begun -------------------------------------------------------------------------------------------


class PowerCut(BaseException):
    """The process is gone: nothing after this is written."""


async def begun(session: Any, *, tool: Any = None) -> tuple[Desk, str]:
    """A run whose process went away inside a call, as far as its store can tell."""
    desk = Desk([asks(pay(5, "c1")), says("done")], needs_approval=False)
    if tool is not None:
        tool(desk.pay)
    store = session.run_store()

    class Cut:
        """A store that, once the call has begun, hears no more."""

        dead = False

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def save_run(self, *args: Any, **kwargs: Any) -> int:
            if self.dead:
                raise PowerCut
            self.dead = True
            revision: int = await store.save_run(*args, **kwargs)
            return revision

    with pytest.raises(BaseException) as caught:
        await desk.run("hi", session=without_runs(session), run_config=RunConfig(run_store=Cut()))  # type: ignore[arg-type]  # by attribute
    assert isinstance(caught.value, PowerCut)
    assert desk.done == [("pay", 5)]
    ((run,), _) = await Runner.list_runs(session=session)
    state = await Runner.load(desk.agent, run.run_id, session=session)
    assert [call.status for call in state.get_calls()] == ["started"]
    return desk, run.run_id


async def test_by_default_an_unknown_outcome_is_reported_to_the_model_and_the_call_is_not_run_again(session: Any):
    desk, run_id = await begun(session)
    assert (await Runner.resume(desk.agent, run_id, session=session)).final_output == "done"
    assert outputs(desk.sent[-1]) == {"c1": UNKNOWN_OUTCOME}
    assert desk.done == [("pay", 5)]


async def test_a_tool_that_may_run_twice_is_run_again_with_the_same_key(session: Any):
    desk, run_id = await begun(session, tool=lambda pay: setattr(pay, "on_unknown", "rerun"))
    assert (await Runner.resume(desk.agent, run_id, session=session)).final_output == "done"
    assert outputs(desk.sent[-1]) == {"c1": "paid 5"}
    assert desk.done == [("pay", 5)] * 2
    assert desk.keys == [f"{run_id}:c1"] * 2


@pytest.mark.parametrize("answer", ["run it again", "it has run", "say nothing"])
async def test_a_person_may_be_asked_about_an_unknown_outcome(answer: str, session: Any):
    desk, run_id = await begun(session, tool=lambda pay: setattr(pay, "on_unknown", "ask"))
    result = await Runner.resume(desk.agent, run_id, session=session)
    (item,) = result.interruptions
    assert (item.call_id, item.reason) == ("c1", "unknown")
    state = await desk.reloaded(result.to_state())
    (item,) = state.get_interruptions()
    assert item.reason == "unknown"
    if answer == "run it again":
        state.approve(item)
    elif answer == "it has run":
        state.reject(item, rejection_message="The payment is on the statement.")
    else:
        state.reject(item)
    await desk.run(state, session=session)
    said = {"run it again": "paid 5", "it has run": "The payment is on the statement.", "say nothing": UNKNOWN_OUTCOME}
    assert outputs(desk.sent[-1]) == {"c1": said[answer]}
    assert len(desk.done) == (2 if answer == "run it again" else 1)


async def test_a_run_that_seems_to_be_running_is_not_taken_without_a_lease_or_the_word():
    store = InMemoryRunStore()
    started, hold = asyncio.Event(), asyncio.Event()
    desk = Desk([asks(pay(5, "c1")), says("done"), says("done")], needs_approval=False)
    original = desk.pay.on_invoke_tool

    async def slow(context: Any, arguments: str) -> Any:
        started.set()
        await hold.wait()
        return await original(context, arguments)

    desk.pay.on_invoke_tool = slow
    task = asyncio.create_task(desk.run("hi", run_config=RunConfig(run_store=store)))
    await started.wait()
    ((run,), _) = await Runner.list_runs(run_store=store)
    assert run.status == "running"
    with pytest.raises(RunClaimedError, match="takeover"):
        await Runner.resume(desk.agent, run.run_id, run_store=store, run_config=RunConfig(lease_wait_s=0.1))
    taken = await Runner.resume(desk.agent, run.run_id, run_store=store, takeover=True)
    assert outputs(taken.to_input_list()) == {"c1": UNKNOWN_OUTCOME}
    hold.set()
    with pytest.raises(RunClaimedError):  # the first worker was alive: it is told, and writes nothing more
        await task
    assert desk.done == [("pay", 5)]


# --- under the caller's own id ---------------------------------------------------------------------------------------


async def test_running_again_under_the_same_id_needs_the_same_input(session: Any):
    desk, run_id = await paused_under(session, "mine")
    with pytest.raises(SessionConflictError, match="another input"):
        await desk.run("something else", session=session, run_config=RunConfig(run_id="mine"))
    again = await desk.run("hi", session=session, run_config=RunConfig(run_id="mine"))
    assert [item.call_id for item in again.interruptions] == ["c1"]
    assert again.run_id == run_id == "mine"
    assert len(desk.sent) == 1


async def paused_under(session: Any, run_id: str) -> tuple[Desk, str]:
    desk = Desk([asks(pay(5, "c1")), says("done")])
    result = await desk.run("hi", session=session, run_config=RunConfig(run_id=run_id))
    return desk, result.run_id


async def test_an_ended_run_is_not_started_again_under_its_id_and_gives_its_result_again(session: Any):
    """Whoever died before it had the result asks for it again."""
    for options in ({"session": session}, {"run_store": session.run_store()}):
        desk = Desk([asks(look("sky", "c1")), says("done"), says("never")])
        run_id = "mine" if "session" in options else "other"
        config = RunConfig(run_store=options.get("run_store", "auto"), run_id=run_id)
        on = {"session": session} if "session" in options else {}
        first = await desk.run("hi", run_config=config, **on)
        again = await desk.run("hi", run_config=config, **on)
        assert again.final_output == first.final_output == "done"
        assert kinds(again.to_input_list()) == kinds(first.to_input_list())
        assert desk.done == [("look", "sky")]
        assert len(desk.sent) == 2
        with pytest.raises(RunStateError, match="ended"):
            await Runner.resume(desk.agent, run_id, session=session)
        with pytest.raises(RunStateError, match="ended"):
            await Runner.cancel_run(desk.agent, run_id, session=session)


class Counting(InMemoryRunStore):
    """Counts how often a run is read."""

    loads = 0

    async def load_run(self, run_id: str) -> SavedRun | None:
        self.loads += 1
        return await super().load_run(run_id)


async def test_resuming_by_id_reads_the_run_once():
    """It was loaded, decoded and checked twice: once to make a state of it, and again to resume that."""
    store = Counting()
    config = RunConfig(run_store=store, run_id="r")
    agent = Agent(name="a", model=ScriptedModel([[function_call("note", {"text": "x"}, call_id="n1")]]), tools=[note])
    with pytest.raises(Exception):  # noqa: B017 — whatever a script says that is used up
        await Runner.run(agent, "hi", run_config=config)
    agent.model = ScriptedModel([[assistant_message("done")]])
    store.loads = 0
    result = await Runner.resume(agent, "r", run_store=store)
    assert (result.final_output, store.loads) == ("done", 1)


@function_tool
def note(text: str) -> str:
    """Note."""
    return "noted"


async def test_no_call_of_another_run_has_the_idempotency_key_of_a_call():
    """The model chooses the id of a call: in run `a`, `b:c` made the key of call `c` of run `a:b`."""
    keys = []

    @function_tool
    def pay(context: ToolContext[Any]) -> str:
        """Pay."""
        keys.append(context.idempotency_key)
        return "paid"

    for run_id, call_id in (("a", "b:c"), ("a:b", "c"), ("a%3Ab", "c"), ("a", "b%3Ac")):
        model = ScriptedModel([[function_call("pay", {}, call_id=call_id)], [assistant_message("done")]])
        config = RunConfig(run_id=run_id)
        await Runner.run(Agent(name="Clerk", tools=[pay], model=model), "Pay.", run_config=config)
    assert len(set(keys)) == 4
    assert keys[0] == "a:b:c"
