"""Closing a call at every step of what its callers do: each of them gets an end, and nothing is left (E2, E3, E4)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
from realtime.session.helpers import PATIENCE_S

from standfast import AgentHooks, GuardrailFunctionOutput, InMemorySession, function_tool, output_guardrail
from standfast._src.base.errors import StandfastError
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
from standfast.testing import no_leaks


async def _slowly(*arguments: Any) -> Any:
    for _ in range(2):
        await asyncio.sleep(0)
    return "Talk."


@function_tool
async def look_up() -> str:
    """Takes two rounds."""
    return str(await _slowly())


@function_tool(needs_approval=True)
async def book() -> str:
    """Needs a person."""
    return str(await _slowly())


@output_guardrail
async def judging(context: Any, agent: Any, output: Any) -> GuardrailFunctionOutput:
    await _slowly()
    return GuardrailFunctionOutput(None, tripwire_triggered="secret" in str(output))


class Hooks(AgentHooks[Any]):
    async def on_start(self, context: Any, agent: Any) -> None:
        await _slowly()

    async def on_handoff(self, context: Any, agent: Any, source: Any) -> None:
        await _slowly()


def desk(name: str) -> RealtimeAgent[Any]:
    return RealtimeAgent(
        name=name, instructions=_slowly, tools=[look_up, book], output_guardrails=[judging], hooks=Hooks()
    )


class Slow(ScriptedRealtimeModel):
    """A transport that takes some rounds for everything."""

    async def send_event(self, event: Any) -> None:
        await _slowly()
        await super().send_event(event)

    async def close(self) -> None:
        await _slowly()
        await super().close()


async def feed(session: RealtimeSession) -> None:
    """What a model does: two calls, and words that a guardrail refuses."""
    for event in (
        RealtimeModelTurnStartedEvent(),
        RealtimeModelToolCallEvent("look_up", "c1", "{}"),
        RealtimeModelToolCallEvent("book", "c2", "{}"),
        RealtimeModelTranscriptDeltaEvent("i1", "the secret", "r1"),
        RealtimeModelTurnEndedEvent(response_id="r1"),
    ):
        await session.on_event(event)
        await asyncio.sleep(0)


async def approve(session: RealtimeSession) -> None:
    while not session.pending_approvals and session.state != "closed":
        await asyncio.sleep(0)
    for one in session.pending_approvals[:1]:
        await session.approve_tool_call(one.call_id)


async def read(session: RealtimeSession) -> None:
    async for _ in session:
        pass


@pytest.mark.parametrize("is_entered", [True, False], ids=["entered", "fed"])
@pytest.mark.parametrize("has_store", [False, True], ids=["alone", "with a session"])
async def test_whatever_callers_do_when_it_is_closed_each_gets_an_end(has_store: bool, is_entered: bool):
    """One round of the loop more each time, until everything was through before it was closed."""
    store = InMemorySession("s") if has_store else None
    for rounds in range(300):
        async with no_leaks():
            model = Slow(strict=False)
            runner = RealtimeRunner(desk("Desk"), model=model)
            session = await runner.run(session=store, run_id=f"call{rounds}")
            if is_entered:
                await session.enter()
            callers: list[Coroutine[Any, Any, None]] = [
                feed(session),
                approve(session),
                session.send_message("hello"),
                session.update_agent(desk("Other")),
                session.interrupt(),
            ]
            doing = [asyncio.ensure_future(one) for one in callers]
            waiting = [asyncio.ensure_future(session.settled()), asyncio.ensure_future(read(session))]
            for _ in range(rounds):
                await asyncio.sleep(0)
            is_through = all(one.done() for one in doing)
            async with asyncio.timeout(PATIENCE_S):
                await session.close()
                ends = await asyncio.gather(*doing, *waiting, return_exceptions=True)
            odd = [end for end in ends if end is not None and not isinstance(end, StandfastError)]
            assert not odd, f"after {rounds} rounds: {odd}"
        assert session.state == "closed"
        if store is not None:
            await (await store.lease(ttl_s=5, wait_s=0)).release()
        if is_through:
            break
    assert 10 < rounds < 299
