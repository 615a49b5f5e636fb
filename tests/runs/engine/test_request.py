"""Which of the offered items did a filter send? The one place where likeness decides, because nothing better is given.

Unchanged items are anchors. Between two of them, something new returned means that all offered there were sent in some
form, nothing returned means that they are still owed (D3).
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

from hypothesis import given, settings, strategies as st

from standfast._src.base.json_values import encode_value
from standfast._src.runs.engine.request import left_out

texts = st.sampled_from(["yes", "no", "a", "b"])  # few, so that many are alike
offers = st.lists(texts.map(lambda text: {"role": "user", "content": text}), max_size=7)
unique_offers = st.integers(0, 8).map(lambda count: [{"role": "user", "content": str(one)} for one in range(count)])


def content(items: list[Any]) -> Counter[bytes]:
    return Counter(encode_value(item) for item in items)


def ordinals_of(items: list[Any]) -> list[int]:
    return [10 + 3 * place for place in range(len(items))]  # ordinals need not begin at 0, nor follow each other


def owed_items(items: list[Any], returned: list[Any]) -> list[Any]:
    ordinals = ordinals_of(items)
    owed = left_out(ordinals, items, returned)
    assert list(owed) == sorted(set(owed))
    return [items[ordinals.index(ordinal)] for ordinal in owed]


@given(offers)
def test_a_filter_that_returns_what_it_was_given_leaves_nothing_out(items):
    assert left_out(ordinals_of(items), items, copy.deepcopy(items)) == ()


@given(offers)
def test_a_filter_that_returns_nothing_leaves_everything_out(items):
    assert left_out(ordinals_of(items), items, []) == tuple(ordinals_of(items))


@given(unique_offers, st.data())
def test_a_filter_that_drops_items_leaves_out_exactly_those(items, data):
    keep = [data.draw(st.booleans()) for _ in items]
    returned = [item for item, kept in zip(items, keep, strict=True) if kept]
    assert owed_items(items, returned) == [item for item, kept in zip(items, keep, strict=True) if not kept]


@given(offers, st.data())
def test_of_items_that_are_alike_as_many_are_left_out_as_were_dropped(items, data):
    returned = [item for item in items if data.draw(st.booleans())]
    assert content(owed_items(items, returned)) == content(items) - content(returned)


@given(offers, st.data())
def test_a_filter_that_reorders_and_drops_leaves_out_only_what_it_dropped(items, data):
    """What was sent in another place was sent: offered again, it would be there twice."""
    returned = data.draw(st.permutations([item for item in items if data.draw(st.booleans())]))
    assert content(owed_items(items, returned)) == content(items) - content(returned)


@given(offers, st.data())
def test_a_filter_that_rewrites_items_in_place_leaves_nothing_out(items, data):
    """A rewritten one counts as its source."""
    returned = [{**item, "content": "rewritten"} if data.draw(st.booleans()) else item for item in items]
    assert left_out(ordinals_of(items), items, returned) == ()


@given(offers, st.data())
def test_a_filter_that_puts_items_in_leaves_nothing_out(items, data):
    """An invented one is sent once and enters no history; it takes nobody's place."""
    returned: list[Any] = []
    for item in items:
        returned += [{"role": "developer", "content": "invented"}] * data.draw(st.integers(0, 2))
        returned.append(item)
    assert left_out(ordinals_of(items), items, returned) == ()


@given(offers, st.integers(0, 7))
def test_a_filter_that_sums_up_the_beginning_has_sent_it(items, kept):
    returned = [{"role": "user", "content": "in short: ..."}, *items[len(items) - min(kept, len(items)) :]]
    assert left_out(ordinals_of(items), items, returned) == ()


@given(offers, st.data())
def test_copies_with_their_keys_in_another_order_are_the_same_items(items, data):
    returned = [dict(reversed(item.items())) for item in items if data.draw(st.booleans())]
    straight = [dict(reversed(item.items())) for item in returned]
    assert owed_items(items, returned) == owed_items(items, straight)


@settings(max_examples=200)
@given(offers, st.lists(st.none() | st.integers() | texts | offers.map(tuple) | st.builds(object), max_size=6))
def test_whatever_a_filter_returns_the_answer_is_a_part_of_what_was_offered_in_order(items, returned):
    ordinals = ordinals_of(items)
    owed = left_out(ordinals, items, [*returned, *items[:1]])
    assert list(owed) == [ordinal for ordinal in ordinals if ordinal in owed]


@given(offers, offers)
def test_nothing_is_lost_and_nothing_doubled_whatever_comes_back(items, returned):
    """An item that came back unchanged is never owed as often as it was offered."""
    owed = content(owed_items(items, returned))
    for item, times in (content(items) & content(returned)).items():
        assert owed[item] <= content(items)[item] - times


def test_a_dropped_item_stays_owed_though_others_changed_places():
    a, b, c = ({"content": text} for text in "abc")
    assert left_out([0, 1, 2], [a, b, c], [b, a]) == (2,)
    assert left_out([0, 1, 2], [a, b, c], [c, a]) == (1,)


def test_a_long_list_that_was_cut_at_both_ends_is_compared_quickly():
    """Proportional to what is offered, not to its square, for what filters mostly do."""
    items = [{"content": str(number)} for number in range(20_000)]
    assert left_out(range(20_000), items, items[5:]) == tuple(range(5))
    assert left_out(range(20_000), items, [{"content": "new"}, *items[5:-5]]) == tuple(range(19_995, 20_000))
