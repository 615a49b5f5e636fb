"""The adapter for sessions written by others (C7, C10, C13): it finds out what a failed append left, and harms nothing.

The sessions here are small real ones that misbehave on cue: they fail before, part-way through or after storing,
show their writes late, pop the wrong thing, or are written to by somebody else in between.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from standfast._src.base.errors import (
    AppendGapError,
    InvalidLimitError,
    PartialBatchError,
    SessionBusyError,
    StoreError,
)
from standfast._src.sessions.foreign.adapter import PlainSession, accepts_wrapper, pass_wrapper
from standfast._src.sessions.foreign.append_outcome import (
    HistoryTail,
    is_unambiguous,
    serialise,
    stored_count,
    tail_from,
)
from standfast._src.sessions.protocol import SessionSettings


def said(*texts: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text} for text in texts]


class Broken(Exception):
    """What the sessions here raise."""


class Faulty:
    """A list behind the five methods. `adds`, `pops` and `reads` are faults for the next calls, used up in order.

    An add fault is ("before",), ("part", count) or ("after",), with "cancel" as last element to be cancelled instead;
    a pop fault is "before", "after" or a function called first; a read fault is a number of items to pretend.
    """

    def __init__(self, items: list[dict[str, Any]] | None = None, session_id: str = "s") -> None:
        self.session_id = session_id
        self.session_settings = None
        self.items = list(items or [])
        self.adds: list[Any] = []
        self.pops: list[Any] = []
        self.reads: list[Any] = []
        self.calls: list[str] = []

    async def get_items(self, limit: int | None = None) -> list[dict[str, Any]]:
        self.calls.append("get")
        await asyncio.sleep(0)
        fault = self.reads.pop(0) if self.reads else None
        if fault is Broken:
            raise Broken("get_items")
        shown = self.items if fault is None else self.items[:fault]
        return shown[:] if limit is None else shown[max(0, len(shown) - limit) :]

    async def add_items(self, items: list[dict[str, Any]]) -> None:
        self.calls.append("add")
        fault = self.adds.pop(0) if self.adds else None
        await asyncio.sleep(0)
        if callable(fault):
            fault = fault(self, items)
        if fault is None:
            self.items.extend(items)
            return
        kind, *rest = fault
        self.items.extend(items if kind == "after" else items[: rest[0]] if kind == "part" else [])
        if "cancel" in fault:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)
        raise Broken("add_items")

    async def pop_item(self) -> dict[str, Any] | None:
        self.calls.append("pop")
        fault = self.pops.pop(0) if self.pops else None
        await asyncio.sleep(0)
        if callable(fault):
            fault(self)
        if fault == "before":
            raise Broken("pop_item")
        item = self.items.pop() if self.items else None
        if fault == "after":
            raise Broken("pop_item")
        return item

    async def clear_session(self) -> None:
        self.items.clear()


def adapter(session: Any, **options: Any) -> PlainSession:
    return PlainSession(session, **{"read_pause_s": 0, **options})


# --- reading ---------------------------------------------------------------------------------------------------------


class Minimal:
    """The least that counts as a session: methods that are not async, a read that takes no limit, no close."""

    def __init__(self) -> None:
        self.session_id = "least"
        self.stored: list[dict[str, Any]] = []

    def get_items(self) -> list[dict[str, Any]]:
        return self.stored

    def add_items(self, items: list[dict[str, Any]]) -> None:
        self.stored.extend(items)

    def pop_item(self) -> dict[str, Any] | None:
        return self.stored.pop() if self.stored else None

    def clear_session(self) -> None:
        self.stored.clear()


async def test_a_session_of_plain_methods_without_a_limit_is_enough():
    session = Minimal()
    plain = adapter(session)
    await plain.append(said("a", "b", "c"), writer="run", start=0)
    assert await plain.read(None) == said("a", "b", "c")
    assert await plain.read(2) == said("b", "c")
    assert await plain.read(0) == []
    assert plain.session_id == "least"


async def test_what_is_read_and_what_is_appended_is_nobody_elses():
    """A17: the caller's objects are never shared with the store."""
    session = Minimal()
    plain = adapter(session)
    mine = [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]
    await plain.append(mine, writer="run", start=0)
    mine[0]["content"][0]["text"] = "changed"  # type: ignore[index]
    (read,) = await plain.read(None)
    read["content"].clear()
    assert session.stored == [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}]


