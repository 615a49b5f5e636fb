"""A voice call and text runs on one session, on Redis and PostgreSQL: who holds it, and what settles what (C15, E14).

The call's worker is a process that is killed or stopped. Nothing that a tool did is lost, doubled or forgotten,
whichever of the two finds the other unfinished. On SQLite: tests/realtime/session/test_unfinished.py.
"""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import Child, Line
from helpers.workers import work
from realtime.session.helpers import Reader, at, until
from realtime.session.worker import DETECTION, agent_of
from realtime.session.workers import answer, done

from standfast import Agent, RunConfig, Runner, SessionBusyError
from standfast.realtime import RealtimeAgent, RealtimeRunner
from standfast.testing import LoopbackRealtimeServer, ScriptedModel, final
from tests.helpers.model_texts import UNKNOWN_OUTCOME, WAITS_FOR_A_PERSON
from tests.helpers.stores import SERVERS, looked_at, place
from tests.realtime.session.test_unfinished import short

TTL_S, PATIENCE_S = 3.0, 60.0
pytestmark = pytest.mark.parametrize("kind", SERVERS)


def runner_of(agent: RealtimeAgent[Any]) -> RealtimeRunner:
    config: Any = {
        "model_settings": {"turn_detection": DETECTION},
        "lease_ttl_s": TTL_S,
        "lease_wait_s": PATIENCE_S,
    }
    return RealtimeRunner(agent, config=config)


async def have_a_call(line: Line, *, where: str, url: str, log: str, words: str) -> None:
    """Have a call, say something in it, and say what happens, until somebody ends this process."""
    store, options = looked_at(where), {"url": url, "api_key": "secret"}
    model_config: Any = options
    session = await runner_of(agent_of(Path(log), slow=True)).run(
        model_config=model_config, session=store, run_id="call-1"
    )
    await session.enter()
    await session.send_message(words)
    async for event in session:
        if event.type == "tool_approval_required":
            await session.settled()
            line.say("resting")
        elif event.type == "tool_start":
            line.say("tool_start")


async def heard(child: Child, word: str) -> None:
    """Wait until the child says this, and let the loop go on: the server that it talks with is in there."""
    await asyncio.to_thread(child.hear_until, word)


async def says(session: Any, words: str, **config: Any) -> tuple[Any, list[Any]]:
    """A message by a text agent without tools: its result, and what its model saw."""
    model = ScriptedModel([final(f"re {words}")])
    settings = RunConfig(**{"lease_wait_s": PATIENCE_S, **config})
    result = await Runner.run(Agent(name="text", model=model), words, session=session, run_config=settings)
    assert model.first_call is not None
    return result, list(model.first_call.input)


async def test_a_call_holds_its_session_and_whoever_waits_is_told_who_has_it(kind: str, tmp_path: Path) -> None:
    """E14, C13: a text run is refused or waits; killed, the call is settled by the one that waited."""
    where, log = place(kind, tmp_path), tmp_path / "log"
    store = looked_at(where)
    async with LoopbackRealtimeServer(answer) as server:
        told: dict[str, Any] = {"where": where, "url": server.url, "log": str(log), "words": "please pay three"}
        with Child(have_a_call, **told) as child:
            await heard(child, "tool_start")
            with pytest.raises(SessionBusyError, match="call-1") as busy:
                await says(store, "hello?", concurrency="reject")
            assert "call-1" in str(busy.value.holder)
            assert busy.value.since is not None
            waiting = asyncio.create_task(says(store, "did you pay?"))
            await until(lambda: done(log) == ["paid 3"])
            child.kill()
            result, seen = await waiting
    assert [(one.run_id, one.found) for one in result.unfinished] == [("call-1", "gone")]
    assert short(seen) == ["please pay three", "call pay", UNKNOWN_OUTCOME, "did you pay?"]
    assert done(log) == ["paid 3"]
    await store.close()


async def test_a_question_of_a_killed_call_is_shown_to_text_runs_and_decided_once_in_the_takeover(
    kind: str, tmp_path: Path
) -> None:
    where, log = place(kind, tmp_path), tmp_path / "log"
    store = looked_at(where)
    async with LoopbackRealtimeServer(answer) as server:
        told: dict[str, Any] = {"where": where, "url": server.url, "log": str(log), "words": "please book two"}
        with Child(have_a_call, **told) as child:
            await heard(child, "resting")
            child.kill()
        for words in ("is it booked?", "and now?"):
            result, seen = await says(store, words)
            assert short(seen)[-3:] == ["call book", WAITS_FOR_A_PERSON, words]
            assert [(one.found, one.done) for one in result.unfinished] == [("paused", "shown in requests")]
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("audio_end")
            await session.settled()
        await reader.task
        assert not server.refused
    assert done(log) == ["booked 2"]
    assert short(await store.get_items()) == [
        "please book two", "is it booked?", "re is it booked?", "and now?", "re and now?", "call book", "booked 2",
        "So far: booked 2.",
    ]  # fmt: skip
    await store.close()


async def test_a_call_stopped_past_its_lease_stores_nothing_after_a_text_run_has_settled_it(
    kind: str, tmp_path: Path
) -> None:
    """B7, C13, E14: it wakes up, and is told whose the session is."""
    where, log = place(kind, tmp_path), tmp_path / "log"
    store = looked_at(where)
    async with LoopbackRealtimeServer(answer) as server:
        told: dict[str, Any] = {"where": where, "url": server.url, "log": str(log), "words": "please pay three"}
        with Child(have_a_call, **told) as child:
            await heard(child, "tool_start")
            await until(lambda: done(log) == ["paid 3"])
            child.send_signal(signal.SIGSTOP)
            result, seen = await says(store, "did you pay?")
            assert [(one.run_id, one.found) for one in result.unfinished] == [("call-1", "gone")]
            assert short(seen) == ["please pay three", "call pay", UNKNOWN_OUTCOME, "did you pay?"]
            before = await store.get_items()
            child.send_signal(signal.SIGCONT)
            ended = await asyncio.to_thread(child.result)
            assert ended[0] in ("RunClaimedError", "LeaseLostError")
        assert await store.get_items() == before
    assert done(log) == ["paid 3"]
    await store.close()


async def test_a_call_settles_a_text_run_whose_worker_was_killed(kind: str, tmp_path: Path) -> None:
    """C15: it begins with a history that is whole, and its model is told what is not known."""
    where, path = place(kind, tmp_path), tmp_path / "job"
    config = {"lease_ttl_s": TTL_S}
    with Child(work, path=str(path), who="job", at="call 3 paid", tool={}, config=config, where=where) as child:
        child.hear_until("here")
        child.kill()
    store = looked_at(where)
    async with LoopbackRealtimeServer(["I see."]) as server:
        session = await runner_of(RealtimeAgent(name="voice")).run(model_config=at(server), session=store)
        async with session:
            reader = Reader(session)
            assert [(one.run_id, one.found, one.done) for one in session.unfinished] == [("job", "gone", "settled")]
            await session.send_message("what happened?")
            await reader.until("agent_end")
            await session.settled()
        await reader.task
        told = [item["output"] for item in server.items() if item["type"] == "function_call_output"]
        assert told[-1] == UNKNOWN_OUTCOME
        assert not server.refused
    assert short(await store.get_items())[-2:] == ["what happened?", "I see."]
    await store.close()
