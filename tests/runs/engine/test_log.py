"""A log is a value: whoever appends to it, the others see what they saw."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from standfast._src.runs.engine.append_log import Log


@given(st.lists(st.tuples(st.integers(0, 9), st.lists(st.integers(), max_size=3)), max_size=20))
def test_any_tree_of_appends_is_a_tree_of_lists(appends):
    """Two futures of one past never see each other."""
    logs, lists = [Log[int]()], [[]]
    for which, values in appends:
        which %= len(logs)
        logs.append(logs[which].appended(values))
        lists.append([*lists[which], *values])
    for log, expected in zip(logs, lists, strict=True):
        assert list(log) == expected
        assert len(log) == len(expected)
        assert log == Log(expected)
        assert [log.since(start) for start in range(len(expected) + 1)] == [
            expected[start:] for start in range(len(expected) + 1)
        ]
        assert [log[place] for place in range(-len(expected), len(expected))] == [*expected, *expected]
        assert log[1:3] == expected[1:3]
        assert log[-2:] == expected[-2:]


@pytest.mark.parametrize("index", [1, -2, 5])
def test_a_later_value_of_the_same_list_is_not_visible_through_an_earlier_one(index):
    earlier = Log(["a"])
    earlier.appended(["b", "c"])
    with pytest.raises(IndexError):
        earlier[index]


def test_an_append_that_fails_half_way_changes_no_log():
    def breaking():
        yield "b"
        raise RuntimeError

    log = Log(["a"])
    with pytest.raises(RuntimeError):
        log.appended(breaking())
    assert list(log) == ["a"]
    assert list(log.appended(["c"])) == ["a", "c"]
