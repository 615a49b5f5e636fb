"""Copy of a conversation from one owner to another, with a report of the items left behind.

`copy_history` reads one session whole and appends it to another: from a local session to a server's conversation
(`OpenAIConversationsSession`), back, or between any two. Nothing is changed at the source, so a move that fails, or has
an unwelcome report, has cost nothing. Afterwards use one of the two: a conversation has one owner.

Two kinds of items stay behind. A call without its output, and an output without its call, would make every later
request invalid. And a store may not be able to keep an item at all; it says so before anything is written, if it has a
`refuses` method. Items that a store keeps in another form (a server writes text as parts) are compared by meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from standfast._src.base.errors import StoreError, UserError
from standfast._src.base.json_values import Item, copy_json
from standfast._src.items.history import is_call, prune
from standfast._src.models.outcome_query import alike
from standfast._src.sessions.protocol import NO_LIMIT


@dataclass(frozen=True, slots=True)
class NotCarried:
    """An item left behind, its place in the source, and the reason."""

    index: int
    item: Item
    reason: str


@dataclass(frozen=True, slots=True)
class CopyReport:
    """Result of a copy: number of copied items, items left behind, and items that the target keeps in another form."""

    copied: int
    not_carried: tuple[NotCarried, ...] = ()
    reworded: tuple[int, ...] = ()
    """Places in the source of items that the target shows in another form, with the same meaning."""


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


async def copy_history(source: HistoryReader, target: HistoryWriter, *, into_existing: bool = False) -> CopyReport:
    """Append all items of `source` to `target`, in order, as one batch.

    A target that has items already is refused, unless `into_existing`. Raises StoreError if the target does not show
    the given items afterwards; the source is never changed.
    """
    before = await target.get_items(limit=NO_LIMIT)
    if before and not into_existing:
        raise UserError(
            f"the target has {len(before)} items already, and a copy would be appended to them",
            "Copy to an empty session, or say into_existing=True.",
        )
    items = [copy_json(item) for item in await source.get_items(limit=NO_LIMIT)]
    carried, left = carried_of(items, getattr(type(target), "refuses", None))
    await target.add_items([copy_json(items[index]) for index in carried])
    after = (await target.get_items(limit=NO_LIMIT))[len(before) :]
    return CopyReport(len(carried), tuple(left), reworded_of(items, carried, after))


def carried_of(
    items: Sequence[Item], refuses: Callable[[Item], str | None] | None, refused: Mapping[int, str] | None = None
) -> tuple[list[int], list[NotCarried]]:
    """Return the places of the items to copy, and the items to leave behind with reasons; `refused` has
    known refusals.
    """
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


def reworded_of(items: Sequence[Item], carried: Sequence[int], after: Sequence[Item]) -> tuple[int, ...]:
    """Return the places of items shown in another form; raise StoreError if the target shows different items."""
    if len(after) != len(carried):
        raise StoreError(
            f"the target shows {len(after)} items after a copy of {len(carried)}",
            "Somebody else may be writing to it: look at it, and copy again to an empty one.",
        )
    strange = [index for index, shown in zip(carried, after, strict=True) if not alike(items[index], shown)]
    if strange:
        raise StoreError(
            f"the target shows something else for the items {strange}", "Do not use the copy; the source is unchanged."
        )
    return tuple(index for index, shown in zip(carried, after, strict=True) if items[index] != shown)
