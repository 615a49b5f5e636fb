"""A whole batch is encoded as each of its items is (A17)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.base.errors import ItemNotStorableError
from standfast._src.base.json_values import decode, digest, digest_many, encode, encode_many


class Own(dict[str, Any]):
    """A dict of somebody's own."""


LEAVES = st.none() | st.booleans() | st.integers(-(2**80), 2**80) | st.floats() | st.text()
AWKWARD = st.sampled_from(["\ud800", "\ud83d\ude00", (1, 2), {1: "a number as its key"}, b"bytes", {"a set"}])
VALUES: Any = st.recursive(
    LEAVES | AWKWARD, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
)
ITEMS: Any = st.dictionaries(st.text(max_size=5), LEAVES | VALUES, max_size=3)


def outcome(encoded: Callable[[], list[bytes]]) -> list[bytes] | str:
    try:
        return encoded()
    except ItemNotStorableError as error:
        return str(error)


@given(st.lists(ITEMS | ITEMS.map(Own) | VALUES, max_size=5))
def test_a_batch_is_encoded_or_refused_as_its_items_are(items: list[Any]) -> None:
    assert outcome(lambda: encode_many(iter(items))) == outcome(lambda: [encode(item) for item in items])


@given(st.lists(ITEMS, max_size=5))
def test_what_a_batch_was_encoded_to_is_read_as_the_same(items: list[Any]) -> None:
    made = outcome(lambda: encode_many(items))
    if not isinstance(made, str):
        assert [decode(data) for data in made] == items
        assert digest_many(made) == [digest(data) for data in made]


def test_one_item_that_is_none_refuses_the_batch() -> None:
    with pytest.raises(ItemNotStorableError, match="not a conversation item"):
        encode_many([{"role": "user"}, ["a list"]])
    with pytest.raises(ItemNotStorableError, match="not JSON"):
        encode_many([{"role": "user"}, {"at": float("nan")}])


def test_an_item_that_cannot_be_stored_is_described_without_its_keys() -> None:
    """Keys can be content too: what a tool gave back may be a dict by the names of people."""
    with pytest.raises(ItemNotStorableError) as caught:
        encode({"role": "user", "content": [{"Ada Lovelace": {"born": {1815}}}]})
    assert str(caught.value).startswith("the item is not JSON: item['content'][0][key 0][key 0] is a set")
