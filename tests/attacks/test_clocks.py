"""Clocks (A4, B7, B9; attacks 06, 07 and 18): a wrong one keeps no lease, proves no death and orders nothing.

The wrong clock is a child's own (see `helpers.wrong_clock`); where root may make namespaces, the real ones are tried.
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.namespaces import PID, TIME, cases, name_of, run_python
from helpers.processes import Child, Line, stop_outside_writes
from helpers.wrong_clock import set_ahead

from standfast import (
    Agent,
    LeaseLostError,
    RunClaimedError,
    RunConfig,
    Runner,
    SQLiteSession,
    ToolContext,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call

DAY_S = 86_400.0


async def holder(line: Line, *, path: str, ahead_s: float, ttl_s: float = 1.0) -> None:
    """Take the lease by a wrong clock, and keep it."""
    set_ahead(ahead_s)
    session = SQLiteSession("s", path)
    lease = await session.lease(ttl_s=ttl_s, wait_s=0)
    await line.stand(lease.number)


def test_the_wrong_clock_is_believed(tmp_path: Path) -> None:
    """The helper does what it says; else the tests below prove nothing."""
    with Child(tells_the_time) as child:
        name, told = child.result()
    assert name == "ok"
    assert all(DAY_S - 60 < float(clock) - time.time() < DAY_S + 60 for clock in told)


async def tells_the_time(line: Line) -> tuple[float, float]:
    set_ahead(DAY_S)
    with sqlite3.connect(":memory:") as db:
        (now,) = db.execute("SELECT (julianday('now') - 2440587.5) * 86400.0").fetchone()
    db.close()
    return time.time(), now


@pytest.mark.parametrize("ahead_s", [DAY_S, 0.0, -DAY_S], ids=["a day ahead", "right", "a day behind"])
def test_a_lease_taken_by_a_wrong_clock_lives_no_longer_than_its_ttl(ahead_s: float, tmp_path: Path) -> None:
    """B7, attack 06: the clock was wrong when it was taken and has been corrected since; its holder is silent."""
    path = tmp_path / "a.db"
    with Child(holder, path=str(path), ahead_s=ahead_s) as child:
        child.hear_until("here")
        stop_outside_writes(child.pid, path)  # alive, so that no process table tells, and no longer renewing
        session = SQLiteSession("s", path)
        lease = asyncio.run(session.lease(ttl_s=1.0, wait_s=10.0))
        asyncio.run(lease.release())
        session.close()


KILLED = """
import asyncio, os, signal, sys
from helpers.wrong_clock import set_ahead
from standfast import SQLiteSession
async def main():
    set_ahead(float(sys.argv[2]))
    await SQLiteSession("s", sys.argv[1]).lease(ttl_s=1.0, wait_s=0)
    os.kill(os.getpid(), signal.SIGKILL)
asyncio.run(main())
"""


@pytest.mark.parametrize("prefix", cases(PID), ids=name_of)
def test_a_container_that_died_with_a_wrong_clock_keeps_no_session(prefix: tuple[str, ...], tmp_path: Path) -> None:
    """B7, attack 06 as it was found: another pid namespace, a day ahead, killed."""
    path = tmp_path / "a.db"
    shell = ("sh", "-c", '"$@"; true', "x") if prefix else ()
    run_python((*prefix, *shell), KILLED, str(path), str(DAY_S))
    session = SQLiteSession("s", path)
    lease = asyncio.run(session.lease(ttl_s=1.0, wait_s=10.0))
    assert lease.number == 2
    asyncio.run(lease.release())
    session.close()


TAKES = """
import asyncio, sys
from standfast import SQLiteSession
async def main():
    try:
        lease = await SQLiteSession("s", sys.argv[1]).lease(ttl_s=60.0, wait_s=0)
        print("took", lease.number)
    except Exception as error:
        print(type(error).__name__)