async def test_without_a_limit_get_items_is_called_with_no_argument_at_all():
    seen: list[tuple[Any, Any]] = []

    class Watched(Minimal):
        def get_items(self, *args: Any, **named: Any) -> list[dict[str, Any]]:
            seen.append((args, named))
            return self.stored

    await adapter(Watched()).read(None)
    assert seen == [((), {})]


async def test_a_read_that_gives_no_list_or_a_limit_that_is_none_is_refused_with_what_to_do():
    class Odd(Minimal):
        def get_items(self) -> Any:
            return None

    with pytest.raises(StoreError, match="returned None"):
        await adapter(Odd()).read(None)
    with pytest.raises(InvalidLimitError):
        await adapter(Minimal()).read(-1)


# --- the run context -------------------------------------------------------------------------------------------------


class Contextual(Minimal):
    """A session that asks for the run context in all four methods."""

    def __init__(self) -> None:
        super().__init__()
        self.contexts: list[Any] = []

    def get_items(self, limit: int | None = None, *, wrapper: Any = None) -> list[dict[str, Any]]:  # type: ignore[override]
        self.contexts.append(wrapper)
        return super().get_items()

    def add_items(self, items: list[dict[str, Any]], wrapper: Any = None) -> None:  # type: ignore[override]
        self.contexts.append(wrapper)
        super().add_items(items)

    def pop_item(self, *, wrapper: Any = None) -> dict[str, Any] | None:  # type: ignore[override]
        self.contexts.append(wrapper)
        return super().pop_item()

    def clear_session(self, *, wrapper: Any = None) -> None:  # type: ignore[override]
        super().clear_session()


class HalfContextual(Contextual):
    def pop_item(self) -> dict[str, Any] | None:  # type: ignore[override]
        return Minimal.pop_item(self)


class Catchall(Contextual):
    def pop_item(self, **named: Any) -> dict[str, Any] | None:  # type: ignore[override]
        return Minimal.pop_item(self)


class PositionalOnly(Contextual):
    def pop_item(self, wrapper: Any = None, /) -> dict[str, Any] | None:  # type: ignore[override]
        return Minimal.pop_item(self)


@pytest.mark.parametrize(
    ("kind", "given_it"), [(Contextual, True), (HalfContextual, False), (Catchall, False), (PositionalOnly, False)]
)
async def test_a_session_gets_the_run_context_only_if_all_four_methods_name_it(kind: Any, given_it: bool):
    """C10: all four, by that name; **kwargs and positional-only are not asking."""
    session, context = kind(), object()
    assert accepts_wrapper(session) is given_it
    plain = adapter(session, wrapper=context)
    await plain.read(None)
    await plain.append(said("a"), writer="run", start=0)
    assert set(session.contexts) == ({context} if given_it else {None})


def test_one_method_is_judged_on_its_own():
    assert pass_wrapper(lambda args=None, *, wrapper=None: None)
    assert not pass_wrapper(lambda args=None, **named: None)
    assert not pass_wrapper(None)
    assert not pass_wrapper(dict.fromkeys)


# --- appending -------------------------------------------------------------------------------------------------------


async def test_a_calm_append_costs_one_call_after_the_history_was_read():
    session = Faulty(said("old"))
    plain = adapter(session)
    await plain.read(None)
    await plain.append(said("a", "b"), writer="run", start=0)
    await plain.append(said("c"), writer="run", start=2)
    assert session.calls == ["get", "add", "add"]
    assert session.items == said("old", "a", "b", "c")


async def test_a_repeat_stores_only_what_is_new_and_a_gap_is_refused():
    """As far as this process remembers: the ordinals of B1."""
    session = Faulty()
    plain = adapter(session)
    await plain.append(said("a"), writer="run", start=0)
    await plain.append(said("a"), writer="run", start=0)
    await plain.append(said("a", "b"), writer="run", start=0)
    await adapter(session).append(said("b"), writer="run", start=1)
    await plain.append([], writer="run", start=7)
    assert session.items == said("a", "b")
    with pytest.raises(AppendGapError):
        await plain.append(said("d"), writer="run", start=3)
    await plain.append(said("x"), writer="a run of another process, resumed here", start=40)
    assert session.items == said("a", "b", "x")


async def test_an_append_that_failed_after_storing_everything_has_succeeded():
    session = Faulty(said("yes"))
    session.adds = [("after",)]
    plain = adapter(session)
    await plain.append(said("yes", "yes"), writer="run", start=0)
    assert session.items == said("yes", "yes", "yes")


