"""Workers that really die, or are only frozen, while another takes their call over (E13, E14)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from calls.helpers import PATIENCE_S, Reader, at, texts, until
from calls.worker import agent_of, runner_of

from standfast import Agent, Runner, SQLiteSession
from standfast.testing import LoopbackRealtimeServer, ScriptedModel, assistant_message
from standfast.testing.loopback import Asked, call

WORKER = Path(__file__).with_name("worker.py")


class Worker:
    """A worker's process and what it said."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.said: list[str] = []

    async def until(self, word: str) -> None:
        """Read what it says until it says this."""
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_S):
            while not self.said or not self.said[-1].startswith(word):
                line = await self.process.stdout.readline()
                assert line, f"the worker ended, and said {self.said}"
                self.said.append(line.decode().strip())

    async def kill(self) -> None:
        """End it as a crash does."""
        self.process.kill()
        await self.process.wait()


@asynccontextmanager
async def working(server: LoopbackRealtimeServer, path: Path, log: Path, message: str) -> AsyncIterator[Worker]:
    """A worker that has a call."""
    arguments = [str(WORKER), server.url, str(path), "call-1", str(log), message]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=asyncio.subprocess.PIPE, env={**os.environ}
    )
    try:
        yield Worker(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


def answer(asked: Asked) -> Any:
    """Does what was asked for once, however often it is asked, and says what it knows."""
    made = {item["name"] for item in asked.context if item.get("type") == "function_call"}
    given = [str(item["output"]) for item in asked.context if item.get("type") == "function_call_output"]
    wanted = " ".join(str(item.get("content")) for item in asked.context if item.get("role") == "user")
    for name, arguments in (("pay", {"amount": 3}), ("book", {"seats": 2})):
        if name in wanted and name not in made:
            return call(name, arguments)
    return f"So far: {'; '.join(given) or 'nothing'}."


def done(log: Path) -> list[str]:
    return log.read_text().split("\n")[:-1] if log.exists() else []


async def test_a_call_that_was_running_when_its_worker_died_is_not_run_again(tmp_path: Path):
    """E14: it had begun, so its outcome is said to be unknown; the second worker goes on with the call."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please pay three") as worker:
            await worker.until("tool_start")
            await until(lambda: done(log) == ["paid 3"])
            await worker.kill()
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            await reader.until("audio_end")
            await until(lambda: not session._scope.hands.talk.open)
        await reader.task
    assert done(log) == ["paid 3"]
    items = await store.get_items()
    output = next(item["output"] for item in items if item.get("type") == "function_call_output")
    assert "not known" in output
    assert texts(items)[0] == "please pay three"
    await store.close()


@pytest.mark.parametrize("moment", ["entered", "acknowledged", "tool_approval_required"])
async def test_a_worker_killed_at_any_moment_loses_nothing_that_was_acknowledged(tmp_path: Path, moment: str):
    """E14: the message is there if it was acknowledged; the question is asked again; nothing runs twice."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await worker.until(moment)
            await worker.kill()
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            if moment == "entered" and not session._scope.hands.talk.open and not session._scope.hands.talk.calls:
                await session.send_message("please book two")
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("tool_end")
            await reader.until("audio_end")
            await until(lambda: not session._scope.hands.talk.open)
        await reader.task
    assert done(log) == ["booked 2"]
    assert texts(await store.get_items()) == ["please book two", "So far: booked 2."]
    await store.close()


async def test_a_frozen_worker_is_refused_when_it_wakes_up(tmp_path: Path):
    """E13: two workers, one call: the first can neither store nor run anything after the takeover."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await worker.until("resting")
            os.kill(worker.process.pid, signal.SIGSTOP)
            runner = runner_of(agent_of(log, slow=False))
            session = await runner.resume("call-1", session=store, model_config=at(server))
            async with session:
                reader = Reader(session)
                asked = await reader.until("tool_approval_required")
                os.kill(worker.process.pid, signal.SIGCONT)
                await session.approve_tool_call(asked.call_id)
                await reader.until("audio_end")
                await until(lambda: not session._scope.hands.talk.open)
            await reader.task
    assert done(log) == ["booked 2"]
    assert texts(await store.get_items()) == ["please book two", "So far: booked 2."]
    await store.close()


async def test_a_text_message_between_the_death_and_the_takeover_is_in_the_call(tmp_path: Path):
    """E14: what was written to the session meanwhile is given to the new connection, in its place."""
    path, log = tmp_path / "db.sqlite", tmp_path / "log"
    store = SQLiteSession("caller", path)
    async with LoopbackRealtimeServer(answer) as server:
        async with working(server, path, log, "please book two") as worker:
            await worker.until("resting")
            await worker.kill()
        model = ScriptedModel([[assistant_message("Noted.")]])
        result = await Runner.run(Agent(name="text", model=model), "by the window", session=store)
        (left,) = result.unfinished
        assert (left.run_id, left.found, left.done) == ("call-1", "a voice call", "left to RealtimeRunner.resume")
        session = await runner_of(agent_of(log, slow=False)).resume("call-1", session=store, model_config=at(server))
        async with session:
            reader = Reader(session)
            asked = await reader.until("tool_approval_required")
            await session.approve_tool_call(asked.call_id)
            await reader.until("audio_end")
            await until(lambda: not session._scope.hands.talk.open)
        await reader.task
        said = [text for _, text in server.said()]
        assert said[:3] == ["please book two", "by the window", "Noted."]
    assert texts(await store.get_items())[:2] == ["please book two", "by the window"]
    await store.close()
