"""Entering acquires, and gives everything back if it fails (E1)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from realtime.session.helpers import at, runner

from standfast import InMemorySession
from standfast._kits.testing.loopback.faults import Gate
from standfast._kits.testing.realtime.faults import Stall
from standfast._src.base.errors import ConnectionRefusedByServerError, RealtimeStateError
from standfast.realtime import OpenAIRealtimeWebSocketModel, RealtimeAgent, RealtimeRunner
from standfast.testing import LoopbackRealtimeServer, no_leaks


async def test_making_a_session_does_nothing_outside_the_process():
    """E1: no connection, no key, no store and no transport is touched before it is entered."""

    class Untouched(OpenAIRealtimeWebSocketModel):
        def add_listener(self, listener: Any) -> None:
            raise AssertionError("it listens")

        async def dial(self, options: Any) -> None:
            raise AssertionError("it connected")

    session = await RealtimeRunner(RealtimeAgent(name="a"), model=Untouched()).run(session=InMemorySession("s"))
    assert session.state == "new"
    await session.close()
    assert session.state == "closed"


@pytest.mark.parametrize("fails", ["instructions", "upgrade", "settings", "cancelled"])
async def test_whatever_fails_while_entering_is_raised_and_nothing_is_left(fails: str):
    """E1: the listener, the connection, the session's lease and every task are given back, for another call."""

    def broken(context: Any, agent: Any) -> str:
        raise ValueError("no instructions today")

    store = InMemorySession("s")
    agent = RealtimeAgent(name="a", instructions=broken if fails == "instructions" else "Talk.")
    settings: Any = {"output_modalities": ["smoke"]} if fails == "settings" else {}
    async with LoopbackRealtimeServer(["Hello."]) as server, no_leaks():
        model = OpenAIRealtimeWebSocketModel()
        session = await RealtimeRunner(agent, model=model, config={"model_settings": settings}).run(
            model_config=at(server), session=store
        )
        if fails == "upgrade":
            server.reject(401)
        if fails == "cancelled":
            gate = Gate()
            server.fault(Stall(gate), on="session.updated", direction="sent")
            entering = asyncio.ensure_future(session.enter())
            await server.until("session.update")
            entering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await entering
            gate.release()
        else:
            wanted = ValueError if fails == "instructions" else ConnectionRefusedByServerError
            with pytest.raises(wanted):
                await session.enter()
        assert session.state == "closed"
        with pytest.raises(RealtimeStateError):
            await session.enter()
        agent.instructions = "Talk."
        other = await runner(agent, lease_wait_s=1.0).run(model_config=at(server), session=store)
        async with other:
            assert other.state == "open"