async def test_an_append_that_stored_nothing_raises_its_own_error_and_can_be_repeated():
    session = Faulty(said("yes"))
    session.adds = [("before",)]
    plain = adapter(session)
    with pytest.raises(Broken, match="add_items"):
        await plain.append(said("yes"), writer="run", start=0)
    assert session.items == said("yes")
    assert "pop" not in session.calls
    await plain.append(said("yes"), writer="run", start=0)
    assert session.items == said("yes", "yes")


async def test_a_part_of_a_batch_is_taken_back_and_older_likeness_is_not():
    session = Faulty(said("yes", "yes"))
    session.adds = [("part", 2)]
    with pytest.raises(Broken):
        await adapter(session).append(said("yes", "yes", "no"), writer="run", start=0)
    assert session.items == said("yes", "yes")
    assert session.calls.count("pop") == 2


async def test_a_second_attempt_is_made_only_if_asked_for_and_after_clearing_up():
    session = Faulty(said("old"))
    session.adds = [("part", 1)]
    await adapter(session, attempt_count_max=2).append(said("a", "b"), writer="run", start=0)
    assert session.items == said("old", "a", "b")


async def test_a_history_that_repeats_itself_is_counted_before_it_is_appended_to():
    """The last sixteen of a hundred equal items do not show how many there are."""
    session = Faulty(said(*["yes"] * 100))
    plain = adapter(session)
    await plain.read(5)
    session.adds = [("part", 1)]
    with pytest.raises(Broken):
        await plain.append(said("yes", "yes"), writer="run", start=0)
    assert session.items == said(*["yes"] * 100)


async def test_a_default_limit_of_the_session_does_not_mislead():
    session = Faulty(said(*[str(n) for n in range(30)]))
    session.session_settings = SessionSettings(limit=3)  # type: ignore[assignment]
    real = session.get_items

    async def limited(limit: int | None = None) -> list[dict[str, Any]]:
        return await real(3 if limit is None else limit)

    session.get_items = limited  # type: ignore[method-assign]
    plain = adapter(session)
    assert len(await plain.read(None)) == 3
    session.adds = [("part", 1)]
    with pytest.raises(Broken):
        await plain.append(said("29", "x"), writer="run", start=0)
    assert session.items == said(*[str(n) for n in range(30)])


async def test_a_store_that_shows_its_writes_late_is_read_again_before_it_is_believed():
    session = Faulty(said("old"))
    session.adds = [("after",)]
    plain = adapter(session)
    await plain.read(None)
    session.reads = [1, 1, 2]  # nothing, nothing, one, then the truth
    await plain.append(said("a", "b"), writer="run", start=0)
    assert session.items == said("old", "a", "b")


async def test_after_popping_the_store_is_read_until_the_part_is_gone():
    session = Faulty(said("old"))
    session.adds = [("part", 1)]
    plain = adapter(session, read_count_max=4)
    await plain.read(None)
    seen_late = said("old", "a")
    real, reads = session.get_items, []

    async def late(limit: int | None = None) -> list[dict[str, Any]]:
        reads.append(len(session.items))
        if "pop" in session.calls and reads.count(1) < 4:
            return seen_late
        return await real(limit)

    session.get_items = late  # type: ignore[method-assign]
    with pytest.raises(Broken):
        await plain.append(said("a", "b"), writer="run", start=0)
    assert session.items == said("old")


async def test_a_part_that_stays_ends_in_an_error_that_says_so_and_names_the_first():
    session = Faulty(said("old"))
    session.adds = [("part", 1)]

    async def pop_that_does_nothing() -> dict[str, Any]:
        return session.items[-1]

    session.pop_item = pop_that_does_nothing  # type: ignore[method-assign]
    plain = adapter(session)
    with pytest.raises(PartialBatchError, match="1 of the 2 items") as caught:
        await plain.append(said("a", "b"), writer="run", start=0)
    assert isinstance(caught.value.__cause__, Broken)
    with pytest.raises(PartialBatchError):  # and it is not appended to while it stays
        await plain.append(said("a", "b"), writer="run", start=0)
    assert session.items == said("old", "a")
    await plain.append(said("x"), writer="another run", start=0)
    assert session.items == said("old", "a", "x")


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_pop_that_fails_leaves_the_part_as_it_was_and_resuming_clears_it_up(when: str):
    session = Faulty(said("old"))
    session.adds = [("part", 2)]
    session.pops = [None, when]
    plain = adapter(session)
    with pytest.raises(PartialBatchError, match="pop_item failed") as caught:
        await plain.append(said("a", "b", "c"), writer="run", start=0)
    assert isinstance(caught.value.__cause__, Broken)
    assert str(caught.value.__cause__) == "add_items"
    assert session.items == said("old", "a", "b")
    await adapter(session).append(said("a", "b", "c", "d"), writer="run", start=0)
    assert session.items == said("old", "a", "b", "c", "d")


