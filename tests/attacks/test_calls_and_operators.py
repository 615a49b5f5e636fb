"""What is done to a voice call as to any run: it is forgotten, taken back, or its session is closed (C15, E14)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from realtime.session.helpers import Reader, at, until
from realtime.session.worker import agent_of, runner_of
from realtime.session.workers import answer, done

from standfast import Agent, RunConfig, Runner, RunStateError, SessionClosedError, SQLiteSession, open_store
from standfast.realtime import RealtimeSession
from standfast.testing import LoopbackRealtimeServer, ScriptedModel, final
from tests.helpers.model_texts import UNKNOWN_OUTCOME

PATIENCE_S = 60.0


@asynccontextmanager
async def talking(path: Path, log: Path, words: str) -> AsyncIterator[tuple[RealtimeSession, SQLiteSession, Reader]]:
    """A call in which something was said, and the session that it was given."""
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        runner = runner_of(agent_of(log, slow="pay" in words))
        call = await runner.run(model_config=at(server), session=store, run_id="call-1")
        await call.enter()
        reader = Reader(call)
        await call.send_message(words)
        yield call, store, reader
        await call.close()
    store.close()


async def statuses(path: Path) -> list[str]:
    async with open_store(path) as store:
        return [run.status for run in (await store.runs()).runs]


async def test_a_call_under_way_is_not_forgotten(tmp_path: Path) -> None:
    """C15, E14: its record was deleted, and with it that a tool had paid."""
    path, log = tmp_path / "talks.db", tmp_path / "log"
    async with talking(path, log, "please pay three") as (_, store, _reader):
        await until(lambda: done(log) == ["paid 3"])
        with pytest.raises(RunStateError, match="has not ended") as refused:
            await Runner.delete_run("call-1", session=store)
        assert "Hang up" in refused.value.remedy
        async with open_store(path) as operator:
            with pytest.raises(RunStateError, match="has not ended") as refused:
                await operator.delete_run("call-1")
            assert "Hang up" in refused.value.remedy
    model = ScriptedModel([final("It may have been.")])
    session = SQLiteSession("caller", path)
    config = RunConfig(lease_wait_s=PATIENCE_S)
    await Runner.run(Agent(name="text", model=model), "Was it paid?", session=session, run_config=config)
    assert model.first_call is not None
    assert UNKNOWN_OUTCOME in [item.get("output") for item in model.first_call.input]
    session.close()


async def test_a_call_that_was_hung_up_with_a_question_open_is_not_forgotten(tmp_path: Path) -> None:
    """C15, E2: the question is kept in its record."""
    path, log = tmp_path / "talks.db", tmp_path / "log"
    async with talking(path, log, "please book two") as (call, _, reader):
        await reader.until("tool_approval_required")
        await call.settled()
    assert await statuses(path) == ["paused"]
    async with open_store(path) as operator:
        assert "RealtimeRunner.resume" in (await operator.run("call-1")).doing
        with pytest.raises(RunStateError, match="has not ended"):
            await operator.delete_run("call-1")


@pytest.mark.parametrize("who", ["program", "operator"])
async def test_a_call_that_has_ended_can_be_forgotten(who: str, tmp_path: Path) -> None:
    """An operator was told that it had not ended, and to cancel it, which no call can be."""
    path, log = tmp_path / "talks.db", tmp_path / "log"
    async with talking(path, log, "hello") as (_, _store, reader):
        await reader.until("audio_end")
    assert await statuses(path) == ["done"]
    if who == "program":
        session = SQLiteSession("caller", path)
        assert await Runner.delete_run("call-1", session=session)
        session.close()
    else:
        async with open_store(path) as operator:
            assert await operator.delete_run("call-1")
    assert await statuses(path) == []


async def test_a_call_whose_session_was_closed_ends_and_nobody_waits_for_it(tmp_path: Path) -> None:
    """E3, E4: it asked the closed session again and again, and a message to it waited without end."""
    path, log = tmp_path / "talks.db", tmp_path / "log"
    async with talking(path, log, "please pay three") as (call, store, reader):
        await until(lambda: done(log) == ["paid 3"])
        store.close()
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(SessionClosedError):
                await call.send_message("Hello?")
            await reader.task
        assert isinstance(reader.error, SessionClosedError)


async def test_what_a_call_wrote_is_taken_back_when_it_has_ended(tmp_path: Path) -> None:
    """B5: not before."""
    path, log = tmp_path / "talks.db", tmp_path / "log"
    other: Any = SQLiteSession("caller", path)
    async with talking(path, log, "please pay three"):
        await until(lambda: done(log) == ["paid 3"])
        with pytest.raises(RunStateError, match="has not ended"):
            await other.rewind(writer="call-1", to=0)
    other.close()
