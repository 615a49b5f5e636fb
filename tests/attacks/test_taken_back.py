"""Taking back what a run wrote that has not ended: it goes on behind that.

A run stores its items by number. One whose first items were taken back could store nothing more, and neither could
whoever settles it: every later message of the session failed, and giving the run up did too.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from standfast import Agent, RunConfig, Runner, RunStateError, function_tool
from standfast.testing import ScriptedModel, assistant_message, function_call

CALL_AND_ANSWER = [
    [function_call("pay", {}, call_id="1")],
    [function_call("pay", {}, call_id="2")],
    [assistant_message("Done.")],
]


def clerk(pay: Any, script: list[Any] | None = None) -> Agent[Any]:
    return Agent(name="Clerk", model=ScriptedModel(script or CALL_AND_ANSWER), tools=[pay])


def kinds(items: list[Any]) -> list[str]:
    return [item.get("type") or item["role"] for item in items]


WHOLE = ["user", *["function_call", "function_call_output"] * 2, "message"]


async def test_nobody_takes_back_what_a_run_under_way_wrote(session: Any) -> None:
    """B5, C8, C15: it is refused, and what the tools did is stored."""
    paid, go_on = asyncio.Event(), asyncio.Event()
    count = 0

    @function_tool
    async def pay() -> str:
        """Pay."""
        nonlocal count
        count += 1
        if count == 2:
            paid.set()
            await go_on.wait()
        return f"paid {count}"

    running = asyncio.ensure_future(
        Runner.run(clerk(pay), "Pay twice.", session=session, run_config=RunConfig(run_id="r"))
    )
    await paid.wait()
    with pytest.raises(RunStateError, match="has not ended"):
        await session.rewind(writer="r", to=0)
    go_on.set()
    await running
    assert kinds(await session.get_items()) == WHOLE
    await session.rewind(writer="r", to=0)  # it has ended
    assert await session.get_items() == []


async def test_what_a_paused_run_wrote_is_taken_back_once_it_was_given_up(session: Any) -> None:
    """B5, C15, D7: the remedy works, and the session goes on."""

    @function_tool(needs_approval=True)
    async def pay() -> str:
        """Pay."""
        return "paid"

    await Runner.run(clerk(pay), "Pay twice.", session=session, run_config=RunConfig(run_id="r"))
    with pytest.raises(RunStateError, match="paused") as refused:
        await session.rewind(writer="r", to=0)
    assert "cancel_run" in refused.value.remedy
    assert kinds(await session.get_items()) == ["user"]
    await Runner.cancel_run(clerk(pay), "r", session=session)
    await session.rewind(writer="r", to=0)
    answers = clerk(pay, [[assistant_message("Nothing was paid.")]])
    await Runner.run(answers, "What happened?", session=session)
    assert kinds(await session.get_items()) == ["user", "message"]
