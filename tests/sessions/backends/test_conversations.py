"""OpenAIConversationsSession: the session protocol over the Conversations API, within its limits."""

from __future__ import annotations

import asyncio
import gc
import warnings
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from openai import AsyncOpenAI

from standfast._src.base.errors import (
    InvalidLimitError,
    InvalidSessionIdError,
    ItemNotStorableError,
    NotFoundError,
    OutcomeUnknownError,
    SessionBusyError,
    SessionClosedError,
    StoreUnavailableError,
    WrongLoopError,
)
from standfast._src.sessions.backends import openai_conversations
from standfast._src.sessions.backends.openai_conversations import (
    OpenAIConversationsSession,
    start_openai_conversations_session,
)
from standfast._src.sessions.protocol import SessionSettings, abilities
from standfast.testing.loopback import Drop, Gate, LoopbackServer, Status, conversation_locked, rate_limited


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def many(count: int) -> list[dict[str, Any]]:
    return [user(str(number)) for number in range(count)]


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_conversations, "REFUSED_WAIT_S", 0.001)


@pytest.fixture
def session(client: AsyncOpenAI) -> OpenAIConversationsSession:
    return OpenAIConversationsSession(openai_client=client)


TURN = [
    user("add 1 and 2"),
    {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
    {"type": "function_call", "call_id": "c1", "name": "add", "arguments": "{}", "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "3"},
    {
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Three.", "annotations": [], "logprobs": []}],
    },
]


async def test_a_turn_comes_back_as_the_runner_stored_it(server: LoopbackServer, session: OpenAIConversationsSession):
    """A1, A16: in order, and without the service's ids."""
    with_ids = [{**item, "id": item.get("id", f"old_{place}")} for place, item in enumerate(TURN)]
    await session.add_items(with_ids)
    assert await session.get_items() == TURN
    assert all("id" in item for item in server.history(session.session_id))


async def test_batches_and_pages_beyond_the_services_limits(
    server: LoopbackServer, session: OpenAIConversationsSession
):
    """At most 20 items in a request and 100 in a page; the caller need not know."""
    await session.add_items(many(250))
    assert await session.get_items() == many(250)
    assert await session.get_items(limit=120) == many(250)[-120:]
    assert await session.get_items(limit=1000) == many(250)
    assert await session.get_items(limit=0) == []
    sizes = [
        len(received.body["items"])
        for received in server.requests
        if received.path.endswith("/items") and received.body
    ]
    assert max(sizes) == 20
    assert sum(sizes) == 250
    limits = {int(received.query["limit"][0]) for received in server.requests if "limit" in received.query}
    assert max(limits) == 100


async def test_limits_and_settings(client: AsyncOpenAI, server: LoopbackServer):
    session = OpenAIConversationsSession(openai_client=client, session_settings=SessionSettings(limit=2))
    await session.add_items(many(5))
    assert await session.get_items() == many(5)[-2:]
    assert await session.get_items(limit=3) == many(5)[-3:]
    for bad in (-1, True, "3"):
        with pytest.raises(InvalidLimitError):
            await session.get_items(limit=bad)  # type: ignore[arg-type]


async def test_the_conversation_is_created_by_the_first_use_that_needs_it(
    server: LoopbackServer, client: AsyncOpenAI, session: OpenAIConversationsSession
):
    with pytest.raises(InvalidSessionIdError):
        _ = session.session_id
    await session.add_items([])
    await session.clear_session()
    assert server.requests == []
    await asyncio.gather(*(session.get_items() for _ in range(5)))
    assert [received.path for received in server.requests].count("/v1/conversations") == 1
    again = OpenAIConversationsSession(conversation_id=session.session_id, openai_client=client)
    await session.add_items([user("x")])
    assert await again.get_items() == [user("x")]


async def test_two_first_writers_share_one_conversation(server: LoopbackServer, session: OpenAIConversationsSession):
    gate = Gate()
    server.fault(gate, on=is_creating)
    first = asyncio.ensure_future(session.add_items([user("1")]))
    await gate.reached()
    second = asyncio.ensure_future(session.add_items([user("2")]))
    gate.release()
    await asyncio.gather(first, second)
    assert sum(map(is_creating, server.requests)) == 1
    assert await session.get_items() == [user("1"), user("2")]


async def test_a_second_first_writer_begins_the_conversation_that_the_first_could_not(
    server: LoopbackServer, session: OpenAIConversationsSession
):
    server.fault(Status(400, message="no"), on=is_creating)
    adding = (session.add_items([user("1")]), session.add_items([user("2")]))
    done = await asyncio.gather(*adding, return_exceptions=True)
    assert [type(one).__name__ for one in done].count("NoneType") == 1
    assert await session.get_items() == [user("2") if done[1] is None else user("1")]


def is_creating(received: Any) -> bool:
    return received.method == "POST" and received.path == "/v1/conversations"


async def test_pop_takes_the_newest_and_clear_begins_anew(server: LoopbackServer, session: OpenAIConversationsSession):
    assert await session.pop_item() is None
    await session.add_items(many(3))
    assert await session.pop_item() == user("2")
    assert await session.get_items() == many(2)
    first = session.session_id
    await session.clear_session()
    assert await session.get_items() == []
    assert session.session_id != first


async def test_two_pops_never_return_the_same_item(server: LoopbackServer, session: OpenAIConversationsSession):
    """A11: whoever finds the item already deleted goes on to the next."""
    await session.add_items(many(6))
    popped = await asyncio.gather(*(session.pop_item() for _ in range(6)))
    assert sorted(item["content"] for item in popped if item) == [str(number) for number in range(6)]
    assert await session.get_items() == []


async def test_what_is_not_json_is_refused_before_anything_is_sent(
    server: LoopbackServer, session: OpenAIConversationsSession
):
    with pytest.raises(ItemNotStorableError):
        await session.add_items([user("ok"), {"role": "user", "content": {1, 2}}])
    assert server.requests == []


async def test_reasoning_that_the_service_cannot_keep_is_left_out(session: OpenAIConversationsSession):
    await session.add_items([{"type": "reasoning", "summary": []}, user("x")])
    assert await session.get_items() == [user("x")]


# --- lost answers ----------------------------------------------------------------------------------------------------


def is_adding(received: Any) -> bool:
    return received.method == "POST" and received.path.endswith("/items")


@pytest.mark.parametrize("fault", [Drop(committed=True), Status(502, committed=True)], ids=str)
async def test_a_batch_that_was_taken_is_found_and_not_written_again(
    fault: Any, server: LoopbackServer, session: OpenAIConversationsSession
):
    """A8: equal items stand before it, and none of them is mistaken for it."""
    await session.add_items([user("yes")])
    server.fault(fault, on=is_adding)
    await session.add_items([user("yes")])
    assert await session.get_items() == [user("yes")] * 2


@pytest.mark.parametrize("fault", [Drop(committed=False), Status(500)], ids=str)
async def test_a_batch_that_was_not_taken_raises_and_nothing_appears(
    fault: Any, server: LoopbackServer, session: OpenAIConversationsSession
):
    await session.add_items([user("yes")])
    server.fault(fault, on=is_adding)
    with pytest.raises(StoreUnavailableError):
        await session.add_items([user("yes")])
    assert await session.get_items() == [user("yes")]


async def test_a_large_batch_that_fails_part_way_is_taken_back(
    server: LoopbackServer, session: OpenAIConversationsSession
):
    await session.add_items(many(3))
    server.fault(Status(400, message="no"), on=is_adding, skip=2)
    with pytest.raises(ItemNotStorableError):
        await session.add_items(many(50))
    assert await session.get_items() == many(3)


async def test_what_cannot_be_taken_back_is_said(server: LoopbackServer, session: OpenAIConversationsSession):
    await session.add_items(many(1))
    server.fault(Status(400, message="no"), on=is_adding, skip=1)
    server.fault(Status(500), on=lambda received: received.method == "DELETE", skip=5)
    with pytest.raises(OutcomeUnknownError, match="15 of its items stand"):
        await session.add_items(many(30))


async def test_a_server_that_cannot_be_asked_leaves_it_unknown(
    server: LoopbackServer, session: OpenAIConversationsSession
):
    await session.add_items(many(1))
    server.fault(Drop(committed=True), on=is_adding)
    server.fault(Status(500), on=lambda received: received.method == "GET", skip=1)
    with pytest.raises(OutcomeUnknownError):
        await session.add_items(many(1))


async def test_a_refusal_that_passes_is_waited_for(server: LoopbackServer, session: OpenAIConversationsSession):
    server.fault(rate_limited(0.001), on=is_adding, times=2)
    server.fault(conversation_locked(), on=is_adding)
    await session.add_items(many(1))
    assert await session.get_items() == many(1)
    server.fault(conversation_locked(), on=is_adding, times=4)
    with pytest.raises(SessionBusyError):
        await session.add_items(many(1))


async def test_a_lost_pop_says_that_it_is_unknown(server: LoopbackServer, session: OpenAIConversationsSession):
    await session.add_items(many(2))
    server.fault(Drop(committed=True), on=lambda received: received.method == "DELETE")
    with pytest.raises(OutcomeUnknownError):
        await session.pop_item()


async def test_another_workers_clear_is_told_as_such(server: LoopbackServer, client: AsyncOpenAI):
    conversation = server.new_conversation()
    one, other = (OpenAIConversationsSession(conversation_id=conversation, openai_client=client) for _ in range(2))
    await one.clear_session()
    with pytest.raises(NotFoundError, match="another worker"):
        await other.add_items(many(1))
    await other.clear_session()  # what is gone is gone


async def test_a_cancelled_add_returns_at_once_and_is_still_whole(
    server: LoopbackServer, session: OpenAIConversationsSession
):
    """A13: the store is as before or after, never in between."""
    await session.add_items([user("first")])
    gate = Gate()
    server.fault(gate, on=is_adding, skip=1)
    adding = asyncio.ensure_future(session.add_items(many(45)))
    await gate.reached()
    adding.cancel()
    with pytest.raises(asyncio.CancelledError):
        await adding
    gate.release()
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})  # what goes on behind the caller's back
    assert await session.get_items() == [user("first"), *many(45)]


