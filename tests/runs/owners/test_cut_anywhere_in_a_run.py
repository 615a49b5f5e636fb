"""Whatever the network does during a whole run, the server has each turn once and the client knows what it has.

The connection is cut at any byte of any reply, cleanly or not, once or several times, with the request taken or not.
The run is resumed until it ends. Then the server's history is the story, and so is the client's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from openai import APIError, AsyncOpenAI

from standfast import RunState, SendOutcomeUnknownError
from standfast._src.base.errors import StandfastError
from standfast.testing.loopback import Asked, Cut, Drop, Fault, LoopbackServer, Status, call
from tests.runs.owners.stories import CONVERSATION, GIVEN
from tests.runs.owners.world import APPROVE, NO_RETRY, RETRY, World, words

pytestmark = pytest.mark.clause("D2", "D5", backend="runs")

STORY = ["U(hi)", "C1", "O1", "C2", "C3", "O2", "O3", "A"]
RESUMES_MAX = 12


def answer(asked: Asked) -> Any:
    """The same story however often a part of it is asked for: what comes next follows from what is there."""
    said = words(asked.context)
    said = said[said.index("U(hi)") :]
    if "O3" in said:
        return "That is all."
    if "O1" in said:
        return [call("look", {"what": "this"}, call_id="c2"), call("look", {"what": "that"}, call_id="c3")]
    return call("look", {"what": "first"}, call_id="c1")


@pytest.fixture(scope="module")
def shared() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


byte = st.integers(0, 700) | st.integers(0, 6000)  # most of what matters is at the beginning; a reply has some 4,000
faults = st.one_of(
    st.builds(Cut, after_bytes=byte, clean=st.booleans()),
    st.builds(Cut, after_events=st.integers(0, 14), clean=st.booleans()),
    # A server that has not taken a request does not say that its reply is complete: it is cut before that.
    st.builds(Cut, after_bytes=st.integers(0, 700), clean=st.booleans(), committed=st.just(False)),
    st.builds(Cut, after_events=st.integers(0, 4), clean=st.booleans(), committed=st.just(False)),
    st.builds(Drop, committed=st.booleans()),
    st.builds(Status, status=st.sampled_from([500, 502, 504]), committed=st.booleans()),
)
planned = st.lists(st.tuples(st.integers(1, 6), faults), max_size=3, unique_by=lambda plan: plan[0])


async def lived_through(world: World, policy: Any) -> list[BaseException]:
    """Run, and resume until the end, through text each time; what was raised on the way."""
    troubles: list[BaseException] = []
    step: Any = world.say("hi")
    while True:
        try:
            await step
            return troubles
        except (APIError, StandfastError) as trouble:
            troubles.append(trouble)
            assert len(troubles) < RESUMES_MAX, troubles
            state = await RunState.from_string(world.agent, trouble.run_state.to_string())  # type: ignore[union-attr]
            if world.strategy == GIVEN and isinstance(trouble, SendOutcomeUnknownError):
                world.agent.model_settings = APPROVE  # nothing else can be known about a chain
            step = world.resume(state)


async def scenario(
    server: LoopbackServer, strategy: str, streamed: bool, policy: Any, plan: list[tuple[int, Fault]]
) -> None:
    async with server.client(max_retries=0) as client:
        server.rule = lambda asked: "before"
        world = World(server, client, strategy, streamed, settings=policy)
        await world.begin()
        server.rule = answer
        first = len(server.model_calls)
        for number, fault in plan:
            server.fault(fault, on=_number(server, first + number))
        await lived_through(world, policy)
        agrees(world, strategy)
        server.clear_faults()  # a fault may be left where the run took fewer requests


def agrees(world: World, strategy: str) -> None:
    """Each turn once, on both sides."""
    assert world.last.final_output == "That is all."
    theirs = world.history()
    assert words(theirs) == STORY
    assert words(world.last.to_input_list()) == STORY
    if strategy == CONVERSATION:
        taken = [one for one in world.server.model_calls if one.committed and one.conversation_id == world.conversation]
        assert [words(one.input) for one in taken] == [["U(hi)"], ["O1"], ["O2", "O3"]]


def _number(server: LoopbackServer, wanted: int) -> Any:
    return lambda received: received.is_model_call and len(server.model_calls) == wanted


@settings(max_examples=60)
@given(streamed=st.booleans(), policy=st.sampled_from([NO_RETRY, RETRY, APPROVE]), plan=planned)
def test_a_conversation_has_each_turn_once_wherever_the_connection_is_cut(
    shared: LoopbackServer, streamed: bool, policy: Any, plan: list[tuple[int, Fault]]
):
    asyncio.run(scenario(shared, CONVERSATION, streamed, policy, plan))


@settings(max_examples=40)
@given(streamed=st.booleans(), policy=st.sampled_from([NO_RETRY, RETRY, APPROVE]), plan=planned)
def test_a_chain_has_each_turn_once_on_the_branch_that_is_gone_on_from(
    shared: LoopbackServer, streamed: bool, policy: Any, plan: list[tuple[int, Fault]]
):
    asyncio.run(scenario(shared, GIVEN, streamed, policy, plan))


@settings(max_examples=15)
@given(streamed=st.booleans(), at=st.integers(1, 3), cuts=st.lists(st.booleans(), min_size=1, max_size=3))
def test_listing_may_fail_too(shared: LoopbackServer, streamed: bool, at: int, cuts: list[bool]):
    """The server cannot be asked for a while: the run says so each time, and sends nothing meanwhile."""

    async def story() -> None:
        async with shared.client(max_retries=0) as client:
            world = World(shared, client, CONVERSATION, streamed, settings=NO_RETRY)
            shared.rule = answer
            first = len(shared.model_calls)
            shared.fault(Drop(committed=cuts[0]), on=_number(shared, first + at))
            lost = asyncio.Event()

            def is_listing(received: Any) -> bool:
                if len(shared.model_calls) >= first + at:
                    lost.set()
                return lost.is_set() and received.method == "GET" and received.path.endswith("/items")

            shared.fault(Status(503), on=is_listing, times=len(cuts))
            troubles = await lived_through(world, NO_RETRY)
            unknown = [trouble for trouble in troubles if isinstance(trouble, SendOutcomeUnknownError)]
            assert len(unknown) == len(cuts)
            agrees(world, CONVERSATION)
            assert len(shared.model_calls) - first == 3 + (not cuts[0])

    asyncio.run(story())


async def test_the_calm_story_is_the_story(server: LoopbackServer, client: AsyncOpenAI):
    world = World(server, client, CONVERSATION, streamed=False)
    server.rule = answer
    await world.say("hi")
    agrees(world, CONVERSATION)
