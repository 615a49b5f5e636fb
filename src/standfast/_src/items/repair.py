"""Rules for repairing a stored history: the rules of requests, and two more.

Each request leaves out the items that `deduplicate` merges and `prune` drops. A permanent repair must also remove items
that requests pass on and a provider refuses: a second item with the same provider id, and reasoning at the end.
Requests pass those on because a run cannot tell a copy from a provider that gives every item the same id, and must not
drop an item that has just arrived. A repair sees a history at rest, and can be undone.

Every function is pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from standfast._src.base.json_values import Item
from standfast._src.items.history import (
    CUT_REASONING,
    PLACEHOLDER_ID,
    canonical,
    deduplicate,
    identity,
    prune,
)

SECOND_COPY = "another copy of an item with the same id"


class Verdict(NamedTuple):
    """Verdict on a list of items, by place: the order of those to keep, and the reason for each removal.

    The order is that of the list, with one exception: a later copy of a call with different content replaces the
    earlier copy in the earlier place.
    """

    order: list[int]
    leaving: dict[int, str]


def judge(items: Sequence[Item]) -> Verdict:
    """Decide which items to keep, in linear time. Each item must be a separate object."""
    places = {id(item): place for place, item in enumerate(items)}
    merged = [places[id(item)] for item in deduplicate(items)]
    if len(merged) < len(items):
        merged = _put_in_order(items, merged)
    single = _without_repeated_ids(items, merged)
    kept, left_out = prune([items[place] for place in single])
    leaving = {places[id(one.item)]: one.reason for one in left_out}
    order = _without_last_reasoning(items, [places[id(item)] for item in kept] if left_out else single, leaving)
    if len(order) + len(leaving) < len(items):
        staying = set(order)
        leaving |= {n: SECOND_COPY for n in range(len(items)) if n not in staying and n not in leaving}
    return Verdict(order, leaving)


def _put_in_order(items: Sequence[Item], merged: list[int]) -> list[int]:
    """Keep an earlier copy in its place if the replacing copy has equal content."""
    staying = set(merged)
    gone: dict[object, list[int]] = {}
    for place in range(len(items) - 1, -1, -1):
        if place not in staying:
            gone.setdefault(identity(items[place]), []).append(place)  # the earliest is at the end
    found: list[int] = []
    last = -1
    lowest = _lowest_behind(merged)
    for number, place in enumerate(merged):
        if place > lowest[number]:  # it stands before one that was written earlier
            copies = gone.get(identity(items[place]), [])
            while copies and copies[-1] <= last:
                copies.pop()
            if copies and canonical(items[copies[-1]]) == canonical(items[place]):
                place = copies.pop()
        found.append(place)
        last = max(last, place) if place < lowest[number] else last
    return found


def _lowest_behind(places: Sequence[int]) -> list[int]:
    """Return, for each place, the lowest number behind it."""
    lowest, found = len(places) * 2 + max(places, default=0), [0] * len(places)
    for number in range(len(places) - 1, -1, -1):
        found[number] = lowest
        lowest = min(lowest, places[number])
    return found


def _without_repeated_ids(items: Sequence[Item], order: list[int]) -> list[int]:
    """Without items that stand there before, with the same type, provider's id and contents."""
    seen: dict[tuple[object, str], int] = {}
    repeated: set[int] = set()
    for place in order:
        item = items[place]
        given = item.get("id")
        if type(given) is not str or not given or given == PLACEHOLDER_ID:
            continue
        first = seen.setdefault((item.get("type"), given), place)
        if first != place and canonical(items[first]) == canonical(item):
            repeated.add(place)
    return [place for place in order if place not in repeated] if repeated else order


def _without_last_reasoning(items: Sequence[Item], order: list[int], leaving: dict[int, str]) -> list[int]:
    """Remove reasoning that ends the list, and note the reason: in a history at rest no item follows."""
    end = len(order)
    while end and items[order[end - 1]].get("type") == "reasoning":
        end -= 1
        leaving[order[end]] = CUT_REASONING
    return order[:end]
