"""A call with tools, an approval, a handoff and an interruption, cut before and after every frame, in both directions.

However the line is cut: no tool runs twice, no typed or understood word is lost, every question is answered, and the
server's conversation and the session say the same in the end (E10, E13, E14).
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from standfast import InMemorySession
from standfast._kits.testing.leaks import no_leaks
from standfast._src.base.errors import ConnectionLostError
from standfast.testing.realtime import Cut, LoopbackRealtimeServer
from tests.realtime.session.parts import House, answer, calling, checked

TOGETHER = 16
"""How many calls are made at the same time: they wait for each other's machine, not for each other."""

Fault = tuple[Cut, Any, int]


async def conversation(fault: Fault | None) -> LoopbackRealtimeServer:
    """One call, from the first word to the last."""
    house, memory = House(), InMemorySession("caller")
    async with LoopbackRealtimeServer(answer) as server:
        server.answering.delta_ms = 400  # fewer frames to cut at
        if fault is not None:
            cut, direction, place = fault
            server.fault(cut, direction=direction, skip=place)
        async with calling(server, house, memory) as caller:
            await caller.type("hello")
            await caller.answered("hello")
            await caller.say("please book it")
            await caller.approve()
            await caller.answered("table for 2")
            gate = server.hold("response.output_audio.delta", skip=1, about="story")
            await caller.type("a story")
            await caller.until(lambda: any("Once" in words for _, words in caller.heard()))
            await caller.session.interrupt()
            gate.release()
            await caller.rest()
            await caller.type("to the manager")
            await caller.until(lambda: caller.session.current_agent.name == "Manager")
            await caller.rest()
            await caller.type("bye")
            await caller.answered("bye")
            await checked(caller, memory, house, {"book 2": 1})
    return server


async def test_nothing_is_lost_and_nothing_is_done_twice_wherever_the_line_is_cut():
    async with no_leaks():
        calm = await conversation(None)
    places = {direction: len(calm.frames("any", direction)) for direction in ("sent", "received")}
    faults: list[Fault] = [
        (Cut(side=side), direction, place)
        for direction, count in places.items()
        for place in range(count)
        for side in ("before", "after")
    ]
    limit, problems = asyncio.Semaphore(TOGETHER), list[str]()

    async def one(fault: Fault) -> None:
        async with limit:
            cut, direction, place = fault
            try:
                await conversation(fault)
            except ConnectionLostError:
                # Entering a session needs a connection; only the frames before that may be in the way.
                if place > 1:
                    problems.append(f"{direction} {place} {cut.side}: the call was lost")
            except (AssertionError, TimeoutError) as error:
                kind = calm.frames("any", direction)[place].type
                problems.append(f"{direction} {place} ({kind}) {cut.side}: {type(error).__name__} {error}")

    async with no_leaks():
        await asyncio.gather(*map(one, faults))
    assert not problems, f"{len(problems)} of {len(faults)} cuts:\n" + "\n".join(problems)
    assert len(faults) > 250


@pytest.mark.parametrize("code", [1001, 1011, 4000])
async def test_a_call_goes_on_whatever_the_server_says_when_it_closes(code: int):
    """1001 is how the time limit is told: a lost connection, not an end (E13)."""
    house, memory = House(), InMemorySession("caller")
    async with no_leaks(), LoopbackRealtimeServer(answer) as server, calling(server, house, memory) as caller:
        await caller.type("hello")
        await caller.answered("hello")
        server.close_all(code)
        await caller.type("again")
        await caller.answered("again")
        await checked(caller, memory, house, {})
        assert caller.count("connection_lost") == caller.count("reconnected") == 1
        assert len(server.conversations) == 2


async def test_the_time_limit_is_not_the_end_of_the_call():
    house, memory = House(), InMemorySession("caller")
    async with no_leaks(), LoopbackRealtimeServer(answer) as server, calling(server, house, memory) as caller:
        await caller.say("good evening")
        await caller.answered("good evening")
        server.expire()
        await caller.until(lambda: caller.count("reconnected") == 1)
        await caller.say("still there")
        await caller.answered("still there")
        await checked(caller, memory, house, {})


async def test_a_line_that_is_lost_again_and_again():
    house, memory = House(), InMemorySession("caller")
    async with no_leaks(), LoopbackRealtimeServer(answer) as server, calling(server, house, memory) as caller:
        for number in range(5):
            server.fault(Cut(), on="response.output_audio.delta", skip=1)
            await caller.type(f"word {number}")
            await caller.answered(f"word {number}")
        await checked(caller, memory, house, {})
        assert caller.session.stats["reconnects"] == 5
