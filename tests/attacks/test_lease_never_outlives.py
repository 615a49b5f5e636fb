"""A lease never outlives its use (C14, C12; attacks 08, 17 and 22).

After a store fault, a close in the middle and a killed worker in another container, the documented remedy works at
once and with default settings.
"""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import asked_next, done, lines, short, write, wrongs
from helpers.namespaces import PID, cases, name_of, run_python
from helpers.processes import Child, stop_outside_writes
from helpers.workers import calm_history, payer, work

from standfast import (
    Agent,
    InMemorySession,
    RunConfig,
    RunHooks,
    Runner,
    SQLiteSession,
    StoreError,
    ToolContext,
    function_tool,
)
from standfast.testing import ModelStep, ScriptedModel, final, function_call


async def test_after_a_store_fault_the_run_goes_on_at_once(tmp_path: Path) -> None:
    """C14, attack 08: somebody's transaction held the file while a tool ran; the documented remedy, defaults."""
    path, book = tmp_path / "a.db", tmp_path / "book"
    others: list[sqlite3.Connection] = []

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay, and from now on the store is locked."""
        write(book, ctx.tool_call_id)
        others.append(sqlite3.connect(path, isolation_level=None))
        others[0].execute("BEGIN IMMEDIATE")
        return done(ctx.tool_call_id)

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], final("done")])
    agent: Agent[Any] = Agent(name="A", model=model, tools=[pay])
    session = SQLiteSession("s", path, timeout_s=0.3)
    with pytest.raises(StoreError) as failed:
        await Runner.run(agent, "go", session=session)
    others[0].execute("ROLLBACK")
    others[0].close()
    assert failed.value.run_state is not None
    async with asyncio.timeout(20):
        result = await Runner.run(agent, failed.value.run_state, session=session)
    assert result.final_output == "done"
    assert lines(book) == ["c1"]
    assert short(await session.get_items()) == ["U(go)", "C(c1)", "O(c1: done)", "A(done)"]
    session.close()


@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_closing_the_session_under_a_run_keeps_nobody_out(streamed: bool, tmp_path: Path) -> None:
    """C14, B7, attack 17: a handler closes its session in `finally` while the run goes on; the next request comes."""
    path, book = tmp_path / "a.db", tmp_path / "book"
    other = SQLiteSession("other", path)  # the server has other conversations open, so the engine lives on
    await other.get_items()
    paying, go_on = asyncio.Event(), asyncio.Event()

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        paying.set()
        await go_on.wait()
        return done(ctx.tool_call_id)

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], final("done")])
    agent: Agent[Any] = Agent(name="A", model=model, tools=[pay])
    session = SQLiteSession("talk", path)
    if streamed:
        result = Runner.run_streamed(agent, "go", session=session)
        task: Any = asyncio.create_task(_drained(result))
    else:
        task = asyncio.create_task(Runner.run(agent, "go", session=session))
    await paying.wait()
    await session.close()
    go_on.set()
    await asyncio.wait([task], timeout=30)
    if not task.cancelled():
        task.exception()
    again = SQLiteSession("talk", path)
    async with asyncio.timeout(20):
        seen = await asked_next(again)
    assert wrongs(lines(book), seen) == []
    again.close()
    other.close()


async def _drained(result: Any) -> None:
    async for _ in result.stream_events():
        pass


def test_by_default_a_run_waits_longer_than_a_lease_lives() -> None:
    """C12, attack 22: else the first resume after a crash fails wherever a dead worker cannot be seen."""
    assert RunConfig().lease_wait_s > RunConfig().lease_ttl_s


def test_a_run_whose_worker_sleeps_forever_can_be_resumed_with_the_default_wait(tmp_path: Path) -> None:
    """C12: a worker that cannot be seen to be dead is known by its lease. Here it is stopped: alive, and silent."""
    path = tmp_path / "a.db"
    session = SQLiteSession("s", path)
    with Child(work, path=str(path), who="job", at="call 3 paid", config={"lease_ttl_s": 1.0}) as worker:
        worker.hear_until("here")
        stop_outside_writes(worker.pid, path)
        agent = payer(f"{path}.book", "job")
        agent.model = ScriptedModel([final("resumed")])
        result = asyncio.run(Runner.resume(agent, "job", session=session))
    assert result.final_output == "resumed"
    history = [*calm_history("job")[:5], "C(job-3)", "O(job-3: unknown)", "A(resumed)"]
    assert short(asyncio.run(session.get_items())) == history
    session.close()


KILLED = """
import asyncio, os, signal, sys
from helpers.workers import payer, Standing
from standfast import RunConfig, Runner, SQLiteSession

class Dies(Standing):
    async def pass_by(self, place):
        if place == "call 3 paid":
            os.kill(os.getpid(), signal.SIGKILL)

dies = Dies()
session = SQLiteSession("s", sys.argv[1])
agent = payer(sys.argv[1] + ".book", "job", dies)
config = RunConfig(run_id="job", lease_ttl_s=1.0)
asyncio.run(Runner.run(agent, "pay, says job", session=session, hooks=dies, run_config=config))
"""


@pytest.mark.parametrize("prefix", cases(PID), ids=name_of)
def test_a_killed_pods_run_is_resumed_by_its_replacement(prefix: tuple[str, ...], tmp_path: Path) -> None:
    """C12, attack 22: killed in its tool; the next one resumes at once, with the default wait, and settles it."""
    path = tmp_path / "a.db"
    # A first process of a namespace is not killed by its own SIGKILL, so a shell stands there.
    shell = ("sh", "-c", '"$@"; true', "x") if prefix else ()
    run_python((*prefix, *shell), KILLED, str(path))
    assert sorted(lines(f"{path}.book")) == ["job-1", "job-2", "job-3"]
    session = SQLiteSession("s", path)
    agent = payer(f"{path}.book", "job")
    agent.model = ScriptedModel([final("resumed")])
    result = asyncio.run(Runner.resume(agent, "job", session=session))
    assert result.final_output == "resumed"
    assert sorted(lines(f"{path}.book")) == ["job-1", "job-2", "job-3"]
    session.close()


@pytest.mark.parametrize("backend", ["memory", "sqlite"])
@pytest.mark.parametrize("fault", ["the model raises", "a tool's failure function raises", "a hook raises"])
async def test_a_run_that_fails_gives_its_lease_back(fault: str, backend: str, tmp_path: Path) -> None:
    """C14: at the end of every run, whatever ended it."""
    session: Any = InMemorySession("s") if backend == "memory" else SQLiteSession("s", tmp_path / "a.db")

    def fails(*_: Any) -> str:
        raise OSError("it failed")

    @function_tool(failure_error_function=fails)
    async def pay() -> str:
        """Pay."""
        raise OSError("no")

    class Hooks(RunHooks[Any]):
        async def on_llm_end(self, *_: Any) -> None:
            if fault == "a hook raises":
                raise OSError("it failed")

    steps: list[Any] = [[function_call("pay", {}, call_id="c1")], final("x")]
    if fault == "the model raises":
        steps = [ModelStep(error=OSError("it failed"))]
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel(steps), tools=[pay])
    config = RunConfig(lease_ttl_s=300.0)
    with pytest.raises(OSError, match="it failed"):
        await Runner.run(agent, "go", session=session, hooks=Hooks(), run_config=config)
    next_one: Agent[Any] = Agent(name="A", model=ScriptedModel([final("ok")]))
    await Runner.run(next_one, "me", session=session, run_config=RunConfig(concurrency="reject"))
    await session.close()
