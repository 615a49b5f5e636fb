"""Whatever states of a run a watcher happens to see, and wherever it is cut off, it is told each fact once (B17)."""

from __future__ import annotations

import asyncio
import functools
from dataclasses import replace
from typing import Any

import pytest
from helpers.watching import check_order, facts
from hypothesis import given, settings, strategies as st

from standfast._src.runs.recovery.run_updates import RunSnapshot
from tests.mistakes.planting import planted
from tests.mistakes.registry import Mistake, proving
from tests.runs.recovery.watched_runs import pictures_of, states_of, told_of


@functools.cache
def pictures(ends_first: str, approve: bool = True) -> list[RunSnapshot]:
    return pictures_of(asyncio.run(states_of(ends_first, approve=approve)))


def check(every: list[RunSnapshot], seen: list[int]) -> None:
    """A watcher who sees these states, and then the last one, against one who sees nothing but the end."""
    places = [*sorted(set(seen)), len(every) - 1]
    told, cursors = told_of([every[place] for place in places])
    check_order(told)
    at_the_end, last = told_of([every[-1]])
    assert sorted(facts(told)) == sorted(facts(at_the_end))
    assert told[-1]["type"] == "run_ended"
    assert cursors[-1] == last[-1]
    assert [one["item"] for one in told if one["type"] == "item_saved"] == [one.item for one in every[-1].shown]
    # The same saved state is the same cursor for everybody who was told of it, whatever they saw before.
    for place, cursor in zip(places, cursors, strict=True):
        assert told_of([every[place]])[1] == [cursor]


@settings(max_examples=40)
@given(st.sampled_from("ab"), st.booleans(), st.lists(st.integers(0, 60)))
def test_each_fact_is_told_once_whatever_was_seen_and_wherever_it_was_cut_off(
    ends_first: str, approve: bool, seen: list[int]
) -> None:
    every = pictures(ends_first, approve)
    check(every, [place % len(every) for place in seen])


@settings(max_examples=40)
@given(st.sampled_from("ab"), st.integers(0, 60), st.integers(0, 60))
def test_two_watchers_who_go_on_from_one_cursor_are_told_the_same(ends_first: str, first: int, cut: int) -> None:
    every = pictures(ends_first)
    told, _ = told_of([every[first % len(every)]])
    if not told:
        return
    after = told[cut % len(told)]["cursor"]
    assert told_of([every[-1]], after) == told_of([every[-1]], after)
    behind = facts(told_of([every[-1]], after)[0])
    assert not set(behind) & set(facts(told[: cut % len(told) + 1]))


def test_a_call_that_ends_first_is_told_first_though_it_stands_behind_the_other_in_the_history() -> None:
    told, _ = told_of(pictures("b"))
    first, second = [one for one in told if one["type"] == "call_ended"][:2]
    assert [first["call_id"], second["call_id"]] == ["b", "a"]
    # Whoever is cut off between the two is told of the other one, and not of this one again.
    rest, _ = told_of([pictures("b")[-1]], first["cursor"])
    outputs = [one["output"] for one in rest if one["type"] == "call_ended"]
    assert outputs[0] == "seen a"
    assert "seen b" not in outputs


def test_a_run_that_waits_says_for_what_and_goes_on() -> None:
    told, _ = told_of(pictures("b"))
    standings = [(one["status"], [call["call_id"] for call in one["waiting"]]) for one in told if "waiting" in one]
    assert ("paused", ["p"]) in standings
    assert standings[0] == ("running", [])
    behind = standings[standings.index(("paused", ["p"])) + 1 :]
    assert behind[-1] == ("running", [])
    taken = [one["is_taken_over"] for one in told if "waiting" in one]
    assert taken.count(True) == 1
    begun = [one["call_id"] for one in told[: told.index(paused_in(told))] if one["type"] == "call_began"]
    assert begun == ["a", "b", "c"]


def paused_in(told: list[dict[str, Any]]) -> dict[str, Any]:
    return next(one for one in told if one.get("status") == "paused")


def test_a_run_that_waits_for_something_else_says_so() -> None:
    paused = next(one for one in pictures("b") if one.status == "paused")
    other = replace(paused, waiting=(replace(paused.waiting[0], call_id="another"),))
    told, _ = told_of([paused, other, other])
    assert [[call["call_id"] for call in one["waiting"]] for one in told if "waiting" in one] == [["p"], ["another"]]


@pytest.mark.parametrize("mistake", proving("updates"), ids=lambda mistake: mistake.id)
def test_a_wrong_teller_is_seen(mistake: Mistake) -> None:
    before = pictures("b")
    pictures.cache_clear()
    with planted(mistake):
        try:
            for every in (pictures("b"), pictures("a", False)):
                for seen in ([], [*range(len(every))], [*range(0, len(every), 3)]):
                    check(every, seen)
            test_a_run_that_waits_says_for_what_and_goes_on()
            test_a_run_that_waits_for_something_else_says_so()
            told, _ = told_of(pictures("b"))
            assert [one["call_id"] for one in told if one["type"] == "call_began"][:2] == ["a", "b"]
            assert sorted(facts(told)) == sorted(facts(told_of(before)[0]))
        except Exception:  # any failure is a notice
            return
        finally:
            pictures.cache_clear()
    raise AssertionError(mistake.fault)
