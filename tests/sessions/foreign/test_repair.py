"""A history that another program broke is repaired in one step, with a report, and the step can be undone."""

from __future__ import annotations

import asyncio
import itertools
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from standfast import (
    AbilityMissingError,
    Agent,
    InMemorySession,
    Runner,
    SessionABC,
    SessionBusyError,
    SessionConflictError,
    SessionSettings,
    SQLiteSession,
    repair_history,
)
from standfast._src.items.history import deduplicate, prune
from standfast.testing import ScriptedModel, final

QUESTION = {"role": "user", "content": "A table for two?"}
ANSWER = {"role": "assistant", "content": "For when?"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
CALL = {"type": "function_call", "call_id": "c1", "name": "book", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "booked"}
LOST_CALL = {"type": "function_call", "call_id": "c2", "name": "pay", "arguments": "{}"}
LOST_OUTPUT = {"type": "function_call_output", "call_id": "c0", "output": "?"}

BROKEN = [LOST_OUTPUT, QUESTION, CALL, OUTPUT, THOUGHT, LOST_CALL, QUESTION, ANSWER]

_numbers = itertools.count()
Opener = Callable[..., Any]


@pytest.fixture(params=["memory", "sqlite"])
def open_session(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    made: list[Any] = []

    def make(**more: Any) -> Any:
        name = f"s{next(_numbers)}"
        made.append(
            InMemorySession(name, **more) if request.param == "memory" else SQLiteSession(name, tmp_path / "db", **more)
        )
        return made[-1]

    yield make
    for session in made:
        closing = session.close()
        if asyncio.iscoroutine(closing):
            closing.close()


async def test_what_no_provider_accepts_is_taken_out_and_reported_with_its_place_and_reason(
    open_session: Opener,
):
    session = open_session()
    await session.add_items(BROKEN)
    report = await repair_history(session)
    assert [(one.index, one.item) for one in report.broken] == [(0, LOST_OUTPUT), (4, THOUGHT), (5, LOST_CALL)]
    assert [one.reason for one in report.broken] == [
        "an output without its call",
        "reasoning before a call that is left out",
        "a call without an output",
    ]
    assert report.repaired
    assert await session.get_items() == [QUESTION, CALL, OUTPUT, QUESTION, ANSWER]


async def test_a_repair_can_be_undone_and_keeps_what_was_said_since(open_session: Opener):
    session = open_session()
    await session.add_items(BROKEN)
    report = await repair_history(session)
    await session.add_items([{"role": "user", "content": "Tonight."}])
    await session.restore(report.generation)
    assert await session.get_items() == [*BROKEN, {"role": "user", "content": "Tonight."}]


async def test_a_call_that_was_written_twice_is_kept_once_and_equal_messages_are_left_alone(
    open_session: Opener,
):
    """A call is known by its id until it is answered; two people may both say "yes" (C2)."""
    session = open_session()
    await session.add_items([QUESTION, CALL, CALL, OUTPUT, QUESTION, QUESTION])
    report = await repair_history(session)
    assert [one.reason for one in report.broken] == ["another copy of an item with the same id"]
    assert await session.get_items() == [QUESTION, CALL, OUTPUT, QUESTION, QUESTION]


async def test_a_whole_history_is_not_touched(open_session: Opener):
    session = open_session()
    await session.add_items([QUESTION, CALL, OUTPUT, ANSWER])
    before = await session.head()
    report = await repair_history(session)
    assert (report.broken, report.repaired, report.generation) == ((), False, None)
    assert await session.head() == before
    assert await session.generations() == []


async def test_a_dry_run_only_reports(open_session: Opener):
    session = open_session()
    await session.add_items(BROKEN)
    before = await session.head()
    report = await repair_history(session, dry_run=True)
    assert [one.index for one in report.broken] == [0, 4, 5]
    assert not report.repaired
    assert await session.head() == before


async def test_the_sessions_own_limit_does_not_hide_what_is_broken(open_session: Opener):
    """Repair reads everything (A3)."""
    session = open_session(session_settings=SessionSettings(limit=1))
    await session.add_items(BROKEN)
    assert len((await repair_history(session)).broken) == 3
    assert await session.get_items(limit=100) == [QUESTION, CALL, OUTPUT, QUESTION, ANSWER]


async def test_after_a_repair_requests_are_what_they_were_and_nothing_is_left_out_any_more(
    open_session: Opener,
):
    session = open_session()
    await session.add_items(BROKEN)
    model = ScriptedModel([final("one"), final("two")])
    agent = Agent(name="clerk", model=model)
    before = await Runner.run(agent, "Well?", session=session)
    assert len(before.left_out) == 3
    await session.pop_item()
    await session.pop_item()  # the same question again, after the repair
    await repair_history(session)
    after = await Runner.run(agent, "Well?", session=session)
    assert after.left_out == []
    assert model.calls[0].input == model.calls[1].input


async def test_a_run_on_the_session_is_waited_for(open_session: Opener):
    session = open_session()
    await session.add_items(BROKEN)
    held = await session.lease(ttl_s=60, wait_s=0)
    with pytest.raises(SessionBusyError):
        await repair_history(session, lease_wait_s=0)
    repairing = asyncio.create_task(repair_history(session))
    await asyncio.sleep(0)
    await held.release()
    assert (await repairing).repaired
    async with await session.lease(ttl_s=60, wait_s=0):
        pass  # and it has given its own back


async def test_a_program_that_never_stops_writing_is_noticed(tmp_path: Path):
    """The other writes through a connection of its own, before every look at the head."""
    path = tmp_path / "db"

    class Watched(SQLiteSession):
        async def head(self) -> Any:
            with sqlite3.connect(path) as other:
                other.execute(
                    "insert into agent_messages (session_id, message_data) values ('s', ?)",
                    ['{"role": "user", "content": "hello"}'],
                )
            other.close()
            return await super().head()

    session = Watched("s", path)
    await session.add_items(BROKEN)
    with pytest.raises(SessionConflictError, match="Repair it when"):
        await repair_history(session)
    assert await session.generations() == []
    session.close()


async def test_corrupt_records_are_reported_and_stay_where_they_are(tmp_path: Path):
    path = tmp_path / "db"
    session = SQLiteSession("s", path)
    await session.add_items(BROKEN)
    with sqlite3.connect(path) as other:
        other.execute("insert into agent_messages (session_id, message_data) values ('s', '{half')")
    other.close()
    await session.add_items([QUESTION])
    report = await repair_history(session)
    assert [record.data for record in report.corrupt] == [b"{half"]
    await session.restore(report.generation)
    assert [record.data for record in await session.corrupt_records()] == [b"{half"]
    assert await session.get_items() == [*BROKEN, QUESTION]
    session.close()


class Plain(SessionABC):
    """A session of the five methods and no abilities."""

    def __init__(self) -> None:
        self.session_id, self.items = "plain", list(BROKEN)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        return list(self.items) if limit is None else self.items[-limit:]

    async def add_items(self, items: list[Any]) -> None:
        self.items += items

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()


async def test_a_session_that_could_not_undo_it_is_reported_on_and_not_changed():
    session = Plain()
    with pytest.raises(AbilityMissingError, match="dry_run=True"):
        await repair_history(session)
    assert [one.index for one in (await repair_history(session, dry_run=True)).broken] == [0, 4, 5]
    assert session.items == BROKEN


IDS = st.sampled_from(["a", "b", "c"])
ITEMS = st.one_of(
    st.sampled_from([QUESTION, ANSWER]),
    IDS.map(lambda id: {"type": "function_call", "call_id": id, "name": "book", "arguments": "{}"}),
    IDS.map(lambda id: {"type": "function_call_output", "call_id": id, "output": "x"}),
    IDS.map(lambda id: {"type": "reasoning", "id": id, "summary": []}),
    IDS.map(lambda id: {"type": "mcp_approval_request", "id": id, "name": "n", "arguments": "{}", "server_label": "s"}),
    IDS.map(lambda id: {"type": "mcp_approval_response", "approval_request_id": id, "approve": True}),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(ITEMS, max_size=12))
def test_whatever_was_broken_is_whole_afterwards_and_comes_back_exactly(items: list[Any]):
    async def scenario() -> None:
        session = InMemorySession("s")
        await session.add_items(items)
        report = await repair_history(session)
        repaired = await session.get_items()
        assert prune(deduplicate(repaired)) == (repaired, [])
        assert len(repaired) + len(report.broken) == len(items)
        assert not (await repair_history(session)).repaired  # once is enough
        assert report.repaired == bool(report.broken)
        if report.generation is not None:
            await session.restore(report.generation)
        assert await session.get_items() == items

    asyncio.run(scenario())