# --- clients and closing ---------------------------------------------------------------------------------------------


async def test_close_leaves_a_given_client_open(
    session: OpenAIConversationsSession, client: AsyncOpenAI, server: LoopbackServer
):
    await session.add_items(many(1))
    await session.close()
    await session.close()
    assert not client.is_closed()
    with pytest.raises(SessionClosedError):
        await session.get_items()


def test_a_session_with_its_own_client_works_in_one_loop_after_another(
    server: LoopbackServer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    def used_in_three_loops() -> list[Any]:
        session = OpenAIConversationsSession()

        async def read() -> list[Any]:
            items = await session.get_items()
            await session.close()
            return items

        asyncio.run(session.add_items([user("one")]))
        asyncio.run(session.add_items([user("two")]))
        return asyncio.run(read())

    with warnings.catch_warnings():  # a loop that ends leaves its client's connection open, and Python says so
        warnings.simplefilter("ignore", ResourceWarning)
        assert used_in_three_loops() == [user("one"), user("two")]
        gc.collect()  # here, and not in the middle of another test


def test_a_given_client_is_refused_from_another_loop(server: LoopbackServer):
    """A22: never a hang, always a reason."""
    client = server.client()
    session = OpenAIConversationsSession(openai_client=client)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(session.add_items(many(1)))
        with pytest.raises(WrongLoopError):
            second.run(session.get_items())
        first.run(client.close())


async def test_starting_a_conversation_gives_its_id(server: LoopbackServer, client: AsyncOpenAI):
    conversation = await start_openai_conversations_session(client)
    assert server.history(conversation) == []
    assert server.requests[-1].body == {"items": []}


def test_it_says_what_it_cannot_promise():
    assert abilities(OpenAIConversationsSession(openai_client=object())) == frozenset()  # type: ignore[arg-type]
    clauses = {line.split(":")[0] for line in OpenAIConversationsSession.cannot}
    assert {"A5", "A12", "A17", "B"} <= clauses


@settings(max_examples=15)
@given(st.lists(st.lists(st.text(max_size=5), max_size=45), max_size=4), st.integers(0, 200))
def test_whatever_is_added_comes_back_in_order(batches: list[list[str]], limit: int):
    """A1, A2: any batches, any limit, same as a list."""

    async def scenario() -> tuple[list[Any], list[Any]]:
        with LoopbackServer() as server:
            async with server.client() as client:
                session = OpenAIConversationsSession(openai_client=client)
                for batch in batches:
                    await session.add_items([user(text) for text in batch])
                return await session.get_items(), await session.get_items(limit=limit)

    everything = [user(text) for batch in batches for text in batch]
    whole, latest = asyncio.run(scenario())
    assert whole == everything
    assert latest == (everything[-limit:] if limit else [])


def test_a_session_is_a_session_before_its_first_use(session: OpenAIConversationsSession):
    """On Python 3.11 the isinstance reads the id, which is not there yet and says so with a ValueError."""
    from standfast import Session

    assert isinstance(session, Session)
    with pytest.raises(ValueError, match="no conversation yet"):
        _ = session.session_id
