"""Calls and text runs that find each other unfinished on one conversation: settled, shown or refused (C15, E14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from realtime.session.helpers import PATIENCE_S, Reader, at, runner, talking, texts, until
from realtime.session.worker import agent_of, runner_of
from realtime.session.workers import answer, done, working

from standfast import Agent, InMemorySession, RunConfig, Runner, SQLiteSession, function_tool
from standfast._src.base.errors import InvalidSettingError, UnfinishedRunError
from standfast.realtime import RealtimeAgent, RealtimeRunner, RealtimeSession
from standfast.testing import LoopbackRealtimeServer, ScriptedModel, final, function_call
from standfast.testing.loopback import call
from tests.helpers.model_texts import BEGUN_AND_WAITS, UNKNOWN_OUTCOME, WAITS_FOR_A_PERSON


async def says(session: Any, words: str, **config: Any) -> tuple[Any, list[Any]]:
    """A message by a text agent without tools: its result, and what its model saw."""
    model = ScriptedModel([final(f"re {words}")])
    agent: Agent[Any] = Agent(name="text", model=model)
    result = await Runner.run(agent, words, session=session, run_config=RunConfig(lease_wait_s=PATIENCE_S, **config))
    assert model.first_call is not None
    return result, list(model.first_call.input)


def short(items: list[Any]) -> list[str]:
    """Each item in a word or two."""
    found = []
    for item in items:
        content = item.get("content")
        if isinstance(content, list):
            content = content[0]["text"]
        found.append({"function_call": f"call {item.get('name')}"}.get(item.get("type"), item.get("output", content)))
    return found


@asynccontextmanager
async def taken_over(
    server: LoopbackRealtimeServer, store: Any, log: Path
) -> AsyncIterator[tuple[RealtimeSession, Reader]]:
    """The call of the worker that is gone, in this process."""
    session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
    async with session:
        reader = Reader(session)
        yield session, reader
        await session.settled()
    await reader.task


@pytest.fixture
def paths(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "db.sqlite", tmp_path / "log"


# --- a text run finds a call -----------------------------------------------------------------------------------------


async def test_a_call_that_had_begun_is_unknown_to_the_text_run_and_the_takeover_says_so_once(paths: tuple[Path, Path]):
    """C15, E14: killed in a tool, then a text message, then the takeover: nothing is lost, doubled or run again."""
    path, log = paths
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please pay three") as worker:
            await worker.until("tool_start")
            await until(lambda: done(log) == ["paid 3"])
            await worker.kill()
        result, seen = await says(store, "did you pay?")
        (found,) = result.unfinished
        assert (found.run_id, found.found) == ("call-1", "gone")
        assert found.done == "settled; the voice call can be resumed"
        assert short(seen) == ["please pay three", "call pay", UNKNOWN_OUTCOME, "did you pay?"]
        async with taken_over(server, store, log) as (_, reader):
            await reader.until("audio_end")
        assert server.said() == [
            ("user", "please pay three"),
            ("user", "did you pay?"),
            ("assistant", "re did you pay?"),
            ("assistant", f"So far: {UNKNOWN_OUTCOME}."),
        ]
        assert not server.refused
    assert done(log) == ["paid 3"]
    assert short(await store.get_items()) == [
        "please pay three", "call pay", UNKNOWN_OUTCOME, "did you pay?", "re did you pay?",
        f"So far: {UNKNOWN_OUTCOME}.",
    ]  # fmt: skip
    await store.close()


async def test_a_begun_call_whose_tool_says_ask_waits_for_a_person_also_after_the_text_run(paths: tuple[Path, Path]):
    """C15: the call's record keeps the tool's policy; the settler shows the call as begun and waiting."""
    path, log = paths
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please wire four") as worker:
            await worker.until("tool_start")
            await until(lambda: done(log) == ["wired 4"])
            await worker.kill()
        result, seen = await says(store, "is it wired?")
        (found,) = result.unfinished
        assert (found.found, found.done) == (
            "gone",
            "settled: a call waits for a person; the voice call can be resumed",
        )
        assert short(seen) == ["please wire four", "call wire", BEGUN_AND_WAITS, "is it wired?"]
        assert short(await store.get_items()) == ["please wire four", "is it wired?", "re is it wired?"]
        async with taken_over(server, store, log) as (session, reader):
            asked = await reader.until("tool_approval_required")
            await session.reject_tool_call(asked.call_id, rejection_message="It was wired.")
            await reader.until("audio_end")
    assert done(log) == ["wired 4"]
    assert short(await store.get_items())[3:] == ["call wire", "It was wired.", "So far: It was wired.."]
    await store.close()


async def test_a_question_of_a_call_is_shown_to_text_runs_until_it_is_decided_in_the_takeover(paths: tuple[Path, Path]):
    """C15, E14: two messages see that it waits; approved later it runs once, behind what was said meanwhile."""
    path, log = paths
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await worker.until("resting")
            await worker.kill()
        for number, words in enumerate(("is it booked?", "and now?")):
            result, seen = await says(store, words)
            assert short(seen)[-3:] == ["call book", WAITS_FOR_A_PERSON, words]
            assert [(one.found, one.done) for one in result.unfinished] == [("paused", "shown in requests")]
            assert "call book" not in short(await store.get_items()), number
        async with taken_over(server, store, log) as (session, reader):
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("audio_end")
    assert done(log) == ["booked 2"]
    assert short(await store.get_items()) == [
        "please book two", "is it booked?", "re is it booked?", "and now?", "re and now?", "call book", "booked 2",
        "So far: booked 2.",
    ]  # fmt: skip
    await store.close()


@pytest.mark.parametrize("text_between", [False, True])
async def test_who_waited_for_a_reply_when_the_worker_died_gets_one(paths: tuple[Path, Path], text_between: bool):
    """E14, E9: what was asked is in the session already, without an id of ours; the takeover still owes the reply."""
    path, log = paths
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        gate = server.hold("response.output_audio.delta")
        async with working(server, path, log, "good evening") as worker:
            await gate.reached()
            async with asyncio.timeout(PATIENCE_S):
                while not await store.get_items():
                    await asyncio.sleep(0.01)
            await worker.kill()
        gate.release()
        if text_between:
            await says(store, "hello?")
        async with taken_over(server, store, log) as (_, reader):
            await reader.until("audio_end")
    history = short(await store.get_items())
    assert history == ["good evening", *(["hello?", "re hello?"] if text_between else []), "So far: nothing."]
    await store.close()


async def test_a_frozen_worker_stores_nothing_after_a_text_run_has_settled_its_call(paths: tuple[Path, Path]):
    """C15, E14: its lease lapsed and its call was settled: when it wakes up it is refused and says so."""
    path, log = paths
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please pay three") as worker:
            await worker.until("tool_start")
            await until(lambda: done(log) == ["paid 3"])
            worker.freeze(path)
            await says(store, "did you pay?")
            before = await store.get_items()
            worker.wake()
            await worker.until("ended")
            assert worker.said[-1].partition(" ")[2] in ("RunClaimedError", "LeaseLostError")
        assert await store.get_items() == before
    await store.close()


@pytest.mark.parametrize("moment", ["tool_start", "resting"])
async def test_with_refuse_the_text_run_names_the_call_and_what_to_do(paths: tuple[Path, Path], moment: str):
    """C15: nothing runs and nothing is written."""
    path, log = paths
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        message = "please pay three" if moment == "tool_start" else "please book two"
        async with working(server, path, log, message) as worker:
            await worker.until(moment)
            await worker.kill()
        before = await store.get_items()
        with pytest.raises(UnfinishedRunError, match=r"call-1.*(pay|book) \(call_") as caught:
            await says(store, "hello", unfinished="refuse")
        assert "RealtimeRunner.resume" in caught.value.remedy
        assert await store.get_items() == before
        result, seen = await says(store, "hello", unfinished="ignore")
        assert result.unfinished == ()
        assert short(seen)[-1] == "hello"
    await store.close()


async def test_a_call_that_was_hung_up_with_a_question_is_shown_and_one_that_was_not_asked_anything_is_over():
    """C15, E2: hung up, it waits for its decision; decided and settled, no run hears of it again."""
    store = InMemorySession("erin")

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    agent: RealtimeAgent[Any] = RealtimeAgent(name="voice", tools=[pay])
    async with LoopbackRealtimeServer([call("pay", {"amount": 5}), "never said"]) as server:
        session = await runner(agent).run(model_config=at(server), session=store, run_id="c2")
        async with talking(session, has_store=True) as reader:
            await session.send_message("pay five")
            await reader.until("tool_approval_required")
    result, seen = await says(store, "paid?")
    assert short(seen) == ["pay five", "call pay", WAITS_FOR_A_PERSON, "paid?"]
    assert [(one.run_id, one.found) for one in result.unfinished] == [("c2", "paused")]
    later = await runner(agent).resume("c2", session=store)
    await later.enter(connect=False)
    await later.approve_tool_call(later.pending_approvals[0].call_id)
    await later.settled()
    await later.close()
    result, seen = await says(store, "paid now?")
    assert result.unfinished == ()
    assert short(seen) == ["pay five", "paid?", "re paid?", "call pay", "paid 5", "paid now?"]


# --- a call finds a text run -----------------------------------------------------------------------------------------


def payer(*replies: Any, **tool: Any) -> Agent[Any]:
    @function_tool(**tool)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    return Agent(name="voice", tools=[pay], model=ScriptedModel(replies))


async def test_a_call_is_shown_what_waits_in_a_text_run_and_a_like_question_names_it():
    """C15, E14: it stands behind the history on the server, is never stored by the call, and is decided once."""
    store = InMemorySession("gina")
    asking = payer([function_call("pay", {"amount": 5}, call_id="c1")], needs_approval=True)
    paused = await Runner.run(asking, "pay five", session=store)

    @function_tool(needs_approval=True)
    async def pay(amount: int) -> str:
        return f"paid {amount}"

    agent: RealtimeAgent[Any] = RealtimeAgent(name="voice", tools=[pay])
    async with LoopbackRealtimeServer([call("pay", {"amount": 5}), "Again?"]) as server:
        session = await runner(agent).run(model_config=at(server), session=store)
        async with talking(session, has_store=True) as reader:
            (found,) = session.unfinished
            assert (found.run_id, found.found, found.done) == (paused.run_id, "paused", "shown in requests")
            await session.send_message("pay five, please")
            asked = await reader.until("tool_approval_required")
            assert asked.same_as_run == paused.run_id
            await session.reject_tool_call(asked.call_id)
            await reader.until("agent_end", 2)
            await session.settled()
        given = [item for item in server.items() if item["type"] == "function_call_output"]
        assert given[0]["output"] == WAITS_FOR_A_PERSON
        assert not server.refused
    stored = short(await store.get_items())
    assert WAITS_FOR_A_PERSON not in stored
    assert stored[:3] == ["pay five", "pay five, please", "call pay"]
    again = payer(final("Paid."), needs_approval=True)
    state = await Runner.load(again, str(paused.run_id), session=store)
    for item in state.get_interruptions():
        state.approve(item)
    await Runner.run(again, state, session=store)
    assert short(await store.get_items())[-3:] == ["call pay", "paid 5", "Paid."]


async def test_a_call_settles_a_text_run_whose_worker_is_gone(paths: tuple[Path, Path]):
    """C15: killed in a tool of a text run; the call that is opened then starts from a history that is whole."""
    from helpers.processes import Child
    from helpers.workers import work

    path, _ = paths
    with Child(work, path=str(path), who="job", at="call 3 paid", tool={}, config={"lease_ttl_s": 2.0}) as child:
        child.hear_until("here")
        child.kill()
    store = SQLiteSession("s", path)
    async with LoopbackRealtimeServer(["I see."]) as server:
        agent: RealtimeAgent[Any] = RealtimeAgent(name="voice")
        session = await RealtimeRunner(agent, config={"lease_wait_s": PATIENCE_S}).run(
            model_config=at(server), session=store
        )
        async with talking(session, has_store=True) as reader:
            assert [(one.run_id, one.found, one.done) for one in session.unfinished] == [("job", "gone", "settled")]
            await session.send_message("what happened?")
            await reader.until("agent_end")
            await session.settled()
        outputs = [item["output"] for item in server.items() if item["type"] == "function_call_output"]
        assert outputs[-1] == UNKNOWN_OUTCOME
        assert not server.refused
    assert texts([item for item in await store.get_items() if isinstance(item.get("content"), str)])[-2:] == [
        "what happened?",
        "I see.",
    ]
    await store.close()


async def test_with_refuse_a_call_is_not_entered_beside_an_unfinished_run():
    """C15, E1: entering fails, names the run, and gives back the session; nothing was sent."""
    store = InMemorySession("hugo")
    asking = payer([function_call("pay", {"amount": 5}, call_id="c1")], needs_approval=True)
    paused = await Runner.run(asking, "pay five", session=store)
    async with LoopbackRealtimeServer([]) as server:
        session = await runner(RealtimeAgent(name="voice"), unfinished="refuse").run(
            model_config=at(server), session=store
        )
        with pytest.raises(UnfinishedRunError, match=str(paused.run_id)):
            await session.enter()
        assert not server.received("session.update")
        ignoring = await runner(RealtimeAgent(name="voice"), unfinished="ignore").run(
            model_config=at(server), session=store
        )
        async with talking(ignoring, has_store=True):
            assert ignoring.unfinished == ()
    with pytest.raises(InvalidSettingError):
        runner(RealtimeAgent(name="voice"), unfinished="perhaps")
