"""The six properties that "Resume Means Resume" names, as tests with those names.

How each was read is said in docs/explanation/resume-means-resume.md. The scripts are generated; a process dies at any
of its steps; what must hold is compared with a run that nothing happened to.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from standfast import InMemorySession, RunClaimedError, Runner, RunState
from standfast._src.items.history import prune
from standfast._src.runs.engine.codec import decode_saved, encode_head, encode_tails, has_ended
from standfast._src.runs.engine.due import due
from standfast._src.runs.engine.run_store import SavedRun
from tests.helpers.model_texts import UNKNOWN_OUTCOME

from .payment_app import Desk, asks, kinds, look, outputs, pay, says
from .simulated_crash import RUN_ID, World

scripts = st.lists(st.lists(st.sampled_from(["look", "pay", "ask"]), min_size=1, max_size=2), min_size=1, max_size=3)
deaths = st.lists(st.integers(1, 40), min_size=1, max_size=3)
owners = st.sampled_from(["session", "replay"])
WHOLE = [["look", "pay"], ["ask"], ["pay"]]


async def calm(script: Any, **options: Any) -> World:
    world = World(script, **options)
    result = await world.live()
    assert result is not None
    assert result.final_output == "finished"
    return world


async def troubled(script: Any, dying_at: list[int], **options: Any) -> tuple[World, Any]:
    """The same job in a process that dies, and is followed by others until one lives."""
    world = World(script, **options)
    for die_at in dying_at:
        result = await world.live(die_at)
        if result is not None:
            break
    else:
        result = await world.live()
    assert result is not None
    return world, result


# --- prefix continuation ---------------------------------------------------------------------------------------------


@pytest.mark.clause("D7", backend="runs")
@settings(max_examples=40)
@given(scripts, deaths, owners)
@example(WHOLE, [7, 9, 11], "session")
async def test_prefix_continuation(script: Any, dying_at: list[int], owner: str):
    """A resumed run continues what was said: each request is a request of the calm run, and they never go back."""
    expected = (await calm(script, owner=owner, policy="rerun")).sent
    world, result = await troubled(script, dying_at, owner=owner, policy="rerun")
    assert result.final_output == "finished"
    places = [expected.index(sent) for sent in world.sent]  # each is one the calm run sent, to the byte
    assert places == sorted(places)
    assert set(places) == set(range(len(expected)))


# --- effect exactly-once ---------------------------------------------------------------------------------------------


@pytest.mark.clause("C12", backend="runs")
@settings(max_examples=40)
@given(scripts, deaths, owners)
@example(WHOLE, [7, 9, 11], "session")
async def test_effect_exactly_once(script: Any, dying_at: list[int], owner: str):
    """An effect whose result is known happened once; an unknown one at most once, and that is said."""
    world, result = await troubled(script, dying_at, owner=owner)
    happened = Counter(key for key, _ in world.done)
    assert max(happened.values(), default=0) <= 1
    for call_id, text in outputs(result.to_input_list()).items():
        if text in ("look done", "pay done"):
            assert happened[f"{RUN_ID}:{call_id}"] == 1
        else:
            assert text in (UNKNOWN_OUTCOME, "finished")
    unknown = [text for text in outputs(result.to_input_list()).values() if text == UNKNOWN_OUTCOME]
    assert len(unknown) <= len(dying_at) * 2  # only what was under way at a death can be unknown


# --- fork determinism ------------------------------------------------------------------------------------------------


FIRST_REPLY = asks(pay(1, "c1"), look("sky", "c2"))
LATER_REPLIES = [asks(pay(2, "c3")), says("done")]


async def finish(desk: Desk, text: str, approve: bool) -> Any:
    """Resume a text in a process of its own, as far as it can tell, with one answer to everything."""
    state = await RunState.from_string(desk.agent, text)
    result: Any = None
    while result is None or result.interruptions:
        state = state if result is None else result.to_state()
        for item in state.get_interruptions():
            state.approve(item) if approve else state.reject(item, rejection_message="no")
        result = await Runner.run(desk.agent, state)
    return result


@pytest.mark.parametrize("answers", [(True, True), (True, False), (False, False)])
async def test_fork_determinism(answers: tuple[bool, bool]):
    """Two continuations of one checkpoint: the same answers make the same run, other answers another, and neither
    sees the other, in whatever order and however interleaved they run."""
    first = Desk([FIRST_REPLY, *LATER_REPLIES])
    text = (await Runner.run(first.agent, "hi")).to_state().to_string()
    desks = [Desk(LATER_REPLIES), Desk(LATER_REPLIES)]
    results = await asyncio.gather(*(finish(desk, text, approve) for desk, approve in zip(desks, answers, strict=True)))
    sent = [json.dumps(desk.sent) for desk in desks]
    lists = [result.to_input_list() for result in results]
    if answers[0] == answers[1]:
        assert sent[0] == sent[1]
        assert lists[0] == lists[1]
        assert desks[0].done == desks[1].done
    else:
        assert set(outputs(lists[0]).values()) == {"paid 1", "saw sky", "paid 2"}
        assert set(outputs(lists[1]).values()) == {"no", "saw sky"}
        assert kinds(lists[0]) == kinds(lists[1])
    assert first.done == [("look", "sky")]  # the run they came from has not moved
    assert json.loads(text) == json.loads((await RunState.from_string(first.agent, text)).to_string())


# --- checkpoint validity ---------------------------------------------------------------------------------------------


@pytest.mark.clause("C12", "D7", backend="runs")
@settings(max_examples=15)
@given(scripts)
@example(WHOLE)
async def test_checkpoint_validity(script: Any):
    """Every checkpoint can be read, says what it said, leaves a history a provider accepts, and is enough to finish."""
    world = await calm(script, policy="rerun")
    history = await world.session.get_items()
    assert world.checkpoints
    for saved, stored in world.checkpoints:
        kept, dropped = prune([dict(item) for item in stored])
        assert not dropped
        assert kept == stored == history[: len(stored)]  # a prefix of the whole, ending between two turns
        if has_ended(saved):
            continue
        run = decode_saved(saved)
        tails = {name: tail.records for name, tail in encode_tails(run, {}).items()}
        again = decode_saved(SavedRun(saved.run_id, saved.revision, encode_head(run), tails))
        assert again == run
        assert due(again) == due(run)
    for saved, stored in world.checkpoints[:: max(1, len(world.checkpoints) // 6)]:
        if not has_ended(saved):
            later = await _restored(world, saved, stored)
            result = await later.live()
            assert result is not None
            assert result.final_output == "finished"
            assert await later.session.get_items() == history


async def _restored(world: World, saved: SavedRun, stored: list[Any]) -> World:
    """A world that has nothing but this checkpoint and the history of that moment."""
    from standfast._src.runs.engine.run_store import LogTail

    later = World(world.script, policy="rerun")
    await InMemorySession.append(later.session, stored, writer=RUN_ID, start=0)
    tails = {name: LogTail(0, records) for name, records in saved.logs.items()}
    for revision in range(saved.revision):
        head = saved.head if revision + 1 == saved.revision else b"{}"
        await later.store.save_run(
            RUN_ID, expect=revision, head=head, tails=tails, status="running", agent="worker", session_id="conversation"
        )
    return later


# --- consume-once ----------------------------------------------------------------------------------------------------


@pytest.mark.clause("C12", backend="runs")
@settings(max_examples=20)
@given(st.integers(1, 64), st.sampled_from(["text", "load", "both"]))
async def test_consume_once(count: int, how: str):
    """However many hold a checkpoint, as text or by its id, one continues it (for processes: test_consume_once.py)."""
    session = InMemorySession("s")
    desk = Desk([asks(pay(5, "c1")), says("done")])
    result = await Runner.run(desk.agent, "hi", session=session)
    text = result.to_state().to_string()

    async def holder(number: int) -> RunState:
        if how == "load" or (how == "both" and number % 2):
            return await Runner.load(desk.agent, result.run_id, session=session)
        return await RunState.from_string(desk.agent, text)

    states = [await holder(number) for number in range(count)]
    for state in states:
        state.approve(state.get_interruptions()[0])
    told = await asyncio.gather(
        *(Runner.run(desk.agent, state, session=session) for state in states), return_exceptions=True
    )
    assert sum(not isinstance(one, BaseException) for one in told) == 1
    assert sum(isinstance(one, RunClaimedError) for one in told) == count - 1
    assert desk.done == [("pay", 5)]


# --- recovery determinism --------------------------------------------------------------------------------------------


@pytest.mark.clause("C12", backend="runs")
@settings(max_examples=40)
@given(scripts, deaths, owners)
@example(WHOLE, [7, 9, 11], "session")
@example(WHOLE, [30], "session")
async def test_recovery_determinism(script: Any, dying_at: list[int], owner: str):
    """Wherever and however often it dies, what is recovered is what the calm run comes to, to the byte."""
    expected = await calm(script, owner=owner, policy="rerun")
    world, result = await troubled(script, dying_at, owner=owner, policy="rerun")
    twin, again = await troubled(script, dying_at, owner=owner, policy="rerun")
    assert await world.session.get_items() == await expected.session.get_items()
    assert {key for key, _ in world.done} == {key for key, _ in expected.done}
    assert (world.sent, world.done) == (twin.sent, twin.done)  # the same deaths, the same recovery
    assert result.to_input_list() == again.to_input_list()
    assert result.final_output == "finished"


async def test_recovery_determinism_holds_at_every_step_of_one_job():
    expected = await calm(WHOLE, policy="rerun")
    history = await expected.session.get_items()
    for die_at in range(1, 200):
        world = World(WHOLE, policy="rerun")
        if await world.live(die_at) is not None:
            break
        assert await world.live() is not None
        assert await world.session.get_items() == history
    assert die_at > 40
