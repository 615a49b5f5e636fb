"""Moving a conversation between a session and the server: whole, with a report, and safe to repeat."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from openai import AsyncOpenAI

from standfast import (
    InMemorySession,
    MoveInterruptedError,
    SQLiteSession,
    UserError,
    move_to_conversation,
    move_to_session,
)
from standfast._src.base.errors import NotFoundError
from standfast.testing.loopback import Cut, Drop, LoopbackServer, Script, Status, call, reasoning
from tests.runs.owners.world import World, words


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def call_item(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": "{}", **more}


def output_item(number: int, **more: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": f"c{number}", "output": "seen", **more}


def reasoned(number: int) -> dict[str, Any]:
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "x"}


UNKNOWN = {"role": "user", "content": [{"type": "hologram", "data": "…"}]}
"""A message that the service refuses: it knows no such part."""


@pytest.fixture(params=["SQLite", "memory"])
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made: Any = SQLiteSession("s", str(tmp_path / "s.db")) if request.param == "SQLite" else InMemorySession("s")
    yield made
    made.close()


# --- there and back --------------------------------------------------------------------------------------------------


async def test_a_conversation_goes_to_the_server_and_comes_home_and_is_gone_on_with_each_time(
    session: Any, server: LoopbackServer, client: AsyncOpenAI
):
    world = World(server, client, "session", streamed=False)
    world.session = session
    server.rule = Script([[reasoning("hm", encrypted_content="x"), call("look", call_id="c1")], "ok", "there", "home"])
    await world.say("hi")
    there = await move_to_conversation(session, client=client)
    assert (there.carried, there.already_there, there.not_carried) == (5, 0, ())
    assert words(server.history(there.conversation_id)) == ["U(hi)", "R", "C1", "O1", "A"]

    await world.run("on the server", conversation_id=there.conversation_id)
    assert words(server.model_calls[-1].input) == ["U(on the server)"]

    home = InMemorySession("home")
    back = await move_to_session(there.conversation_id, home, client=client)
    assert (back.carried, back.not_carried, back.conversation_id) == (7, (), there.conversation_id)
    await world.run("at home", session=home)
    assert words(server.model_calls[-1].input) == ["U(hi)", "R", "C1", "O1", "A", "U(on the server)", "A", "U(at home)"]
    assert words(await session.get_items()) == ["U(hi)", "R", "C1", "O1", "A"]


async def test_a_long_history_goes_in_steps_of_what_the_service_takes(
    session: Any, server: LoopbackServer, client: AsyncOpenAI
):
    await session.add_items([user(str(number)) for number in range(105)])
    report = await move_to_conversation(session, client=client)
    assert report.carried == 105
    sizes = [len(one.body["items"]) for one in server.requests if one.method == "POST" and one.path.endswith("/items")]
    assert sizes == [20] * 5 + [5]
    home = InMemorySession("home")
    assert (await move_to_session(report.conversation_id, home, client=client)).carried == 105
    assert await home.get_items() == await session.get_items()


async def test_a_default_limit_hides_nothing_from_a_move(server: LoopbackServer, client: AsyncOpenAI):
    session = InMemorySession("s", session_settings={"limit": 1})
    await session.add_items([user("one"), user("two")])
    assert (await move_to_conversation(session, client=client)).carried == 2


async def test_an_empty_session_becomes_an_empty_conversation(server: LoopbackServer, client: AsyncOpenAI):
    report = await move_to_conversation(InMemorySession("s"), client=client)
    assert report.carried == 0
    assert server.history(report.conversation_id) == []
    assert (await move_to_session(report.conversation_id, InMemorySession("home"), client=client)).carried == 0


# --- what cannot come along ------------------------------------------------------------------------------------------


async def test_what_stays_behind_is_reported_with_its_reason(session: Any, server: LoopbackServer, client: AsyncOpenAI):
    items = [
        user("one"),
        {"type": "reasoning", "summary": []},  # neither an id nor encrypted content
        {"role": "assistant", "content": "yes"},
        call_item(1),  # was never answered
        UNKNOWN,
        user("two"),
    ]
    await session.add_items(items)
    report = await move_to_conversation(session, client=client)
    assert [(one.index, one.item) for one in report.not_carried] == [(index, items[index]) for index in (1, 3, 4)]
    assert all(one.reason for one in report.not_carried)
    assert "hologram" in report.not_carried[-1].reason
    assert words(server.history(report.conversation_id)) == ["U(one)", "A", "U(two)"]
    assert report.reworded == (2,)  # an assistant's text is shown as parts
    assert await session.get_items() == items
    made = [one for one in server.requests if (one.method, one.path) == ("POST", "/v1/conversations")]
    (deleted,) = [one.path for one in server.requests if one.method == "DELETE" and one.path.count("/") == 3]
    assert len(made) == 2, "one in which it was tried, and the one it went to"
    assert report.conversation_id not in deleted


async def test_what_belongs_to_something_refused_stays_behind_with_it(
    session: Any, server: LoopbackServer, client: AsyncOpenAI
):
    """An output is refused whose call and reasoning were brought in an earlier step: they are taken back."""
    head = [user(str(number)) for number in range(18)]  # with reasoning and call, just one step
    await session.add_items([*head, reasoned(1), call_item(1), output_item(2), output_item(1, sparkle=1), user("end")])
    report = await move_to_conversation(session, client=client)
    assert [one.index for one in report.not_carried] == [18, 19, 20, 21]
    assert words(server.history(report.conversation_id)) == [f"U({number})" for number in range(18)] + ["U(end)"]
    assert any(one.method == "DELETE" and "/items/" in one.path for one in server.requests)
    world = World(server, client, "replay", streamed=False)
    assert (await world.run("next", conversation_id=report.conversation_id)).final_output


async def test_reasoning_of_a_refused_call_stays_behind_and_that_of_its_neighbour_goes(
    session: Any, server: LoopbackServer, client: AsyncOpenAI
):
    await session.add_items(
        [
            user("one"),
            reasoned(1),
            call_item(1, sparkle=1),
            output_item(1),
            reasoned(2),
            call_item(2, sparkle=1),
            call_item(3),
            output_item(2),
            output_item(3),
        ]
    )
    report = await move_to_conversation(session, client=client)
    assert [one.index for one in report.not_carried] == [1, 2, 3, 5, 7]
    assert words(server.history(report.conversation_id)) == ["U(one)", "R", "C3", "O3"]


# --- again -----------------------------------------------------------------------------------------------------------


async def test_a_move_that_is_repeated_changes_nothing(session: Any, server: LoopbackServer, client: AsyncOpenAI):
    await session.add_items([user("yes"), user("yes"), UNKNOWN, user("no")])
    first = await move_to_conversation(session, client=client)
    again = await move_to_conversation(session, client=client, conversation_id=first.conversation_id)
    assert (again.carried, again.already_there) == (3, 3)
    assert again.not_carried == first.not_carried
    assert words(server.history(first.conversation_id)) == ["U(yes)", "U(yes)", "U(no)"]
    home = InMemorySession("home")
    assert (await move_to_session(first.conversation_id, home, client=client)).already_there == 0
    assert (await move_to_session(first.conversation_id, home, client=client)).already_there == 3
    assert words(await home.get_items()) == ["U(yes)", "U(yes)", "U(no)"]


@pytest.mark.parametrize("fault", [Drop(committed=False), Status(500), Status(400, code="account_closed")], ids=str)
async def test_a_move_that_broke_off_says_where_and_goes_on_from_there(
    fault: Any, session: Any, server: LoopbackServer, client: AsyncOpenAI
):
    await session.add_items([user(str(number)) for number in range(50)])
    server.fault(fault, on=_adding(skip=1))
    with pytest.raises(MoveInterruptedError) as caught:
        await move_to_conversation(session, client=client)
    error = caught.value
    assert error.carried == 20
    assert error.conversation_id in error.remedy
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    report = await move_to_conversation(session, client=client, conversation_id=error.conversation_id)
    assert (report.carried, report.already_there) == (50, 20)
    assert words(server.history(report.conversation_id)) == [f"U({number})" for number in range(50)]


def _adding(skip: int) -> Any:
    left = [skip]

    def matches(received: Any) -> bool:
        if received.method != "POST" or not received.path.endswith("/items"):
            return False
        left[0] -= 1
        return left[0] < 0

    return matches


async def test_something_else_in_the_target_is_refused(session: Any, server: LoopbackServer, client: AsyncOpenAI):
    await session.add_items([user("one"), user("two")])
    for there in ([user("other")], [user("one"), user("three")], [user("one"), user("two"), user("more")]):
        conversation = server.new_conversation(there)
        with pytest.raises(UserError, match="not the beginning"):
            await move_to_conversation(session, client=client, conversation_id=conversation)
        assert len(server.history(conversation)) == len(there)
        target = InMemorySession("target")
        await target.add_items(there)
        source = server.new_conversation([user("one"), user("two")])
        with pytest.raises(UserError, match="not the beginning"):
            await move_to_session(source, target, client=client)
        assert await target.get_items() == there


async def test_a_conversation_that_has_grown_since_is_brought_up_to_date(server: LoopbackServer, client: AsyncOpenAI):
    conversation = server.new_conversation([user("one")])
    home = InMemorySession("home")
    await move_to_session(conversation, home, client=client)
    await client.conversations.items.create(conversation, items=[{"role": "user", "content": "two"}])
    report = await move_to_session(conversation, home, client=client)
    assert (report.carried, report.already_there) == (2, 1)
    assert await home.get_items() == [user("one"), user("two")]


async def test_a_session_that_was_cleared_since_gets_it_again(server: LoopbackServer, client: AsyncOpenAI):
    conversation = server.new_conversation([user("one")])
    home = InMemorySession("home")
    await move_to_session(conversation, home, client=client)
    await home.clear_session()
    assert (await move_to_session(conversation, home, client=client)).carried == 1
    assert await home.get_items() == [user("one")]


async def test_a_conversation_that_is_not_there_is_said_so(server: LoopbackServer, client: AsyncOpenAI):
    with pytest.raises(NotFoundError):
        await move_to_session("conv_nowhere", InMemorySession("home"), client=client)
    with pytest.raises(NotFoundError):
        await move_to_conversation(InMemorySession("s"), client=client, conversation_id="conv_nowhere")


# --- whatever breaks, wherever ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared() -> Iterator[LoopbackServer]:
    with LoopbackServer() as running:
        yield running


pieces = st.lists(
    st.one_of(
        st.sampled_from(["yes", "no"]).map(lambda text: [user(text)]),
        st.integers(1, 9).map(lambda n: [reasoned(n), call_item(n), output_item(n)]),
        st.integers(1, 9).map(lambda n: [call_item(n), output_item(n, sparkle=1)]),
        st.just([UNKNOWN]),
    ),
    max_size=12,
)
breaks = st.sampled_from([Drop(True), Drop(False), Status(500), Status(502, committed=True), Cut(after_bytes=40)])


def distinct(history: list[list[Any]]) -> list[Any]:
    """The pieces with call ids and reasoning ids that are used once, as a provider gives them."""
    items = []
    for number, piece in enumerate(history):
        for item in piece:
            item = dict(item)
            if "call_id" in item:
                item["call_id"] = f"c{number}"
            if "id" in item:
                item["id"] = f"rs_{number}"
            items.append(item)
    return items


@settings(max_examples=25)
@given(history=pieces, faults=st.lists(st.tuples(st.integers(0, 12), breaks), max_size=3))
def test_however_a_move_is_broken_off_repeating_it_brings_everything_once(
    shared: LoopbackServer, history: list[list[Any]], faults: list[tuple[int, Any]]
):
    """The conversation is then what a calm move makes of the same session, and so is the report."""
    items = distinct(history)

    async def scenario() -> None:
        async with shared.client(max_retries=0) as client:
            session = InMemorySession("s")
            await session.add_items(items)
            calm = await move_to_conversation(session, client=client)
            first = len(shared.requests)
            for number, fault in faults:
                shared.fault(fault, on=lambda one, number=number: len(shared.requests) > first + number)
            conversation = shared.new_conversation()
            for _ in range(8):
                try:
                    report = await move_to_conversation(session, client=client, conversation_id=conversation)
                    break
                except Exception:
                    assert shared.history(conversation) is not None
            shared.clear_faults()
            assert words(shared.history(conversation)) == words(shared.history(calm.conversation_id))
            assert report.not_carried == calm.not_carried
            assert report.carried == calm.carried
            assert await session.get_items() == items

    asyncio.run(scenario())
