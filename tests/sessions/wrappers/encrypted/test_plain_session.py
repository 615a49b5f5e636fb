"""`EncryptedSession` around sessions of other kinds: a class of the program, and a compacting session."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from standfast import (
    AbilityMissingError,
    Agent,
    CallerError,
    EncryptedSession,
    InMemorySession,
    InvalidSettingError,
    OpenAIResponsesCompactionSession,
    ReadBudgetError,
    Runner,
    SealBrokenError,
    SealKeyError,
    SessionABC,
    SessionSettings,
    abilities,
)
from standfast.testing import ScriptedModel, final

SECRET = "a secret of thirty-two characters!!"


class ListSession(SessionABC):
    """What programs write for the SDK, over a store that keeps fields in another order."""

    session_settings: SessionSettings | None = None

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.stored: list[str] = []
        self.contexts: list[Any] = []

    async def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[Any]:
        self.contexts.append(wrapper)
        found = [dict(sorted(json.loads(one).items(), reverse=True)) for one in self.stored]
        return found if limit is None else found[max(0, len(found) - limit) :]

    async def add_items(self, items: list[Any], *, wrapper: Any = None) -> None:
        self.contexts.append(wrapper)
        self.stored.extend(json.dumps(item) for item in items)

    async def pop_item(self, *, wrapper: Any = None) -> Any:
        self.contexts.append(wrapper)
        return json.loads(self.stored.pop()) if self.stored else None

    async def clear_session(self, *, wrapper: Any = None) -> None:
        self.contexts.append(wrapper)
        self.stored.clear()


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


async def test_items_of_a_programs_own_session_are_sealed_and_read_again() -> None:
    inner = ListSession("a")
    session = EncryptedSession("a", inner, SECRET)
    assert abilities(session) == frozenset()
    await session.add_items(said("one", "two"))
    await session.add_items(said("three"))
    assert "one" not in str(inner.stored)
    again = EncryptedSession("a", inner, SECRET)
    assert await again.get_items() == said("one", "two", "three")
    assert await again.get_items(2) == said("two", "three")
    assert await again.get_items(0) == []
    assert await again.pop_item() == said("three")[0]
    assert await again.get_items() == said("one", "two")
    await again.clear_session()
    assert inner.stored == []
    assert await again.pop_item() is None


async def test_a_run_on_a_sealed_session_of_a_program_goes_on_with_its_history() -> None:
    inner = ListSession("a")
    model = ScriptedModel([final("Hello."), final("Bye.")])
    agent = Agent(name="A", model=model)
    await Runner.run(agent, "first", session=EncryptedSession("a", inner, SECRET))
    await Runner.run(agent, "second", session=EncryptedSession("a", inner, SECRET))
    assert [item["content"] for item in model.calls[-1].input if item["role"] == "user"] == ["first", "second"]
    assert len(inner.stored) == 4
    assert all("Hello" not in one and "first" not in one for one in inner.stored)
    assert any(context is not None for context in inner.contexts)  # by the rule of the runner (C10)


async def test_another_key_an_altered_record_and_another_session_do_not_open() -> None:
    inner, other = ListSession("a"), ListSession("b")
    session = EncryptedSession("a", inner, SECRET)
    await session.add_items(said("one", "two"))
    with pytest.raises(SealKeyError):
        await EncryptedSession("a", inner, keys={"new": SECRET}, current="new").get_items()
    other.stored = list(inner.stored)
    with pytest.raises(SealKeyError):  # nothing opens: as with another secret
        await EncryptedSession("b", other, SECRET).get_items()
    other.stored.clear()
    await EncryptedSession("b", other, SECRET).add_items(said("own"))
    other.stored += inner.stored
    assert await EncryptedSession("b", other, SECRET).get_items() == said("own")
    inner.stored[0] = json.dumps(said("not sealed")[0])
    assert await session.get_items() == said("two")
    assert await session.get_items(2) == said("two")
    inner.stored.append(inner.stored[0])
    with pytest.raises(SealBrokenError, match="stays"):
        await session.pop_item()
    assert len(inner.stored) == 3


async def test_limits_hold_over_records_that_are_left_out_and_reads_have_a_budget() -> None:
    inner = ListSession("a")
    session = EncryptedSession("a", inner, SECRET, max_scan_items=4)
    await session.add_items(said("one"))
    inner.stored += [json.dumps(said("clear")[0])] * 2
    await session.add_items(said("two"))
    with pytest.raises(ReadBudgetError):
        await session.get_items(3)
    roomy = EncryptedSession("a", inner, SECRET, max_scan_items=100)
    assert await roomy.get_items(2) == said("one", "two")
    inner.session_settings = SessionSettings(limit=1)
    assert await roomy.get_items() == said("two")


async def test_expired_items_of_a_programs_session_are_not_shown() -> None:
    inner = ListSession("a")
    await EncryptedSession("a", inner, SECRET).add_items(said("old"))
    short = EncryptedSession("a", inner, SECRET, ttl=1e-9)
    assert await short.get_items() == []
    assert await short.pop_item() is None


async def test_around_a_compacting_session_the_encryption_comes_below_the_compaction() -> None:
    store = InMemorySession("a")
    compacting = OpenAIResponsesCompactionSession("a", store, compaction_mode="input")
    session = EncryptedSession("a", compacting, SECRET)
    await session.add_items(said("one"))
    assert isinstance(session, OpenAIResponsesCompactionSession)
    assert session.compaction_mode == "input"
    assert isinstance(session.underlying_session, EncryptedSession)
    assert await session.get_items() == said("one")
    assert "one" not in str(await store.get_items())


def test_a_key_for_one_session_needs_a_store_of_ours() -> None:
    with pytest.raises((CallerError, TypeError)):
        EncryptedSession("a", ListSession("a"), session_keys=object())


class WritingSession(ListSession):
    """A class of the program that knows writers, too (part B)."""

    declared_abilities = frozenset({"append"})

    async def append(self, items: Any, **_: Any) -> Any:
        await self.add_items(list(items))


async def test_no_method_of_the_wrapped_session_stores_anything_in_clear() -> None:
    """An ability of the wrapped session was passed on, and wrote past the sealing."""
    inner = WritingSession("a")
    session = EncryptedSession("a", inner, SECRET)
    with pytest.raises(AbilityMissingError):
        await session.append(said("in clear"), writer="w", start=0)
    assert inner.stored == []


async def test_another_secret_under_the_same_id_reads_and_changes_nothing() -> None:
    """It read an empty history, wrote items beside those that it could not read, and cleared them."""
    inner = ListSession("a")
    await EncryptedSession("a", inner, SECRET).add_items(said("one"))
    before = list(inner.stored)
    for work in ("get_items", "pop_item", "clear_session", "add_items"):
        session = EncryptedSession("a", inner, "another secret of thirty-two characters")
        with pytest.raises(SealKeyError):
            await getattr(session, work)(*([said("two")] if work == "add_items" else []))
    assert inner.stored == before
    session = EncryptedSession("a", inner, "another secret of thirty-two characters", unreadable="leave_out")
    await session.clear_session()
    assert inner.stored == []


@pytest.mark.parametrize(
    "foreign",
    [
        "a text",
        ["a list"],
        5,
        None,
        {},
        {"role": "user", "content": "in clear"},
        {"__enc__": 2, "kid": "default", "payload": "\ud800"},
        {"__enc__": 2, "kid": "default", "payload": 5},
    ],
    ids=str,
)
async def test_what_somebody_wrote_into_the_store_is_no_item_and_hides_none(foreign: Any) -> None:
    inner = ListSession("a")
    session = EncryptedSession("a", inner, SECRET)
    await session.add_items(said("one", "two"))
    written = [json.loads(one) for one in inner.stored]

    async def found(limit: int | None = None, **_: Any) -> list[Any]:
        history = [written[0], foreign, written[1], foreign]
        return history if limit is None else history[max(0, len(history) - limit) :]

    inner.get_items = found  # type: ignore[method-assign]
    assert await session.get_items() == said("one", "two")
    assert await session.get_items(1) == said("two")
    with pytest.raises(SealBrokenError):
        await session.pop_item()


async def test_fields_that_a_store_adds_hide_nothing() -> None:
    inner = ListSession("a")
    session = EncryptedSession("a", inner, SECRET)
    await session.add_items(said("one"))
    inner.stored = [json.dumps({**json.loads(one), "_id": 7}) for one in inner.stored]
    assert await session.get_items() == said("one")


def test_a_session_of_another_id_is_refused() -> None:
    with pytest.raises(InvalidSettingError, match="same id"):
        EncryptedSession("a", ListSession("b"), SECRET)


async def test_a_subclass_has_a_constructor_of_its_own_and_a_copy_is_one() -> None:
    """Choosing the fitting class wanted the arguments of ours from every subclass, and from `copy`."""

    class Mine(EncryptedSession):
        def __init__(self, session_id: str) -> None:
            super().__init__(session_id, InMemorySession(session_id), SECRET)

    session = Mine("a")
    await session.add_items(said("one"))
    assert await copy.copy(session).get_items() == said("one")