async def test_an_unexpected_item_that_was_popped_is_put_back_in_order():
    """Somebody appended between the comparison and the second pop."""
    session = Faulty(said("old"))
    session.adds = [("part", 2)]
    session.pops = [None, lambda s: s.items.extend(said("theirs"))]
    with pytest.raises(PartialBatchError, match="something else"):
        await adapter(session).append(said("a", "b", "c"), writer="run", start=0)
    assert session.items == said("old", "a", "theirs", "b")


async def test_what_could_not_be_put_back_is_in_the_error():
    session = Faulty(said("old"))
    session.adds = [("part", 2), *[("before",)] * 9]
    session.pops = [None, lambda s: s.items.extend(said("theirs"))]
    with pytest.raises(PartialBatchError) as caught:
        await adapter(session).append(said("a", "b", "c"), writer="run", start=0)
    assert session.items == said("old", "a")
    assert caught.value.removed == said("theirs", "b")


@pytest.mark.parametrize("fault", ["before", "after", "half"])
async def test_putting_back_survives_a_failure_of_its_own(fault: str):
    second: Any = ("part", 1) if fault == "half" else (fault,)
    session = Faulty(said("b", "b"))
    session.adds = [("part", 3), second]
    session.pops = [None, None, "before"]
    with pytest.raises(PartialBatchError) as caught:
        await adapter(session).append(said("b", "b", "b", "c"), writer="run", start=0)
    assert session.items == said("b", "b", "b", "b", "b")
    assert caught.value.removed == []


async def test_a_session_that_cannot_be_read_after_the_failure_keeps_the_first_error_and_is_settled_next_time():
    session = Faulty(said("old"))
    plain = adapter(session, read_count_max=2)
    await plain.read(None)
    session.adds, session.reads = [("part", 1)], [Broken, Broken]
    with pytest.raises(Broken, match="add_items") as caught:
        await plain.append(said("a", "b"), writer="run", start=0)
    assert any("Broken: get_items" in note for note in caught.value.__notes__)
    assert session.items == said("old", "a")
    fresh = adapter(session)  # a resumed run reads the history, part included, and goes on where it was
    assert await fresh.read(None) == said("old", "a")
    await fresh.append(said("a", "b"), writer="run", start=0)
    assert session.items == said("old", "a", "b")


async def test_a_clean_up_call_that_stalls_is_given_up():
    session = Faulty(said("old"))
    session.adds, stalled = [("part", 1)], asyncio.Event()

    async def stall() -> None:
        await stalled.wait()

    session.pop_item = stall  # type: ignore[method-assign,assignment]
    with pytest.raises(PartialBatchError, match="pop_item failed") as caught:
        await adapter(session, tidy_timeout_s=0.01).append(said("a", "b"), writer="run", start=0)
    assert isinstance(caught.value.__cause__, Broken)
    assert session.items == said("old", "a")


# --- somebody else ---------------------------------------------------------------------------------------------------


def joined_by(others: list[dict[str, Any]], where: str, mine: int) -> Callable[[Faulty, list[dict[str, Any]]], Any]:
    def fault(session: Faulty, items: list[dict[str, Any]]) -> Any:
        if where == "first":
            session.items.extend(others)
        session.items.extend(items[:mine])
        if where == "behind":
            session.items.extend(others)
        return ("before",)

    return fault


@pytest.mark.parametrize("where", ["first", "behind"])
async def test_a_whole_batch_among_other_peoples_items_is_recognised(where: str):
    session = Faulty(said("old"))
    session.adds = [joined_by(said("theirs"), where, mine=2)]
    await adapter(session).append(said("a", "b"), writer="run", start=0)
    assert sorted(item["content"] for item in session.items) == ["a", "b", "old", "theirs"]


