"""The reference itself: what no other store can be compared with to find out whether it is right."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from standfast._src.base.errors import CallerError, NotFoundError, SessionConflictError
from standfast._src.sessions.backends.memory.memory_session import InMemorySession, InMemoryStore
from standfast._src.sessions.protocol import Head, Position, abilities

GENERATIONS = 3


def items(*numbers: int) -> list[dict[str, Any]]:
    return [{"n": number} for number in numbers]


class UndoAgainstTimelines(RuleBasedStateMachine):
    """Replace and undo against their definition.

    For each generation keep the history as it would be had its replacement never happened: its timeline. What is
    appended is appended to every timeline. What is popped is popped from every timeline if it was appended since the
    newest replacement, and otherwise was part of a replacement, which no other timeline has. Undo is taking a timeline.
    """

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.session = InMemorySession("conversation")
        self.now: list[Any] = []
        self.fresh = 0  # how many of the last items were appended since the newest replacement
        self.timelines: dict[str, list[Any]] = {}
        self.heads: list[tuple[Head, int]] = []  # heads of prefixes that are still there
        self.number = 0

    def do(self, doing: Any) -> Any:
        return self.runner.run(doing)

    def some(self, count: int) -> list[Any]:
        self.number += count
        return items(*range(self.number - count, self.number))

    @rule(count=st.integers(1, 4))
    def append(self, count: int) -> None:
        new = self.some(count)
        self.do(self.session.add_items(new))
        self.now += new
        self.fresh += count
        for timeline in self.timelines.values():
            timeline += new
        self.heads.append((self.do(self.session.head()), len(self.now)))

    @rule()
    def pop(self) -> None:
        seen = self.do(self.session.pop_item())
        assert seen == (self.now.pop() if self.now else None)
        if self.fresh:
            self.fresh -= 1
            for timeline in self.timelines.values():
                timeline.pop()
        self.heads = [(head, size) for head, size in self.heads if size <= len(self.now)]

    @rule(count=st.integers(0, 3), data=st.data())
    def replace(self, count: int, data: Any) -> None:
        if not self.heads:
            return
        head, size = data.draw(st.sampled_from(self.heads))
        before = list(self.now)
        self.do(self.session.replace(new := self.some(count), upto=head))
        self.now[:size] = new
        self.fresh = len(before) - size
        self.keep(before)

    @rule(data=st.data())
    def restore(self, data: Any) -> None:
        if not self.timelines:
            return
        chosen = data.draw(st.sampled_from(sorted(self.timelines)))
        before = list(self.now)
        self.do(self.session.restore(chosen))
        self.now = list(self.timelines[chosen])
        self.keep(before)

    def keep(self, before: list[Any]) -> None:
        newest = self.do(self.session.generations())[0].id
        self.timelines[newest] = before
        for oldest in list(self.timelines)[:-GENERATIONS]:
            del self.timelines[oldest]
        self.heads = [(self.do(self.session.head()), len(self.now))] if self.now else []

    @invariant()
    def the_history_is_the_present_timeline(self) -> None:
        assert self.do(self.session.get_items()) == self.now
        kept = [found.id for found in self.do(self.session.generations())]
        assert kept == list(self.timelines)[::-1]

    def teardown(self) -> None:
        self.runner.close()


TestUndoAgainstTimelines = UndoAgainstTimelines.TestCase
TestUndoAgainstTimelines.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)


async def test_each_object_has_a_store_of_its_own_unless_it_is_given_one() -> None:
    one, two = InMemorySession("a"), InMemorySession("a")
    await one.add_items(items(1))
    assert await two.get_items() == []
    shared = InMemoryStore()
    first, second = InMemorySession("a", store=shared), InMemorySession("a", store=shared)
    await first.add_items(items(1))
    first.close()
    assert await second.get_items() == items(1)


def test_it_declares_every_ability() -> None:
    declared = abilities(InMemorySession("a"))
    assert {
        "append",
        "head",
        "replace",
        "rewind",
        "fork",
        "lease",
        "page",
        "list",
        "corrupt",
        "times",
        "runs",
        "written",
        "record",
        "records",
        "send",
        "watch",
        "search",
        "holder",
        "origin",
        "usage",
    } == declared


async def test_a_page_of_a_history_that_was_replaced_is_refused_not_empty() -> None:
    """An empty page would look like the beginning of the history."""
    session = InMemorySession("a")
    await session.add_items(items(1, 2, 3, 4))
    page = await session.page(limit=2)
    await session.replace(items(9), upto=await session.head())
    with pytest.raises(SessionConflictError, match="Read again from the latest page"):
        await session.page(before=page.before, limit=2)
    for cursor in ("nonsense", "1" * 5000, "١"):  # Python refuses to make a number of 5,000 digits
        with pytest.raises(NotFoundError):
            await session.page(before=cursor, limit=2)
        with pytest.raises(NotFoundError):
            await session.records(after=f"{cursor}.a.b")
        with pytest.raises(NotFoundError):
            await session.list_sessions(after=cursor, limit=2)


async def test_a_fork_of_a_generation_counts_writers_as_of_that_point() -> None:
    session = InMemorySession("a")
    await session.append(items(1, 2, 3), writer="early", start=0)
    await session.replace(items(0), upto=await session.head())
    await session.append(items(4), writer="late", start=0)
    kept = (await session.generations())[0].id
    fork = await session.fork("b", at=Position(2, kept))
    assert await fork.get_items() == items(1, 2)
    assert (await fork.accepted("early"), await fork.accepted("late")) == (2, 0)
    whole = await session.fork("c", at=Position(3, kept))
    assert (await whole.accepted("early"), await whole.accepted("late")) == (3, 0)


async def test_a_rewind_of_what_was_compacted_is_refused_until_it_is_restored() -> None:
    session = InMemorySession("a")
    await session.append(items(1, 2, 3), writer="run", start=0)
    await session.replace(items(0), upto=await session.head())
    with pytest.raises(SessionConflictError, match="compacted"):
        await session.rewind(writer="run", to=1)
    await session.restore((await session.generations())[0].id)
    await session.rewind(writer="run", to=1)
    assert await session.get_items() == items(1)
    assert await session.written("run") == items(1)


async def test_digests_and_items_must_be_as_many() -> None:
    with pytest.raises(CallerError, match="2 items came with 1 digests"):
        await InMemorySession("a").append(items(1, 2), writer="run", start=0, digests=[b"d"])


async def test_a_lease_needs_a_time_to_live() -> None:
    for ttl_s in (0, -1, float("inf"), float("nan")):
        with pytest.raises(CallerError):
            await InMemorySession("a").lease(ttl_s=ttl_s, wait_s=0)


def test_a_fork_of_the_process_waits_for_a_change_in_progress() -> None:
    """The child must not get a store that another thread was half-way through changing, nor a lock nobody holds."""
    session = InMemorySession("a")
    stop = threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            asyncio.run(session.add_items(items(number, number)))
            number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                history = asyncio.run(session.get_items())
                os._exit(0 if len(history) % 2 == 0 else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        writer.join()
