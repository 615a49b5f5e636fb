"""Going to another branch while a run is under way through the same session object.

What the run stored next was refused on the other branch, its tools' effects stood on neither, and where it had stored
nothing yet its turn stood on a branch that its model had not seen.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from standfast import AdvancedSQLiteSession, Agent, RunConfig, Runner, SessionBusyError, function_tool
from standfast.testing import ScriptedModel, assistant_message, function_call

MOVES: dict[str, Callable[[Any], Awaitable[Any]]] = {
    "make a branch": lambda session: session.create_branch_from_turn(2, "other"),
    "make one from words": lambda session: session.create_branch_from_content("second", "other"),
    "switch": lambda session: session.switch_to_branch("main"),
    "delete where it is": lambda session: session.delete_branch("tried", force=True),
    "clear": lambda session: session.clear_session(),
}


def opened(path: Path) -> AdvancedSQLiteSession:
    return AdvancedSQLiteSession(session_id="s", db_path=path, create_tables=True)


@pytest.mark.parametrize("move", MOVES)
async def test_a_run_stays_on_the_branch_it_began_on(move: str, tmp_path: Path) -> None:
    """C3, C14, B7: the move is refused, and works when the run has ended; another object may go where it likes."""
    session, paid, go_on = opened(tmp_path / "talks.db"), asyncio.Event(), asyncio.Event()
    await session.add_items(
        [{"role": role, "content": text} for text in ("first", "second") for role in ("user", "assistant")]
    )
    await session.create_branch_from_turn(2, "tried")
    await session.add_items([{"role": "user", "content": "second, tried"}])

    @function_tool
    async def pay() -> str:
        """Pay."""
        paid.set()
        await go_on.wait()
        return "paid"

    model = ScriptedModel([[function_call("pay", {}, call_id="1")], [assistant_message("Done.")]])
    agent = Agent(name="Clerk", model=model, tools=[pay])
    run = asyncio.ensure_future(Runner.run(agent, "Pay.", session=session, run_config=RunConfig(run_id="r")))
    await paid.wait()
    with pytest.raises(SessionBusyError, match="another branch") as refused:
        await MOVES[move](session)
    assert refused.value.remedy
    other = opened(tmp_path / "talks.db")
    await other.switch_to_branch("main")
    go_on.set()
    await run
    kinds = [item.get("type") or item["role"] for item in await session.get_items()]
    assert kinds == ["user", "assistant", "user", "user", "function_call", "function_call_output", "message"]
    assert len(await other.get_items()) == 4
    assert await session.holder() is None
    await MOVES[move](session)
    session.close()
    other.close()