@pytest.mark.parametrize("where", ["first", "behind"])
async def test_a_part_among_other_peoples_items_is_left_alone_and_reported(where: str):
    session = Faulty(said("old"))
    session.adds = [joined_by(said("theirs"), where, mine=1)]
    with pytest.raises(PartialBatchError, match="somebody else"):
        await adapter(session).append(said("a", "b"), writer="run", start=0)
    assert "pop" not in session.calls
    assert sorted(item["content"] for item in session.items) == ["a", "old", "theirs"]


async def test_nothing_of_ours_among_other_peoples_items_is_a_plain_failure():
    session = Faulty(said("old"))
    session.adds = [joined_by(said("theirs"), "first", mine=0)]
    plain = adapter(session)
    with pytest.raises(Broken):
        await plain.append(said("a", "b"), writer="run", start=0)
    await plain.append(said("a", "b"), writer="run", start=0)
    assert session.items == said("old", "theirs", "a", "b")


async def test_two_runs_on_one_object_never_mix_their_clearing_up():
    session = Faulty(said("old"))
    session.adds = [("part", 1), None]
    one, two = adapter(session), adapter(session)
    await one.read(None)
    first, second = await asyncio.gather(
        one.append(said("a", "b"), writer="one", start=0),
        two.append(said("c", "d"), writer="two", start=0),
        return_exceptions=True,
    )
    assert isinstance(first, Broken)
    assert second is None
    assert session.items == said("old", "c", "d")


async def test_a_read_that_was_overtaken_by_an_append_does_not_mislead_later_ones():
    session = Faulty(said("old"))
    one, two = adapter(session), adapter(session)
    real, reading, go_on = session.get_items, asyncio.Event(), asyncio.Event()

    async def slow(limit: int | None = None) -> list[dict[str, Any]]:
        found = await real(limit)
        reading.set()
        await go_on.wait()
        return found

    session.get_items = slow  # type: ignore[method-assign]
    overtaken = asyncio.create_task(one.read(None))
    await reading.wait()
    session.get_items = real  # type: ignore[method-assign]
    await two.append(said("a"), writer="two", start=0)
    go_on.set()
    assert await overtaken == said("old")
    session.adds = [("part", 1)]
    with pytest.raises(Broken):
        await two.append(said("a", "b"), writer="three", start=0)
    assert session.items == said("old", "a")


# --- cancellation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fault", "left"), [("before", []), ("part", []), ("after", ["a", "b"])])
async def test_a_cancelled_append_clears_up_then_is_cancelled_and_may_be_repeated(fault: str, left: list[str]):
    session = Faulty(said("old"))
    session.adds = [(fault, 1, "cancel")]
    plain = adapter(session)
    task = asyncio.create_task(plain.append(said("a", "b"), writer="run", start=0))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()
    assert session.items == said("old", *left)
    await plain.append(said("a", "b"), writer="run", start=0)
    assert session.items == said("old", "a", "b")


async def test_clearing_up_goes_on_however_often_the_caller_is_cancelled():
    session = Faulty(said("old"))
    session.adds = [("part", 2)]
    popping, go_on = asyncio.Event(), asyncio.Event()
    real = session.pop_item

    async def slow_pop() -> dict[str, Any] | None:
        popping.set()
        await go_on.wait()
        return await real()

    session.pop_item = slow_pop  # type: ignore[method-assign]
    task = asyncio.create_task(adapter(session).append(said("a", "b", "c"), writer="run", start=0))
    await popping.wait()
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    assert isinstance(caught.value.__cause__, Broken)
    assert session.items == said("old")


# --- any faults, anywhere --------------------------------------------------------------------------------------------

WORDS = st.lists(st.sampled_from(["yes", "no"]), max_size=6)
ADD_FAULTS = st.one_of(
    st.none(),
    st.tuples(st.sampled_from(["before", "after"])),
    st.tuples(st.just("part"), st.integers(0, 4)),
    st.tuples(st.just("part"), st.integers(0, 4), st.just("cancel")),
    st.tuples(st.just("after"), st.just("cancel")),
)


