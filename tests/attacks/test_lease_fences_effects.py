"""A lease fences effects, not only appends (B7, C13; attacks 05 and 05b).

A worker sleeps longer than its lease lives (SIGSTOP, a suspended laptop, a frozen container) and another takes the
session over. When it wakes, none of its tools may begin, it asks no model, and it is told what is true.
"""

from __future__ import annotations

import asyncio
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import done, lines, short, write
from helpers.processes import Child, Line, stop_outside_writes
from helpers.workers import calm_history, work

from standfast import Agent, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast.testing import AnsweringModel, ScriptedModel, final, function_call

SHORT_S = 1.5
FENCED = ("LeaseLostError", "RunClaimedError")
"""By its lease, or by its run's revision, which settling raises first."""


def overtaken(path: Path, at: str) -> tuple[str, str]:
    """Stop a first worker at this place until a second has taken the session and finished; what the first says then."""
    with Child(work, path=str(path), who="first", at=at, config={"lease_ttl_s": SHORT_S}) as first:
        first.hear_until("here")
        stop_outside_writes(first.pid, path)
        with Child(work, path=str(path), who="second", config={"lease_wait_s": 60.0}) as second:
            assert second.result() == ("ok", "second is done")
        first.say("go on")
        first.send_signal(signal.SIGCONT)
        return first.result()


def history(path: Path) -> list[str]:
    session = SQLiteSession("s", path)
    try:
        return short(asyncio.run(session.get_items()))
    finally:
        session.close()


def test_a_worker_that_wakes_up_without_its_lease_runs_no_tool(tmp_path: Path) -> None:
    """B7, C13, attack 05: stopped while it asks the model; its reply arrives and asks to pay."""
    path = tmp_path / "a.db"
    name, _ = overtaken(path, "in request 1")
    assert name in FENCED
    assert lines(f"{path}.book") == ["second-1", "second-2", "second-3"], "an effect began without a lease"
    assert history(path) == calm_history("second")


def test_a_worker_that_wakes_up_in_its_tool_is_told_who_settled_its_run(tmp_path: Path) -> None:
    """B7, C15: what had begun is recorded as unknown by the run that took the session, and the error says by which."""
    path = tmp_path / "a.db"
    name, text = overtaken(path, "call 3 paid")
    assert name in FENCED
    assert "second" in text
    assert "unknown" in text or "not known" in text
    settled = [*calm_history("first")[:5], "C(first-3)", "O(first-3: unknown)"]
    assert history(path) == [*settled, *calm_history("second")]
    assert sorted(lines(f"{path}.book")) == [f"{who}-{number}" for who in ("first", "second") for number in (1, 2, 3)]


async def blocking(line: Line, *, path: str, who: str, blocks_s: float) -> str:
    """A run whose `async def` tool blocks its loop, as a synchronous client in it does."""

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        line.say("blocking")
        time.sleep(blocks_s)
        write(f"{path}.book", ctx.tool_call_id)
        return done(ctx.tool_call_id)

    model = ScriptedModel([[function_call("pay", {}, call_id=f"{who}-1")], final(f"{who} is done")])
    session = SQLiteSession("s", path)
    config = RunConfig(run_id=who, lease_ttl_s=SHORT_S, lease_wait_s=60.0)
    result = await Runner.run(Agent(name="A", model=model, tools=[pay]), who, session=session, run_config=config)
    return str(result.final_output)


def test_a_tool_that_blocks_its_loop_keeps_the_lease(tmp_path: Path) -> None:
    """B7, attack 05b: the lease is renewed off the caller's loop; who waits in line waits until the run has ended."""
    path = tmp_path / "a.db"
    with Child(blocking, path=str(path), who="first", blocks_s=2.2 * SHORT_S) as first:
        first.hear_until("blocking")
        with Child(blocking, path=str(path), who="second", blocks_s=0.0) as second:
            assert first.result() == ("ok", "first is done")
            assert second.result() == ("ok", "second is done")
    assert lines(f"{path}.book") == ["first-1", "second-1"]
    assert history(path) == [
        line
        for who in ("first", "second")
        for line in (f"U({who})", f"C({who}-1)", f"O({who}-1: done)", f"A({who} is done)")
    ]


def closes_its_loop(line: Line, *, path: str) -> str:
    """Close a loop under a run, as a program does that ends its loop by hand, then run again in another loop."""
    session = SQLiteSession("s", path)
    kept: list[Any] = []

    async def begins() -> None:
        asking = asyncio.Event()

        async def never(call: Any) -> Any:
            asking.set()
            await asyncio.Event().wait()

        agent: Agent[Any] = Agent(name="A", model=AnsweringModel(never))
        config = RunConfig(lease_ttl_s=SHORT_S, run_id="gone")
        kept.append(asyncio.ensure_future(Runner.run(agent, "hi", session=session, run_config=config)))
        await asking.wait()

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begins())
    loop.close()
    again: Agent[Any] = Agent(name="A", model=ScriptedModel([final("ok")]))
    config = RunConfig(lease_wait_s=20.0)
    return str(asyncio.run(Runner.run(again, "hi", session=session, run_config=config)).final_output)


def test_a_lease_is_not_renewed_when_the_loop_of_its_run_was_closed(tmp_path: Path) -> None:
    """B7: renewing stops with the run, else a dead task holds a session for the life of its process."""
    with Child(closes_its_loop, path=str(tmp_path / "a.db")) as child:
        assert child.result() == ("ok", "ok")


async def test_an_operator_can_take_a_lease_away(tmp_path: Path) -> None:
    """B7: that only raises the number; the run that had it begins nothing any more and its writes are refused."""
    session = SQLiteSession("s", tmp_path / "a.db")
    here, go_on = asyncio.Event(), asyncio.Event()

    class Waits(ScriptedModel):
        async def get_response(self, *args: Any, **named: Any) -> Any:
            here.set()
            await go_on.wait()
            return await super().get_response(*args, **named)

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(tmp_path / "book", ctx.tool_call_id)
        return done(ctx.tool_call_id)

    model = Waits([[function_call("pay", {}, call_id="c1")], final("done")])
    task = asyncio.create_task(Runner.run(Agent(name="A", model=model, tools=[pay]), "hi", session=session))
    await here.wait()
    await session.revoke_lease()  # type: ignore[attr-defined]  # the operator's door; today there is none
    next_one: Agent[Any] = Agent(name="A", model=ScriptedModel([final("ok")]))
    await Runner.run(next_one, "me", session=session, run_config=RunConfig(concurrency="reject"))
    go_on.set()
    with pytest.raises(Exception, match=r"lease|session"):
        await task
    assert lines(tmp_path / "book") == []
    assert short(await session.get_items()) == ["U(me)", "A(ok)"]
    session.close()