asyncio.run(main())
"""


@pytest.mark.parametrize("prefix", cases(TIME, PID), ids=name_of)
def test_another_namespace_is_no_proof_of_death(prefix: tuple[str, ...], tmp_path: Path) -> None:
    """B7, attack 07: a live holder whose start time reads differently, or who cannot be seen, still holds."""
    path = tmp_path / "a.db"
    with Child(holder, path=str(path), ahead_s=0.0, ttl_s=60.0) as child:
        child.hear_until("here")
        assert run_python(prefix, TAKES, str(path)) == "SessionBusyError"


async def changed(line: Line, *, path: str, name: str, ahead_s: float) -> tuple[list[str], list[str], list[str]]:
    """Run once on this session; the sessions and the runs newest first, and the runs that pruning to one keeps."""
    if ahead_s:
        set_ahead(ahead_s)
    session = SQLiteSession(name, path)
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel([final("x")]))
    await Runner.run(agent, "hi", session=session, run_config=RunConfig(run_id=f"run-{name}"))
    store = session.run_store()
    sessions = [info.session_id for info in (await session.list_sessions(limit=9)).sessions]
    runs = [run.run_id for run in (await store.list_runs())[0]]
    if name == "later":
        await store.prune_runs(keep=1)
    return sessions, runs, [run.run_id for run in (await store.list_runs())[0]]


def test_newest_first_and_pruning_do_not_follow_the_wall_clock(tmp_path: Path) -> None:
    """B9, A4, attack 18: a clock that was two hours ahead for a while; the later change is the newer one."""
    path = str(tmp_path / "a.db")
    with Child(changed, path=path, name="earlier", ahead_s=7200.0) as child:
        assert child.result()[0] == "ok"
    with Child(changed, path=path, name="later", ahead_s=0.0) as child:
        name, told = child.result()
    assert name == "ok", told
    sessions, runs, kept = told
    assert sessions == ["later", "earlier"]
    assert runs == ["run-later", "run-earlier"]
    assert kept == ["run-later"]


async def test_items_keep_their_order_over_a_clock_that_went_back(tmp_path: Path) -> None:
    """A4: order does not depend on clocks."""
    path = str(tmp_path / "a.db")
    for number, ahead_s in enumerate((7200.0, 0.0, -7200.0)):
        with Child(adds, path=path, text=f"{number}", ahead_s=ahead_s) as child:
            assert await asyncio.to_thread(child.result) == ("ok", None)
    session = SQLiteSession("s", path)
    assert [item["content"] for item in await session.get_items()] == ["0", "1", "2"]
    session.close()


async def adds(line: Line, *, path: str, text: str, ahead_s: float) -> None:
    set_ahead(ahead_s)
    await SQLiteSession("s", path).add_items([{"role": "user", "content": text}])


async def sends_ahead(line: Line, *, path: str) -> list[Any]:
    """A message of a process whose clock is a day ahead; what its model saw."""
    set_ahead(DAY_S)
    session = SQLiteSession("s", path)
    model = ScriptedModel([final("re hello")])
    await Runner.run(Agent(name="B", model=model), "hello", session=session, run_config=RunConfig(lease_wait_s=5.0))
    session.close()
    assert model.first_call is not None
    seen: Any = model.first_call.input
    return list(seen)


async def test_a_clock_ahead_that_takes_a_held_lease_fences_its_holder(tmp_path: Path) -> None:
    """B7: a lease ends at its ttl at the latest, and may end earlier: a file has no clock but its users', and one that
    is ahead takes a session from a run that is alive. What had begun is told as unknown; nothing more of it begins."""
    path, began, go_on, effects = tmp_path / "a.db", asyncio.Event(), asyncio.Event(), list[str]()

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        effects.append(ctx.tool_call_id)
        began.set()
        await go_on.wait()
        return "paid"

    session = SQLiteSession("s", path)
    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], [function_call("pay", {}, call_id="c2")]])
    agent: Agent[Any] = Agent(name="A", tools=[pay], model=model)
    running = asyncio.create_task(Runner.run(agent, "go", session=session, run_config=RunConfig(run_id="r")))
    await began.wait()
    with Child(sends_ahead, path=str(path)) as child:
        name, told = await asyncio.to_thread(child.result)
    assert name == "ok", told
    assert [item.get("type", item.get("role")) for item in told] == [
        "user",
        "function_call",
        "function_call_output",
        "user",
    ]
    assert "not known" in told[2]["output"] or "unknown" in told[2]["output"]
    go_on.set()
    with pytest.raises((LeaseLostError, RunClaimedError)):
        await running
    assert effects == ["c1"], "nothing more of it began"
    outputs = [item for item in await session.get_items() if item.get("type") == "function_call_output"]
    assert [one["call_id"] for one in outputs] == ["c1"], "told once"
    session.close()