@settings(max_examples=400, deadline=None)
@given(
    old=WORDS,
    new=st.lists(st.sampled_from(["yes", "no"]), min_size=1, max_size=4),
    adds=st.lists(ADD_FAULTS, max_size=6),
    pops=st.lists(st.sampled_from([None, None, "before", "after"]), max_size=8),
    read_first=st.sampled_from([None, "whole", 2, 0]),
)
def test_whatever_fails_old_items_stay_and_the_batch_ends_up_there_once(
    old: list[str], new: list[str], adds: list[Any], pops: list[Any], read_first: Any
):
    """C7, with items as alike as they can be: nothing older is touched, nothing is doubled, nothing disappears."""
    session = Faulty(said(*old))
    session.adds, session.pops = adds, pops

    async def attempt() -> BaseException | None:
        plain = adapter(session, read_count_max=2)
        if read_first is not None:
            await plain.read(None if read_first == "whole" else read_first)
        try:
            await asyncio.create_task(plain.append(said(*new), writer="run", start=0))
        except (Exception, asyncio.CancelledError) as error:
            return error
        return None

    async def scenario() -> None:
        for _ in range(30):  # every fault is used up after a while
            error = await attempt()
            removed = getattr(error, "removed", [])
            assert session.items[: len(old)] == said(*old)
            assert session.items[len(old) :] + removed == said(*new)[: len(session.items) + len(removed) - len(old)]
            if error is None:
                break
            if isinstance(error, Broken):
                assert session.items in (said(*old), said(*old, *new))
        assert session.items == said(*old, *new)
        assert await attempt() is None
        assert session.items == said(*old, *new)

    asyncio.run(scenario())


@settings(max_examples=300, deadline=None)
@given(
    old=WORDS,
    new=st.lists(st.sampled_from(["yes", "no", "ours"]), min_size=1, max_size=3),
    others=st.lists(st.sampled_from(["theirs", "hers"]), min_size=1, max_size=2),
    mine=st.integers(0, 3),
    where=st.sampled_from(["first", "behind"]),
)
def test_another_writer_in_the_same_moment_never_loses_an_item(
    old: list[str], new: list[str], others: list[str], mine: int, where: str
):
    session = Faulty(said(*old))
    session.adds = [joined_by(said(*others), where, mine)]

    async def scenario() -> None:
        with_ours = len(new) if mine >= len(new) else mine
        try:
            await adapter(session, read_count_max=1).append(said(*new), writer="run", start=0)
        except (Broken, PartialBatchError):
            assert with_ours < len(new)
        assert session.items[: len(old)] == said(*old)
        assert [item for item in session.items if item in said("theirs", "hers")] == said(*others)
        assert len(session.items) == len(old) + len(others) + with_ours

    asyncio.run(scenario())


# --- what decides ----------------------------------------------------------------------------------------------------


@given(
    old=st.lists(st.sampled_from("ab"), max_size=40),
    new=st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
    taken=st.integers(0, 4),
    counted=st.booleans(),
)
def test_how_much_stands_there_is_told_exactly_or_not_at_all(old: list[str], new: list[str], taken: int, counted: bool):
    before, batch = tail_from(said(*old), whole=counted), [serialise(item) for item in said(*new)]
    taken = min(taken, len(new))
    after = [serialise(item) for item in said(*old, *new[:taken])]
    told = stored_count(before, batch, after)
    if counted or is_unambiguous(before.tail, batch):
        assert told == taken
    elif old:
        assert told in (taken, None)


def test_a_session_that_shows_only_its_last_items_is_recognised_by_them():
    before = tail_from(said(*"abcdefgh"), whole=True)
    after = [serialise(item) for item in said(*"cdefghxy")]
    assert stored_count(before, [serialise(item) for item in said("x", "y")], after) == 2
    assert stored_count(before, [serialise(item) for item in said("z", "y")], after) is None


def test_a_history_that_lost_what_was_known_gives_no_answer_where_likeness_is_left():
    before = HistoryTail(2, tuple(serialise(item) for item in said("a", "b")))
    batch = [serialise(item) for item in said("yes")]
    assert stored_count(before, batch, [serialise(item) for item in said("yes")]) is None
    assert stored_count(before, batch, [serialise(item) for item in said("no")]) == 0


def test_items_are_compared_whole_and_without_regard_to_the_order_of_keys():
    assert serialise({"a": 1, "b": [2, {"d": 1, "c": 2}]}) == serialise({"b": [2, {"c": 2, "d": 1}], "a": 1})
    assert serialise({"a": 1}) != serialise({"a": 1.5})
    assert serialise({"a": "\ud800"}) != serialise({"a": "\ud801"})
    assert serialise({"a": 2**80}) == serialise({"a": 2**80})


# --- one run at a time -----------------------------------------------------------------------------------------------


