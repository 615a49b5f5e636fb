"""Settings of a run that only trouble shows: how long it waits, how long its lease lives, that it is renewed, and what
a plain session did not get. Each test fails if its setting is ignored."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from helpers.processes import Child, stop_outside_writes
from helpers.workers import work

from standfast import (
    Agent,
    InMemorySession,
    RunConfig,
    Runner,
    SessionABC,
    SessionBusyError,
    SQLiteSession,
    function_tool,
)
from standfast.testing import ScriptedModel, final, function_call


def speaker() -> Agent[Any]:
    return Agent(name="B", model=ScriptedModel([final("hi")]))


@pytest.mark.parametrize("wait_s", [0.0, 0.4])
async def test_a_run_waits_for_its_session_as_long_as_it_was_told(wait_s: float) -> None:
    """C13: and the error says how long."""
    session = InMemorySession("s")
    lease = await session.lease(ttl_s=600, wait_s=0)
    began = time.monotonic()
    with pytest.raises(SessionBusyError, match=rf"within {wait_s} s"):
        await Runner.run(speaker(), "x", session=session, run_config=RunConfig(lease_wait_s=wait_s))
    assert time.monotonic() - began >= wait_s
    await lease.release()


@pytest.mark.parametrize(("ttl_s", "gets_it"), [(1.0, True), (600.0, False)])
async def test_a_silent_worker_keeps_its_session_as_long_as_its_lease_was_told_to_live(
    ttl_s: float, gets_it: bool, tmp_path: Path
) -> None:
    """B7: the worker is stopped, so nobody renews; another gets the session after `lease_ttl_s`, and not before."""
    path = tmp_path / "a.db"
    session = SQLiteSession("s", path)
    with Child(work, path=str(path), who="job", at="call 3 paid", config={"lease_ttl_s": ttl_s}) as child:
        await asyncio.to_thread(child.hear_until, "here")
        await asyncio.to_thread(stop_outside_writes, child.pid, path)
        config = RunConfig(lease_wait_s=120.0 if gets_it else 2.5)
        if gets_it:
            assert (await Runner.run(speaker(), "x", session=session, run_config=config)).final_output == "hi"
        else:
            with pytest.raises(SessionBusyError):
                await Runner.run(speaker(), "x", session=session, run_config=config)
    await session.close()


async def test_a_lease_is_renewed_for_as_long_as_its_run_lives() -> None:
    """B7: a tool takes twice as long as the lease lives, and nobody gets in between."""
    session, began = InMemorySession("s"), asyncio.Event()

    @function_tool
    async def pay() -> str:
        """Pay, slowly."""
        began.set()
        await asyncio.sleep(6.0)
        return "paid"

    model = ScriptedModel([[function_call("pay", {}, call_id="c1")], final("done")])
    agent: Agent[Any] = Agent(name="A", tools=[pay], model=model)
    running = asyncio.create_task(Runner.run(agent, "x", session=session, run_config=RunConfig(lease_ttl_s=3.0)))
    await began.wait()
    await asyncio.sleep(5.0)
    with pytest.raises(SessionBusyError):
        await Runner.run(speaker(), "y", session=session, run_config=RunConfig(concurrency="reject"))
    assert (await running).final_output == "done"


class Plain(SessionABC):
    """Somebody's own session; its store can be away."""

    def __init__(self) -> None:
        self.session_id, self.items, self.is_away = "s", list[Any](), False

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items)

    async def add_items(self, items: list[Any]) -> None:
        if self.is_away:
            raise OSError("the store is away")
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


async def test_the_next_run_is_told_what_a_plain_session_did_not_get() -> None:
    """C14: `result.not_stored` names the run and the number of its items, once."""
    session, began = Plain(), asyncio.Event()

    @function_tool
    async def pay() -> str:
        """Pay, slowly."""
        began.set()
        await asyncio.sleep(600)
        return "paid"

    agent: Agent[Any] = Agent(name="A", tools=[pay], model=ScriptedModel([[function_call("pay", {}, call_id="c1")]]))
    running = asyncio.create_task(Runner.run(agent, "x", session=session, run_config=RunConfig(run_id="cut")))
    await began.wait()
    session.is_away = True
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    session.is_away = False
    assert session.items == []
    result = await Runner.run(speaker(), "y", session=session)
    assert result.not_stored == (("cut", 3),), "the input, the call, and that it was cut"
    assert (await Runner.run(speaker(), "z", session=session)).not_stored == ()
