"""Stopping a run whose own code does not want to stop: it ends all the same, and what was done is stored."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from standfast import (
    Agent,
    GuardrailFunctionOutput,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    input_guardrail,
)
from standfast.testing import ScriptedModel, assistant_message, function_call


class Stubborn:
    """An agent whose tool answers a cancellation with a result."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.model = ScriptedModel([[function_call("hold", {}, call_id="c1")], [assistant_message("too late")]])

        @function_tool
        async def hold() -> str:
            """Do not let go."""
            self.begun.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return "held on"
            return "never"

        self.agent: Agent[Any] = Agent(name="A", model=self.model, tools=[hold])


async def test_a_cancelled_run_ends_though_its_tool_swallows_the_cancellation(tmp_path: Path) -> None:
    desk, session = Stubborn(), SQLiteSession("s", tmp_path / "a.db")
    task = asyncio.create_task(Runner.run(desk.agent, "go", session=session))
    await desk.begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert len(desk.model.calls) == 1
    assert [item.get("output") for item in await session.get_items()] == [None, None, "held on"]


async def test_a_stream_that_is_cut_ends_though_a_tool_swallows_the_cancellation(tmp_path: Path) -> None:
    """Not after the time that a slow watcher is given, and without another request."""
    desk, session = Stubborn(), SQLiteSession("s", tmp_path / "a.db")
    result = Runner.run_streamed(desk.agent, "go", session=session)
    await desk.begun.wait()
    result.cancel()
    async with asyncio.timeout(20):
        assert [event async for event in result.stream_events()] == []
    assert len(desk.model.calls) == 1
    assert [item.get("output") for item in await session.get_items()] == [None, None, "held on"]


async def test_cancelling_a_stream_twice_stores_what_its_tools_did(tmp_path: Path) -> None:
    """The second `cancel` comes while the turn is being stored, and must not cut that short."""
    begun, storing, go_on = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Slow(SQLiteSession):
        async def append(self, *args: Any, **named: Any) -> Any:
            storing.set()
            await go_on.wait()
            return await super().append(*args, **named)

    @function_tool
    async def pay() -> str:
        """Pay."""
        begun.set()
        await asyncio.sleep(3600)
        return "paid"

    session = Slow("s", tmp_path / "a.db")
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel([[function_call("pay", {}, call_id="c1")]]), tools=[pay])
    result = Runner.run_streamed(agent, "go", session=session)
    await begun.wait()
    result.cancel()
    await storing.wait()
    result.cancel()
    await asyncio.sleep(0)
    go_on.set()
    assert [event async for event in result.stream_events()] == []
    assert [item.get("type") for item in await session.get_items()] == [None, "function_call", "function_call_output"]


@pytest.mark.parametrize("steps", range(12))
async def test_a_second_cancellation_at_any_moment_keeps_no_lease(steps: int, tmp_path: Path) -> None:
    """Whoever runs next on the session gets it at once, not when the lease of the dead run expires."""
    desk, session = Stubborn(), SQLiteSession("s", tmp_path / "a.db")
    task = asyncio.create_task(Runner.run(desk.agent, "go", session=session))
    await desk.begun.wait()
    task.cancel()
    for _ in range(steps):
        await asyncio.sleep(0.0005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel([[assistant_message("done")]]))
    await Runner.run(agent, "again", session=session, run_config=RunConfig(lease_wait_s=20))


async def test_a_second_cancellation_lets_a_plain_session_be_tidied_before_it_is_used_again() -> None:
    """Half a batch stands there and is being taken back: another run in between would make that impossible."""
    half_way = asyncio.Event()

    class Plain:
        session_id, session_settings = "p", None

        def __init__(self) -> None:
            self.items: list[Any] = []

        async def get_items(self, limit: int | None = None) -> list[Any]:
            await asyncio.sleep(0)
            return self.items[:] if limit is None else self.items[-limit:]

        async def add_items(self, items: list[Any]) -> None:
            for number, item in enumerate(items):
                self.items.append(item)
                if number == 1:
                    half_way.set()
                await asyncio.sleep(0)

        async def pop_item(self) -> Any:
            return self.items.pop() if self.items else None

        async def clear_session(self) -> None:
            self.items.clear()

    desk, session = Stubborn(), Plain()
    task = asyncio.create_task(Runner.run(desk.agent, "go", session=session))
    await desk.begun.wait()
    task.cancel()
    await half_way.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    agent: Agent[Any] = Agent(name="A", model=ScriptedModel([[assistant_message("done")]]))
    await Runner.run(agent, "again", session=session)
    kinds = [item.get("type") or item["role"] for item in session.items]
    assert kinds in (["user", "message"], ["user", "function_call", "function_call_output", "user", "message"])


async def test_a_model_that_swallows_its_cancellation_does_not_make_a_tripped_run_immortal(tmp_path: Path) -> None:
    """The guardrail tripped and the request does not end: who cancels twice gets control back."""
    asked, tripped, let_go = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class Deaf(ScriptedModel):
        async def get_response(self, *args: Any, **named: Any) -> Any:
            asked.set()
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                tripped.set()
                await let_go.wait()

    @input_guardrail
    async def trip(context: Any, agent: Any, given: Any) -> GuardrailFunctionOutput:
        await asked.wait()
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=True)

    agent: Agent[Any] = Agent(name="A", model=Deaf([]), input_guardrails=[trip])
    session = SQLiteSession("s", tmp_path / "a.db")
    task = asyncio.create_task(Runner.run(agent, "go", session=session))
    await tripped.wait()
    task.cancel()
    await asyncio.sleep(0.01)
    task.cancel()
    done, _ = await asyncio.wait([task], timeout=20)
    let_go.set()
    assert done
    with pytest.raises(asyncio.CancelledError):
        await task