async def test_two_runs_of_a_process_take_turns_on_a_session_object():
    """C13 on a plain session: an in-process lock, first come first served, and it says so."""
    session, order = Faulty(), []

    async def run(name: str) -> None:
        async with adapter(session).hold(wait_s=30):
            order.append(f"{name} in")
            await asyncio.sleep(0)
            order.append(f"{name} out")

    await asyncio.gather(*(run(name) for name in "abc"))
    assert order == ["a in", "a out", "b in", "b out", "c in", "c out"]
    assert any(line.startswith("C13") and "in-process" in line for line in PlainSession.cannot)


async def test_a_session_that_is_not_given_up_in_time_is_busy_and_another_object_is_free():
    session, other = Faulty(), Faulty()
    held = await adapter(session).hold(wait_s=0)
    with pytest.raises(SessionBusyError, match="this process"):
        await adapter(session).hold(wait_s=0.01)
    async with adapter(other).hold(wait_s=0):
        pass
    await held.renew()
    await held.release()
    await held.release()
    async with adapter(session).hold(wait_s=0):
        pass


async def test_a_waiter_that_is_cancelled_leaves_the_turn_to_the_next():
    session = Faulty()
    held = await adapter(session).hold(wait_s=0)
    waiting = asyncio.create_task(adapter(session).hold(wait_s=30).acquire())
    behind = asyncio.create_task(adapter(session).hold(wait_s=30).acquire())
    await asyncio.sleep(0)
    await held.release()  # handed to the first waiter, which is cancelled before it can use it
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert waiting.cancelled()
    await (await asyncio.wait_for(behind, 30)).release()
    async with adapter(session).hold(wait_s=0):
        pass


def test_the_lock_works_between_event_loops_and_threads():
    session, order = Faulty(), []
    entered, leave = threading.Event(), threading.Event()

    async def first() -> None:
        async with adapter(session).hold(wait_s=30):
            entered.set()
            await asyncio.to_thread(leave.wait, 30)
            order.append("first")

    async def second() -> None:
        async with adapter(session).hold(wait_s=30):
            order.append("second")

    one = threading.Thread(target=asyncio.run, args=(first(),))
    one.start()
    assert entered.wait(30)
    two = threading.Thread(target=asyncio.run, args=(second(),))
    two.start()
    leave.set()
    one.join(30)
    two.join(30)
    assert order == ["first", "second"]


async def test_a_loop_that_ended_while_waiting_does_not_keep_the_turn():
    session = Faulty()
    held = await adapter(session).hold(wait_s=0)

    def abandon() -> None:
        loop = asyncio.new_event_loop()
        task = loop.create_task(adapter(session).hold(wait_s=30).acquire())
        loop.run_until_complete(asyncio.sleep(0))
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # dying with its loop is the point
        loop.close()

    await asyncio.to_thread(abandon)
    await held.release()
    async with adapter(session).hold(wait_s=5):
        pass


class Slotted:
    __slots__ = ("items", "session_id")

    def __init__(self) -> None:
        self.session_id, self.items = "slots", []

    def get_items(self) -> list[Any]:
        return self.items

    def add_items(self, items: list[Any]) -> None:
        self.items.extend(items)

    def pop_item(self) -> Any:
        return self.items.pop()

    def clear_session(self) -> None:
        self.items.clear()


class NoIdYet(Minimal):
    def __init__(self) -> None:
        self.stored = []

    @property
    def session_id(self) -> str:  # type: ignore[override]
        raise ValueError("the server has not given one yet")


@pytest.mark.parametrize("kind", [Slotted, NoIdYet])
async def test_odd_session_objects_have_their_lock_too(kind: Any):
    session = kind()
    one, two = adapter(session), adapter(session)
    async with one.hold(wait_s=0):
        with pytest.raises(SessionBusyError):
            await two.hold(wait_s=0)
    await one.append(said("a"), writer="run", start=0)
    await two.append(said("a"), writer="run", start=0)
    assert session.get_items() == said("a")


def test_what_is_known_of_a_session_object_goes_with_it():
    def kept() -> int:
        """How many objects of the adapter's own kinds there are."""
        gc.collect()
        return sum(type(one).__module__ == "standfast._src.sessions.foreign.adapter" for one in gc.get_objects())

    count = kept()
    for _ in range(100):
        adapter(Faulty())
        adapter(Slotted())
    assert kept() == count
