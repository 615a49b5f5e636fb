"""An agent tool whose session has the id of its parent's, in another store: two conversations (C8, C14, C15).

One database for each agent, and the user's id in both, is how this comes about.
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from helpers.ledger_oracle import asked_next, done, lines, short, write
from helpers.processes import Child, Line

from standfast import Agent, RunConfig, Runner, SQLiteSession, ToolContext, function_tool
from standfast.testing import AnsweringModel, ModelCall, function_call

USER = "user-7"
PAID = ["C(i1)", "O(i1: done)", "C(i2)"]


def sessions(folder: Path) -> tuple[SQLiteSession, SQLiteSession]:
    """The user's conversation with the outer agent, and with the inner one."""
    return SQLiteSession(USER, folder / "outer.db"), SQLiteSession(USER, folder / "inner.db")


def agents(book: Path, inner_session: Any, *, dies_in: str = "", between: bool = False) -> Agent[Any]:
    """An agent whose tool is an agent that pays twice and, if it lives, asks; `between`: another agent calls that."""

    @function_tool
    async def pay(ctx: ToolContext[Any]) -> str:
        """Pay."""
        write(book, ctx.tool_call_id)
        if ctx.tool_call_id == dies_in:
            os.kill(os.getpid(), signal.SIGKILL)
        return done(ctx.tool_call_id)

    @function_tool(needs_approval=True)
    async def ask(ctx: ToolContext[Any]) -> str:
        """Pay, if somebody says so."""
        write(book, ctx.tool_call_id)
        return done(ctx.tool_call_id)

    def inside(call: ModelCall) -> Any:
        made = [item["call_id"] for item in call.input if item.get("type") == "function_call"]
        if "i2" in made:
            return "done inside"
        if "i1" in made:
            asks = [] if dies_in else [function_call("ask", {}, call_id="i3")]
            return [function_call("pay", {}, call_id="i2"), *asks]
        return [function_call("pay", {}, call_id="i1")]

    def calling(call_id: str) -> AnsweringModel:
        def outside(call: ModelCall) -> Any:
            if call.input[-1].get("type") == "function_call_output":
                return "done"
            return [function_call("helper", {"input": "pay"}, call_id=call_id)]

        return AnsweringModel(outside)

    inner = Agent(name="inner", model=AnsweringModel(inside), tools=[pay, ask])
    helper = inner.as_tool("helper", "Help.", session=inner_session)
    if between:
        helper = Agent(name="middle", model=calling("m1"), tools=[helper]).as_tool("helper", "Help.")
    return Agent(name="outer", model=calling("o1"), tools=[helper])


async def pays(line: Line, *, folder: str, between: bool) -> None:
    """Pay, and be gone inside the second turn of the inner run."""
    outer, inner = sessions(Path(folder))
    agent = agents(Path(folder) / "book", inner, dies_in="i2", between=between)
    await Runner.run(agent, "go", session=outer, run_config=RunConfig(run_id="r"))


async def what_is_seen(folder: Path) -> tuple[list[str], list[str]]:
    outer, inner = sessions(folder)
    try:
        return short(await asked_next(outer))[:-1], short(await asked_next(inner))[:-1]
    finally:
        await outer.close()
        await inner.close()


@pytest.mark.parametrize("between", [False, True], ids=["", "two calls deep"])
def test_a_kill_inside_leaves_both_conversations_usable_and_each_with_its_own(tmp_path: Path, between: bool) -> None:
    """Every later message of the outer session failed: the inner run's turns were to be stored there."""
    with Child(pays, folder=str(tmp_path), between=between) as child:
        assert child.result()[0] == "died"
    outer, inner = asyncio.run(what_is_seen(tmp_path))
    assert lines(tmp_path / "book") == ["i1", "i2"]
    assert outer == ["U(go)", "C(o1)", "O(o1: unknown)"]
    assert inner == ["U(pay)", *PAID, "O(i2: unknown)"]


@pytest.mark.parametrize("between", [False, True], ids=["", "two calls deep"])
async def test_one_that_waits_is_given_up_in_both(tmp_path: Path, between: bool) -> None:
    outer, inner = sessions(tmp_path)
    agent = agents(tmp_path / "book", inner, between=between)
    result = await Runner.run(agent, "go", session=outer, run_config=RunConfig(run_id="r"))
    assert [one.name for one in result.interruptions] == ["ask"]
    await Runner.cancel_run(agent, "r", session=outer)
    await outer.close()
    await inner.close()
    seen, seen_inside = await what_is_seen(tmp_path)
    assert lines(tmp_path / "book") == ["i1", "i2"]
    assert seen == ["U(go)", "C(o1)", "O(o1: unknown)"]
    assert seen_inside == ["U(pay)", *PAID, "C(i3)", "O(i2: done)", "O(i3: not run)"]
