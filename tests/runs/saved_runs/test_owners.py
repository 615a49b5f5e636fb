"""A saved run belongs to whoever owned its conversation, and a finished one to nobody."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from standfast import (
    InMemoryRunStore,
    InMemorySession,
    NotFoundError,
    OwnerError,
    RunClaimedError,
    RunConfig,
    Runner,
    RunState,
    RunStateError,
    SQLiteSession,
)

from .payment_app import Desk, asks, kinds, look, pay, says

OWNERS: dict[str, dict[str, Any]] = {
    "replay": {},
    "session": {"session": "s"},
    "other session": {"session": "other"},
    "conversation": {"conversation_id": "conv"},
    "other conversation": {"conversation_id": "elsewhere"},
    "chain": {"previous_response_id": "r0"},
    "other chain": {"previous_response_id": "elsewhere"},
    "automatic chain": {"auto_previous_response_id": True},
}
SAME = {
    ("replay", "replay"),
    ("session", "session"),
    ("conversation", "conversation"),
    ("conversation", "replay"),  # the state knows the id
    ("chain", "chain"),
    ("chain", "automatic chain"),
    ("chain", "replay"),
    ("automatic chain", "automatic chain"),
    ("automatic chain", "replay"),
}


def options_of(owner: str, sessions: dict[str, Any]) -> dict[str, Any]:
    options = dict(OWNERS[owner])
    if "session" in options:
        options["session"] = sessions.setdefault(options["session"], InMemorySession(options["session"]))
    return options


@pytest.mark.clause("D1", backend="runs")
@pytest.mark.parametrize("resumed", OWNERS)
@pytest.mark.parametrize("started", ["replay", "session", "conversation", "chain", "automatic chain"])
async def test_resuming_under_another_owner_is_refused_before_anything_is_sent(started: str, resumed: str):
    sessions: dict[str, Any] = {}
    desk = Desk([asks(pay(5, "c1"), response_id="r1"), says("done")])
    state = await desk.reloaded((await desk.run("hi", **options_of(started, sessions))).to_state())
    state.approve(state.get_interruptions()[0])
    again = options_of(resumed, sessions)
    if (started, resumed) in SAME:
        assert (await desk.run(state, **again)).final_output == "done"
        return
    with pytest.raises(OwnerError) as caught:
        await desk.run(state, **again)
    assert caught.value.remedy
    with pytest.raises(OwnerError):  # a stream is refused just as early, and by the call itself
        Runner.run_streamed(desk.agent, state, **again)
    assert desk.done == []
    assert len(desk.sent) == 1
    assert (await desk.run(state, **options_of(started, sessions))).final_output == "done"  # nothing was consumed


@pytest.mark.clause("D1", backend="runs")
async def test_a_state_with_a_servers_ids_and_a_session_has_two_owners():
    desk = Desk([asks(pay(5, "c1"), response_id="r1"), says("done")])
    state = (await desk.run("hi", conversation_id="conv")).to_state()
    with pytest.raises(OwnerError):
        await desk.run(state, conversation_id="conv", session=InMemorySession("s"))
    with pytest.raises(OwnerError):
        await desk.run(state, session=InMemorySession("s"))


@pytest.mark.clause("D1", "C16", backend="runs")
@pytest.mark.parametrize("again", [{"conversation_id": "other"}, {"previous_response_id": "r0"}])
@pytest.mark.parametrize("started", [{"conversation_id": "conv"}, {}])
async def test_running_again_under_another_owner_is_refused_before_anything_is_sent(
    started: dict[str, str], again: dict[str, str]
):
    """The run would go on where it began, and its caller would take it for a part of the other conversation."""
    desk = Desk([asks(pay(5, "c1"), response_id="r1"), says("done")])
    config = RunConfig(run_id="job", run_store=InMemoryRunStore())
    await desk.run("hi", run_config=config, **started)
    with pytest.raises(OwnerError, match="would go on under"):
        await desk.run("hi", run_config=config, **again)
    assert len(desk.sent) == 1
    assert (await desk.run("hi", run_config=config, **started)).interruptions


# --- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.clause("D7", backend="runs")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_finished_run_cannot_be_resumed_and_the_error_says_how_to_go_on(streamed: bool, tmp_path: Path):
    session = SQLiteSession("s", tmp_path / "runs.db")
    desk = Desk([asks(look("sky", "c1")), says("done"), says("never")])
    result = await desk.run("hi", session=session)
    state = result.to_state()
    assert state.status == "done"
    for one in (state, await desk.reloaded(state)):
        with pytest.raises(RunStateError, match="new turn"):
            await desk.once(one, streamed, {"session": session})
    with pytest.raises(RunStateError, match="ended"):
        await Runner.resume(desk.agent, result.run_id, session=session)
    assert len(desk.sent) == 2
    session.close()


@pytest.mark.clause("D7", backend="runs")
async def test_the_same_object_resumed_to_its_end_is_finished_too():
    desk = Desk([asks(pay(5, "c1")), says("done"), says("never")])
    state = (await desk.run("hi")).to_state()
    state.approve(state.get_interruptions()[0])
    await desk.run(state)
    assert state.status == "done"
    with pytest.raises(RunStateError):
        await desk.run(state)


# --- the store it is kept in -----------------------------------------------------------------------------------------


async def test_a_run_that_is_kept_in_a_store_is_not_resumed_without_it(tmp_path: Path):
    """Else nobody could tell that somebody else resumed it."""
    desk = Desk([asks(pay(5, "c1")), says("done")])
    store = InMemoryRunStore()
    result = await desk.run("hi", run_config=RunConfig(run_store=store))
    state = await desk.reloaded(result.to_state())
    state.approve(state.get_interruptions()[0])
    with pytest.raises(RunStateError, match="run store"):
        await desk.run(state)
    with pytest.raises(NotFoundError):
        await desk.run(state, run_config=RunConfig(run_store=InMemoryRunStore()))
    assert desk.done == []
    assert (await desk.run(state, run_config=RunConfig(run_store=store))).final_output == "done"


async def test_a_state_in_the_same_process_knows_its_store():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    store = InMemoryRunStore()
    result = await desk.run("hi", run_config=RunConfig(run_store=store))
    state, twin = result.to_state(), result.to_state()
    for one in (state, twin):
        one.approve(one.get_interruptions()[0])
    assert (await desk.run(state)).final_output == "done"
    with pytest.raises(RunClaimedError):
        await desk.run(twin)
    assert desk.done == [("pay", 5)]
    runs, _ = await Runner.list_runs(run_store=store)
    assert [run.status for run in runs] == ["done"]


async def test_an_approved_run_without_a_lease_is_not_mistaken_for_a_running_one():
    desk = Desk([asks(pay(5, "c1")), says("done")])
    store = InMemoryRunStore()
    result = await desk.run("hi", run_config=RunConfig(run_store=store))
    state = await Runner.load(desk.agent, result.run_id, run_store=store)
    state.approve(state.get_interruptions()[0])
    assert (await desk.run(state)).final_output == "done"


# --- what can be sent again ------------------------------------------------------------------------------------------


@pytest.mark.clause("D12", backend="runs")
@pytest.mark.parametrize("with_session", [False, True])
@pytest.mark.parametrize("mode", ["preserve_all", "normalized"])
async def test_the_input_list_of_a_paused_run_leaves_out_what_was_not_answered(mode: Any, with_session: bool):
    thought = {"type": "reasoning", "id": "t1", "summary": []}
    second = {"type": "reasoning", "id": "t2", "summary": []}
    desk = Desk([asks(look("sea", "c0")), asks(thought, look("sky", "c1"), second, pay(5, "c2")), says("done")])
    options: dict[str, Any] = {"session": InMemorySession("s")} if with_session else {}
    result = await desk.run("hi", **options)
    assert [item.call_id for item in result.interruptions] == ["c2"]
    expected = ["user", "call c0", "output c0", "reasoning t1", "call c1", "output c1"]
    assert kinds(result.to_input_list(mode=mode)) == expected
    state = await desk.reloaded(result.to_state())
    looked = await desk.run(state, **options)  # nothing decided: the same, in another process
    assert kinds(looked.to_input_list(mode=mode)) == expected
    state.approve(state.get_interruptions()[0])
    done = await desk.run(state, **options)
    assert kinds(done.to_input_list(mode=mode)) == [
        *expected[:-1],
        "reasoning t2",
        "call c2",
        "output c1",
        "output c2",
        "assistant",
    ]


@pytest.mark.clause("D12", backend="runs")
async def test_the_input_list_of_a_failed_run_can_be_sent_again():
    desk = Desk([asks(look("sea", "c0")), ValueError("dead"), says("done")])
    with pytest.raises(ValueError, match="dead") as caught:
        await desk.run("hi")
    state = caught.value.run_state  # type: ignore[attr-defined]  # any error carries it
    assert isinstance(state, RunState)
    result = await desk.run(state)
    assert kinds(result.to_input_list()) == ["user", "call c0", "output c0", "assistant"]
