"""What is no argument at all, through every store: an error of ours that says what to give, at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from standfast import Head, Position, StandfastError
from standfast._src.base.errors import ItemNotStorableError

ITEM = {"role": "user", "content": "Hello."}
HUGE = 10**30

WRONG: dict[str, Callable[[Any], Any]] = {
    "a fork at a head": lambda session: session.fork("new", at=Head("1")),
    "a fork at a number": lambda session: session.fork("new", at=1),
    "a fork at half an item": lambda session: session.fork("new", at=Position(0.5)),  # type: ignore[arg-type]
    "a head that is a text": lambda session: session.append([ITEM], writer="w", start=0, expect="1"),
    "a rewind with a text": lambda session: session.rewind(writer="w", to=0, expect="1"),
    "nothing to replace": lambda session: session.replace([ITEM], upto=None),
    "a lease that is a text": lambda session: session.append([ITEM], writer="w", start=0, lease="mine"),
    "a page without a limit": lambda session: session.page(limit=None),
    "a listing without a limit": lambda session: session.list_sessions(limit=None),
    "no items": lambda session: session.add_items(None),
}


@pytest.mark.parametrize("what", WRONG)
async def test_a_wrong_argument_is_refused_with_a_remedy_and_changes_nothing(what: str, session: Any) -> None:
    """A6: errors have a remedy; these were AttributeError and TypeError."""
    await session.add_items([ITEM])
    with pytest.raises(StandfastError) as refused:
        await WRONG[what](session)
    assert refused.value.remedy
    assert await session.get_items() == [ITEM]


async def test_a_lease_on_another_session_protects_nothing_here(session: Any) -> None:
    """B7: it was taken for one of this session's if its number was high enough."""
    other = await session.fork("another")
    async with await other.lease(ttl_s=30.0, wait_s=0.0) as lease:
        for write in (
            session.append([ITEM], writer="w", start=0, lease=lease),
            session.replace([ITEM], upto=Head(), lease=lease),
            session.record(items=[ITEM], writer="w", lease=lease),
        ):
            with pytest.raises(StandfastError, match="lease is on session 'another'"):
                await write
    assert await session.get_items() == []
    with contextlib.suppress(TypeError):  # those without a server need not be awaited
        await other.close()


async def test_a_limit_beyond_all_numbers_asks_for_everything(session: Any) -> None:
    """A2, B8, B9: Redis and PostgreSQL refused the number, one of them after asking for half a minute."""
    await session.add_items([ITEM])
    assert await session.get_items(HUGE) == [ITEM]
    assert (await session.page(limit=HUGE)).items == [ITEM]
    assert len((await session.records(limit=HUGE)).records) == 1
    assert [one.session_id for one in (await session.list_sessions(limit=HUGE)).sessions] == ["s"]


async def test_half_characters_that_would_come_back_as_one_are_named(session: Any) -> None:
    """A17: refused, never changed; and the error says where."""
    for item in ({"content": "\ud83d\ude00"}, {"\ud83d\ude00": 1}):
        with pytest.raises(ItemNotStorableError, match="surrogate pair apart"):
            await session.add_items([item])
    assert await session.get_items() == []
