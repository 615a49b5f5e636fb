"""Code of the application that raises what is no `Exception`: it ends the call, and reaches somebody (E4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from realtime.session.helpers import PATIENCE_S, Reader, until

from standfast import AgentHooks, GuardrailFunctionOutput, InMemorySession, function_tool, output_guardrail
from standfast._src.base.errors import UserError
from standfast.realtime import (
    RealtimeAgent,
    RealtimeModelToolCallEvent,
    RealtimeModelTranscriptDeltaEvent,
    RealtimeModelTurnEndedEvent,
    RealtimeModelTurnStartedEvent,
    RealtimeRunner,
    RealtimeSession,
)
from standfast.realtime.testing import ScriptedRealtimeModel
from standfast.testing import LoopbackRealtimeServer, no_leaks
from standfast.testing.loopback import call


class Crash(BaseException):
    """What `pytest.fail` in a fake tool raises is of this kind."""


@function_tool(failure_error_function=None)
async def crashing() -> str:
    """Raises what nobody catches."""
    raise Crash("on purpose")


@function_tool(failure_error_function=None)
def crashing_in_a_thread() -> str:
    """Raises what nobody catches, in a thread."""
    raise Crash("on purpose")


@function_tool(failure_error_function=None)
async def cancelling() -> str:
    """Cancels the task it runs in."""
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(0)
    return "never"


@output_guardrail
async def judging(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    raise Crash("on purpose")


class Hooks(AgentHooks[Any]):
    async def on_start(self, context: Any, agent: Any) -> None:
        raise Crash("on purpose")


AGENTS: dict[str, RealtimeAgent[Any]] = {
    "tool": RealtimeAgent(name="Desk", tools=[crashing]),
    "thread": RealtimeAgent(name="Desk", tools=[crashing_in_a_thread]),
    "guardrail": RealtimeAgent(name="Desk", output_guardrails=[judging]),
    "hook": RealtimeAgent(name="Desk", hooks=Hooks()),
}
NAMES = {"tool": "crashing", "thread": "crashing_in_a_thread"}


async def provoke(model: ScriptedRealtimeModel, where: str) -> None:
    """Let that code run. The last event is the one that does it: the transport is closed right after."""
    if where in NAMES:
        await model.emit(RealtimeModelToolCallEvent(NAMES[where], "c1", "{}"))
    elif where == "hook":
        await model.emit(RealtimeModelTurnStartedEvent(response_id="r1"))
    else:
        await model.emit(RealtimeModelTranscriptDeltaEvent("i1", "Some words.", "r1"))
        await model.emit(RealtimeModelTurnEndedEvent(response_id="r1"))


async def entered(model: Any, where: str, *, has_store: bool) -> RealtimeSession:
    store = InMemorySession("s") if has_store else None
    return await (await RealtimeRunner(AGENTS[where], model=model).run(session=store)).enter()


every_place = pytest.mark.parametrize("where", AGENTS)
stored = pytest.mark.parametrize("has_store", [False, True], ids=["alone", "with a session"])


@every_place
@stored
async def test_without_a_reader_every_caller_and_then_close_gets_it(where: str, has_store: bool):
    """The state stayed open and a message waited for ever."""
    model = ScriptedRealtimeModel(strict=False)
    async with no_leaks():
        session = await entered(model, where, has_store=has_store)
        await provoke(model, where)
        await until(lambda: session.state == "closed")
        assert model.closed
        with pytest.raises(Crash):
            await asyncio.wait_for(session.close(), PATIENCE_S)
        await session.close()  # once is enough


@stored
async def test_sending_after_it_raises_it_and_close_need_not(has_store: bool):
    model = ScriptedRealtimeModel(strict=False)
    async with no_leaks():
        session = await entered(model, "tool", has_store=has_store)
        await provoke(model, "tool")
        await until(lambda: session.state != "open")
        with pytest.raises(Crash):
            await asyncio.wait_for(session.send_message("hello?"), PATIENCE_S)
        await session.close()


@every_place
async def test_a_reader_gets_an_error_event_and_then_the_error(where: str):
    model = ScriptedRealtimeModel(strict=False)
    caught: list[BaseException] = []

    async def read() -> list[Any]:
        events = []
        try:
            async for event in session:
                events.append(event)
        except Crash as crash:
            caught.append(crash)
        return events

    async with no_leaks():
        session = await entered(model, where, has_store=False)
        reading = asyncio.ensure_future(read())
        await asyncio.sleep(0)
        await provoke(model, where)
        events = await asyncio.wait_for(reading, PATIENCE_S)
        assert [event.error for event in events if event.type == "error"] == caught
        assert len(caught) == 1
        await session.close()


async def crash_in_a_block(*, read: bool = False, error: Exception | None = None) -> None:
    model = ScriptedRealtimeModel(strict=False)
    async with no_leaks(), await RealtimeRunner(AGENTS["tool"], model=model).run() as session:
        await provoke(model, "tool")
        await until(lambda: session.state == "closed")
        if read:
            async for event in session:
                if event.type == "error":
                    break
        if error is not None:
            raise error


async def test_a_reader_who_left_at_the_error_event_has_been_told():
    await crash_in_a_block(read=True)


async def test_the_block_raises_it_where_nobody_read():
    with pytest.raises(Crash):
        await crash_in_a_block()


async def test_an_error_of_the_block_is_not_replaced_and_has_a_note_of_it():
    with pytest.raises(KeyError) as raised:
        await crash_in_a_block(error=KeyError("mine"))
    assert "Crash" in raised.value.__notes__[0]


async def test_it_ends_a_call_on_a_websocket_and_the_call_can_be_resumed():
    """The connection is closed, the lease is released, and another worker settles the call that had begun."""
    store = InMemorySession("s")
    async with LoopbackRealtimeServer([call("crashing"), "I am sorry"]) as server, no_leaks():
        options: Any = {"url": server.url, "api_key": "k"}
        session = await RealtimeRunner(AGENTS["tool"]).run(session=store, run_id="call", model_config=options)
        await session.enter()
        await session.send_message("go")
        await until(lambda: session.state == "closed")
        await until(lambda: server.connection_count == 0)
        with pytest.raises(Crash):
            await session.close()
        other = await RealtimeRunner(AGENTS["tool"]).resume("call", session=store, model_config=options)
        async with other:
            reader = Reader(other)
            await reader.until("agent_end")
        await reader.task
        items = await store.get_items()
    assert [item["type"] for item in items if "type" in item][:2] == ["function_call", "function_call_output"]


async def test_a_tool_that_cancels_its_own_task_leaves_nobody_waiting():
    """A cancellation that the session did not ask for ended its loop without a word."""
    model = ScriptedRealtimeModel(strict=False)
    agent = RealtimeAgent(name="Desk", tools=[cancelling])
    async with no_leaks():
        session = await (await RealtimeRunner(agent, model=model).run()).enter()
        reader = Reader(session)
        await model.emit(RealtimeModelToolCallEvent("cancelling", "c1", "{}"))
        told = await reader.until("error")
        await asyncio.wait_for(reader.task, PATIENCE_S)
        assert reader.error is told.error
        assert isinstance(reader.error, UserError)
        await session.close()


async def test_callers_that_wait_when_the_session_is_closed_get_an_error_and_no_cancellation():
    """A caller that nobody cancelled must not get a CancelledError."""
    never = asyncio.Event()

    class Deaf(ScriptedRealtimeModel):
        async def send_event(self, event: Any) -> None:
            await never.wait()

    async with no_leaks():
        session = await (await RealtimeRunner(RealtimeAgent(name="Desk"), model=Deaf(strict=False)).run()).enter()
        sending = asyncio.ensure_future(session.send_message("hello"))
        settling = asyncio.ensure_future(session.settled())
        await asyncio.sleep(0.01)
        await session.close()
        with pytest.raises(RuntimeError, match="closed before it was sent"):
            await asyncio.wait_for(sending, PATIENCE_S)
        await asyncio.wait_for(settling, PATIENCE_S)
