"""Choice of the items that a conversation takes along to another owner, with a report of the items left behind.

Two kinds of items stay behind. A call without its output, and an output without its call, would make every later
request invalid. And a store may not be able to keep an item at all; it says so before anything is written, if it has a
`refuses` method. Items that a store keeps in another form (a server writes text as parts) are compared by meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from standfast._src.base.errors import StoreError
from standfast._src.base.json_values import Item
from standfast._src.items.history import is_call, prune
from standfast._src.models.outcome_query import alike


@dataclass(frozen=True, slots=True)
class NotCarried:
    """An item left behind, its place in the source, and the reason."""

    index: int
    item: Item
    reason: str


class HistoryReader(Protocol):
    """A session of any origin for reading: the SDK's sessions declare another item type."""

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The latest `limit` items, oldest first."""
        ...


class HistoryWriter(HistoryReader, Protocol):
    """A session of any origin for writing."""

    async def add_items(self, items: list[Any]) -> None:
        """Append a batch, in order."""
        ...


def select_carried(
    items: Sequence[Item], refuses: Callable[[Item], str | None] | None, refused: Mapping[int, str] | None = None
) -> tuple[list[int], list[NotCarried]]:
    """Return the places of the items to copy, and the items to leave behind; `refused` has known refusals."""
    said = {index: reason for index, item in enumerate(items) if refuses and (reason := refuses(item)) is not None}
    refused = {**said, **(refused or {})}
    candidates = [index for index in range(len(items)) if index not in refused]
    _, left_out = prune([items[index] for index in candidates])
    dropped = {id(one.item): one.reason for one in left_out}
    reasons = refused | {index: dropped[id(items[index])] for index in candidates if id(items[index]) in dropped}
    reasons |= dict.fromkeys(_find_orphaned_reasoning(items, reasons), "what it was reasoned for stays behind")
    left = [NotCarried(index, items[index], reason) for index, reason in sorted(reasons.items())]
    return [index for index in candidates if index not in reasons], left


def _find_orphaned_reasoning(items: Sequence[Item], left: Mapping[int, str]) -> list[int]:
    """Return the places of reasoning whose followers all stay behind; a provider refuses it alone."""
    alone = []
    for index, item in enumerate(items):
        if item.get("type") != "reasoning" or index in left:
            continue
        behind = index + 1
        while behind < len(items) and items[behind].get("type") == "reasoning":
            behind += 1
        end = behind + 1
        while behind < len(items) and is_call(items[behind]) and end < len(items) and is_call(items[end]):
            end += 1
        if behind < len(items) and all(place in left for place in range(behind, end)):
            alone.append(index)
    return alone


def find_reworded(items: Sequence[Item], carried: Sequence[int], after: Sequence[Item]) -> tuple[int, ...]:
    """Return the places of items shown in another form; raise StoreError if the target shows different items."""
    if len(after) != len(carried):
        raise StoreError(
            f"the target shows {len(after)} items after a copy of {len(carried)}",
            "Another program may be writing to it: look at it, and move again to an empty one.",
        )
    strange = [index for index, shown in zip(carried, after, strict=True) if not alike(items[index], shown)]
    if strange:
        raise StoreError(
            f"the target shows something else for the items {strange}", "Do not use the copy; the source is unchanged."
        )
    return tuple(index for index, shown in zip(carried, after, strict=True) if items[index] != shown)
