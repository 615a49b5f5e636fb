"""Outcome of a failed append, decided from the items before and after it, without I/O.

A foreign session knows items only by content, and two people may both say "yes". So the earlier items are identified by
their count too, and by the last few in order; new items come behind them. In doubt the answer is None, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

CONTEXT_COUNT = 16
# How many of the last items are remembered to recognise where new ones begin. More would only be encoded for nothing:
# where sixteen are not enough (a history that repeats itself), the whole is counted instead.

_sorted_encode = msgspec.json.Encoder(order="sorted").encode


@dataclass(frozen=True, slots=True)
class HistoryTail:
    """End of a session's history: the number of items (None: not counted), and the serialised last few."""

    count: int | None
    tail: tuple[bytes, ...]

    def then(self, forms: Sequence[bytes]) -> HistoryTail:
        """Return the tail after these items were appended."""
        count = None if self.count is None else self.count + len(forms)
        return HistoryTail(count, (*self.tail, *forms)[-CONTEXT_COUNT:])


def serialise(item: object) -> bytes:
    """Return the form in which two items are compared: complete, with sorted keys, since a store may reorder keys."""
    try:
        return _sorted_encode(item)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError):
        return json.dumps(item, sort_keys=True, separators=(",", ":"), default=repr).encode("utf-8", "surrogatepass")


def tail_from(items: Sequence[Any], *, whole: bool) -> HistoryTail:
    """Build the tail from the items of a read."""
    return HistoryTail(len(items) if whole else None, tuple(serialise(item) for item in items[-CONTEXT_COUNT:]))


def is_unambiguous(tail: Sequence[bytes], batch: Sequence[bytes]) -> bool:
    """Return whether the last items alone, uncounted, would always show the stored part of this batch."""
    lines = [[*tail, *batch[:count]] for count in range(len(batch) + 1)]
    return bool(tail) and not any(
        _agree(shorter, longer) for index, shorter in enumerate(lines) for longer in lines[index + 1 :]
    )


def stored_count(before: HistoryTail, batch: Sequence[bytes], after: Sequence[bytes]) -> int | None:
    """Count the items of the batch in `after`, behind the earlier items; None in doubt.

    A number between none and all means that exactly those are new: a first part of the batch and nothing else.
    """
    if before.count is not None and 0 <= (count := len(after) - before.count) <= len(batch):
        line = [*before.tail, *batch[:count]]
        if list(after[len(after) - len(line) :]) == line:
            return count
    if before.tail and len(after) >= (len(before.tail) if before.count is None else before.count):
        # Not counted; or the session shows only so many of its last items, and what it shows has moved on.
        fitting = [
            count
            for count in range(len(batch) + 1)
            if (before.count is None or len(after) < before.count + count)
            and _agree([*before.tail, *batch[:count]], after)
        ]
        if fitting:
            return fitting[0] if len(fitting) == 1 else None
    return _among_others(before, batch, after)


def _among_others(before: HistoryTail, batch: Sequence[bytes], after: Sequence[bytes]) -> int | None:
    """Do the same after writes of another writer: only the whole batch or nothing of it is recognised."""
    begin = _end_of_known(before, after)
    new = after[begin or 0 :]
    if not set(batch) & set(new):
        return 0
    size = len(batch)
    if begin is not None and any(list(new[at : at + size]) == list(batch) for at in range(len(new) - size + 1)):
        return size
    return None


def _end_of_known(before: HistoryTail, after: Sequence[bytes]) -> int | None:
    """Return the place in `after` where the earlier items end, if still there."""
    tail, size = list(before.tail), len(before.tail)
    if before.count is not None and len(after) >= before.count:
        return before.count if list(after[before.count - size : before.count]) == tail else None
    ends = [end for end in range(size, len(after) + 1) if size and list(after[end - size : end]) == tail]
    return ends[0] if len(ends) == 1 else None


def _agree(line: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """Return whether the shorter of the two is the end of the longer."""
    size = min(len(line), len(other))
    return list(line[len(line) - size :]) == list(other[len(other) - size :])
