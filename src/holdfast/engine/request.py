"""The only place that turns "owner + ledger" into what to send.

A client-owned conversation is sent whole: the view's base and the ledger behind it. A server-owned one gets the slice
after `acknowledged`, and the few ordinals a filter left out before (`owed`). Every delta is a slice; a retry leaves
the marks alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.jsonvalue import Item, encode_value

from .state import Run


def offered(run: Run) -> tuple[int, ...]:
    """The ordinals a server-owned conversation is still to be sent, in order (D2)."""
    return (*run.marks.owed, *range(run.marks.acknowledged, len(run.ledger)))


def delta(run: Run) -> list[Item]:
    """The items of `offered`."""
    return [run.ledger[ordinal].item for ordinal in offered(run)]


def view_items(run: Run, history: Sequence[Item] = ()) -> list[Item]:
    """What the model sees of a client-owned conversation; `history` is the session's, where the view says so."""
    view = run.view
    base = history if view.base is None else view.base
    return [*base, *(entry.item for entry in run.ledger.since(view.tail))]


def left_out(ordinals: Sequence[int], items: Sequence[Item], returned: Sequence[Any]) -> tuple[int, ...]:
    """Which of the offered ordinals a filter did not send (D3).

    The one place where likeness decides, because a filter gives back nothing but a list. Unchanged items are anchors,
    in order. Between two anchors, something returned means that all offered there were sent in some form; nothing
    returned means that they are still owed.
    """
    anchors = _anchors([_likeness(item) for item in items], [_likeness(item) for item in returned])
    owed: list[int] = []
    previous_offered = previous_returned = -1
    for at_offered, at_returned in [*anchors, (len(items), len(returned))]:
        if at_returned == previous_returned + 1:  # nothing came back between these two anchors
            owed.extend(ordinals[previous_offered + 1 : at_offered])
        previous_offered, previous_returned = at_offered, at_returned
    return tuple(owed)


def _anchors(offered_keys: list[bytes], returned_keys: list[bytes]) -> list[tuple[int, int]]:
    """A longest common subsequence, greedily from both ends first: filters mostly cut or append."""
    start, ends = 0, (len(offered_keys), len(returned_keys))
    while start < min(ends) and offered_keys[start] == returned_keys[start]:
        start += 1
    tail = 0
    while tail < min(ends) - start and offered_keys[-1 - tail] == returned_keys[-1 - tail]:
        tail += 1
    middle = _common(offered_keys[start : ends[0] - tail], returned_keys[start : ends[1] - tail])
    head = [(index, index) for index in range(start)]
    last = [(ends[0] - back, ends[1] - back) for back in range(tail, 0, -1)]
    return head + [(a + start, b + start) for a, b in middle] + last


def _common(left: list[bytes], right: list[bytes]) -> list[tuple[int, int]]:
    if not left or not right:
        return []
    lengths = [[0] * (len(right) + 1) for _ in range(len(left) + 1)]
    for i in range(len(left) - 1, -1, -1):
        for j in range(len(right) - 1, -1, -1):
            same = left[i] == right[j]
            lengths[i][j] = lengths[i + 1][j + 1] + 1 if same else max(lengths[i + 1][j], lengths[i][j + 1])
    pairs, i, j = [], 0, 0
    while i < len(left) and j < len(right):
        if left[i] == right[j]:
            pairs.append((i, j))
            i, j = i + 1, j + 1
        elif lengths[i + 1][j] >= lengths[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs


def _likeness(item: Any) -> bytes:
    try:
        return encode_value(item)
    except (TypeError, ValueError):
        return repr(item).encode("utf-8", "surrogatepass")
