"""Filters and a server that owns the conversation (D3): what they leave out is owed, what they change was sent."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast import ModelInputData, RunConfig, RunState, SendOutcomeUnknownError, UserError
from standfast.testing.loopback import Drop, LoopbackServer, Script, Status, call, rate_limited
from tests.runs.owners.stories import AUTOMATIC, CONVERSATION, GIVEN
from tests.runs.owners.world import NO_RETRY, World, both_modes, words

pytestmark = pytest.mark.clause("D3", backend="runs")

server_owned = pytest.mark.parametrize("strategy", [CONVERSATION, GIVEN, AUTOMATIC])
SECRET = {"role": "user", "content": "secret"}
TIME = {"role": "developer", "content": "It is noon."}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def filtering(change: Callable[[list[Any]], list[Any]], *, times: int = 100) -> RunConfig:
    """A run with a filter that changes the first `times` requests."""
    left = [times]

    def change_input(data: Any) -> ModelInputData:
        left[0] -= 1
        items = change(data.model_data.input) if left[0] >= 0 else data.model_data.input
        return ModelInputData(items, data.model_data.instructions)

    return RunConfig(call_model_input_filter=change_input)


def sent(world: World) -> list[str]:
    return [line.split(" [")[0] for line in world.received()]


@both_modes
@server_owned
async def test_the_filter_sees_what_is_new_and_its_list_is_what_is_sent(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    seen: list[list[str]] = []

    def look_at(items: list[Any]) -> list[Any]:
        seen.append(words(items))
        return items

    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = filtering(look_at)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    await world.say("hi")
    assert seen == [["U(hi)"], ["O1"]]
    assert sent(world) == ["U(hi)", "O1"]


@both_modes
@server_owned
async def test_what_a_filter_leaves_out_is_still_owed_and_offered_again(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = filtering(lambda items: [item for item in items if item != SECRET], times=1)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    await world.run([user("one"), SECRET, user("two")], **world.owner())
    assert sent(world) == ["U(one) U(two)", "U(secret) O1"]
    assert world.last.owed_items == []


@both_modes
@server_owned
async def test_what_is_left_out_to_the_end_is_owed_at_the_end(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = filtering(lambda items: [item for item in items if item != SECRET])
    server.rule = Script([call("look", call_id="c1"), "ok"])
    await world.run([user("one"), SECRET], **world.owner())
    assert sent(world) == ["U(one)", "O1"]
    assert world.last.owed_items == [SECRET]
    assert words(world.last.to_input_list()) == ["U(one)", "U(secret)", "C1", "O1", "A"]


@both_modes
@server_owned
async def test_what_a_filter_rewrites_counts_as_its_source(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = filtering(lambda items: [user("masked") if item == SECRET else item for item in items])
    server.rule = Script([call("look", call_id="c1"), "ok"])
    await world.run([user("one"), SECRET, user("two")], **world.owner())
    assert sent(world) == ["U(one) U(masked) U(two)", "O1"]
    assert words(world.last.to_input_list()) == ["U(one)", "U(secret)", "U(two)", "C1", "O1", "A"]


@both_modes
@server_owned
async def test_what_a_filter_invents_is_sent_once_and_enters_no_history(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = filtering(lambda items: [TIME, *items], times=1)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    await world.say("hi")
    assert sent(world) == ["U(It is noon.) U(hi)", "O1"]
    assert words(world.last.to_input_list()) == ["U(hi)", "C1", "O1", "A"]
    assert world.last.owed_items == []


@both_modes
@server_owned
async def test_of_two_equal_messages_one_left_out_is_owed_once(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = filtering(lambda items: items[1:], times=1)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    await world.run([user("yes"), user("yes")], **world.owner())
    assert sent(world) == ["U(yes)", "U(yes) O1"]


@both_modes
@server_owned
async def test_a_retry_sends_the_same_list_and_asks_the_filter_once(
    strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """Nothing joins the list after the filter; what was refused was not acknowledged."""
    calls: list[int] = []

    def number(items: list[Any]) -> list[Any]:
        calls.append(len(calls))
        return [user(f"note {len(calls)}"), *items]

    world = World(server, client, strategy, streamed)
    await world.begin()
    world.config = filtering(number)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    server.fault(rate_limited(0.001), times=2)
    await world.say("hi")
    assert sent(world) == [*["U(note 1) U(hi)"] * 3, "U(note 2) O1"]
    assert len(calls) == 2


@both_modes
async def test_what_a_filter_made_of_a_request_is_what_a_resumed_run_looks_for(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    """The list is saved as in flight before it leaves. Looked for by its sources it would not be found, and doubled."""
    world = World(server, client, CONVERSATION, streamed, settings=NO_RETRY)
    world.config = filtering(lambda items: [user("masked") if item == SECRET else item for item in items])
    server.fault(Drop(committed=True))
    server.fault(Status(500), on="/items", skip=1)
    with pytest.raises(SendOutcomeUnknownError) as caught:
        await world.run([user("one"), SECRET], **world.owner())
    text = caught.value.run_state.to_string()  # type: ignore[attr-defined]
    assert "masked" in json.dumps(json.loads(text))
    await world.resume(await RunState.from_string(world.agent, text))
    assert sent(world) == ["U(one) U(masked)"]
    assert words(server.history(world.conversation or "")) == ["U(one)", "U(masked)", "A"]


@both_modes
async def test_a_resumed_run_knows_what_the_lost_request_left_out(
    streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, CONVERSATION, streamed, settings=NO_RETRY)
    world.config = filtering(lambda items: [item for item in items if item != SECRET], times=1)
    server.rule = Script([call("look", call_id="c1"), "ok"])
    server.fault(Drop(committed=True))
    server.fault(Status(500), on="/items", skip=1)
    with pytest.raises(SendOutcomeUnknownError) as caught:
        await world.run([SECRET, user("two")], **world.owner())
    await world.resume(caught.value.run_state)  # type: ignore[attr-defined]
    assert sent(world) == ["U(two)", "U(secret) O1"]


@both_modes
async def test_a_request_with_nothing_in_it_is_settled_too(streamed: bool, server: LoopbackServer, client: AsyncOpenAI):
    """The conversation alone may be asked to go on; then the answer stands behind nothing new."""
    world = World(server, client, CONVERSATION, streamed, settings=NO_RETRY)
    await world.say("hi")
    world.config = filtering(lambda items: [], times=1)
    server.fault(Drop(committed=True))
    await world.say("left out")
    assert world.received()[1:] == ["[conv]"]
    assert words(server.history(world.conversation or "")) == ["U(hi)", "A", "A"]
    assert world.last.owed_items == [user("left out")]


# --- what a filter may return ----------------------------------------------------------------------------------------

WRONG: dict[str, Any] = {
    "None": lambda data: None,
    "a list": lambda data: list(data.model_data.input),
    "a text": lambda data: ModelInputData("hi", None),  # type: ignore[arg-type]
    "a tuple": lambda data: ModelInputData(tuple(data.model_data.input), None),  # type: ignore[arg-type]
    "nothing": lambda data: ModelInputData(None, None),  # type: ignore[arg-type]
}


@pytest.mark.clause("D6", backend="runs")
@both_modes
@pytest.mark.parametrize("strategy", ["replay", CONVERSATION, AUTOMATIC])
@pytest.mark.parametrize("wrong", WRONG)
async def test_a_filter_that_returns_no_list_is_refused_before_anything_is_sent(
    wrong: str, strategy: str, streamed: bool, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, strategy, streamed)
    world.config = RunConfig(call_model_input_filter=WRONG[wrong])
    with pytest.raises(UserError, match="call_model_input_filter") as caught:
        await world.say("hi")
    assert "ModelInputData" in caught.value.remedy
    assert server.model_calls == []
