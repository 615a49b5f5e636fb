"""Several tasks add to one OpenAI conversation at once (A10), and answers are lost among them (A6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from openai import AsyncOpenAI

from standfast._src.base.errors import StoreUnavailableError
from standfast._src.sessions.backends.openai_conversations import OpenAIConversationsSession
from standfast.testing.loopback import Drop, Gate, LoopbackServer


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def is_adding(received: Any) -> bool:
    return bool(received.method == "POST" and received.path.endswith("/items"))


async def test_batches_larger_than_a_request_do_not_interleave(client: AsyncOpenAI) -> None:
    session = OpenAIConversationsSession(openai_client=client)
    batches = [[user(f"{writer}.{number}") for number in range(50)] for writer in "abc"]
    await asyncio.gather(*(session.add_items(batch) for batch in batches))
    found = [item["content"] for item in await session.get_items()]
    order = [text.split(".")[0] for text in found[::50]]
    assert sorted(order) == ["a", "b", "c"]
    assert found == [f"{writer}.{number}" for writer in order for number in range(50)]


async def test_what_another_task_added_is_not_taken_for_an_equal_batch_that_was_lost(
    server: LoopbackServer, client: AsyncOpenAI
) -> None:
    session = OpenAIConversationsSession(openai_client=client)
    await session.add_items([user("hello")])
    server.fault(Drop(committed=False), on=is_adding)
    ends = await asyncio.gather(*(session.add_items([user("yes")]) for _ in range(4)), return_exceptions=True)
    lost = [end for end in ends if end is not None]
    assert all(isinstance(end, StoreUnavailableError) for end in lost)
    assert len(await session.get_items()) == 1 + 4 - len(lost), "what was acknowledged is there"
    assert len(lost) == 1


async def test_a_cancelled_caller_that_waits_its_turn_withdraws_its_batch(
    server: LoopbackServer, client: AsyncOpenAI
) -> None:
    session = OpenAIConversationsSession(openai_client=client)
    await session.add_items([user("hello")])
    first = asyncio.create_task(session.add_items([user(str(number)) for number in range(100)]))
    await asyncio.sleep(0)
    second = asyncio.create_task(session.add_items([user("withdrawn")]))
    await asyncio.sleep(0)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    await first
    await session.close()
    assert len(server.history(session.session_id)) == 101


def test_a_session_closes_although_another_loop_has_a_write_under_way(server: LoopbackServer) -> None:
    client = server.client(max_retries=0)
    session = OpenAIConversationsSession(openai_client=client)
    gate = Gate()
    server.fault(gate, on=is_adding)
    left = asyncio.new_event_loop()

    async def begin() -> asyncio.Task[None]:
        adding = asyncio.ensure_future(session.add_items([user("hello")]))
        await gate.reached()
        return adding

    adding = left.run_until_complete(begin())
    asyncio.run(session.close())  # it can wait only for what its own loop does
    gate.release()
    left.run_until_complete(adding)
    left.run_until_complete(client.close())
    left.close()
    assert len(server.history(session.session_id)) == 1
