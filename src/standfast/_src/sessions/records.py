"""What people and tools see of a stored conversation besides its items, and the abilities that show it.

An item is what a model is sent. A record is the item as it stands in the store: where, since when, written by whom and
as which of theirs, and what it replaced.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from standfast._src.base.json_values import Item
from standfast._src.items.usage import Usage


@dataclass(frozen=True, slots=True)
class Record:
    """One stored record. `cursor` is its place: pages before and after it are asked for with it (B11)."""

    cursor: str
    item: Item | None
    """None for a record that is no JSON object; `fault` says why (A14)."""
    at: datetime | None
    """When it was written, as exactly as the store knows it; None where it does not. One that was moved by a
    compaction or an undo may have the time of the move."""
    writer: str | None
    """Who wrote it: a run's id, or the name given to `append`. None: `add_items`, or another program."""
    number: int | None
    """Its number among that writer's items, from 0 on."""
    replaces: str | None = None
    """The generation that it stands in for."""
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class RecordPage:
    """Some records in chronological order (B11)."""

    records: list[Record]
    before: str | None
    """Asks for the page before this one; None if this is the first."""
    after: str
    """Asks for what comes behind this page: now, or when it is written."""
    is_newest: bool
    """Whether there was nothing behind this page when it was read."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that holds the words that were looked for, and the line around them."""

    session_id: str
    record: Record
    excerpt: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Some hits, newest first; `after` goes on looking behind them, None if all was looked at (B13)."""

    hits: list[Hit]
    after: str | None


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a session's lease, by the store's clock (B14)."""

    name: str
    """For people: host, process and run."""
    since: datetime
    until: datetime
    """When it ends unless it is renewed; a run that lives renews it."""
    number: int
    waiting: int
    """How many wait for it."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a fork came from (B14)."""

    session_id: str
    index: int
    """How many items it began with."""
    generation: str | None
    """The kept generation they were taken from; None: the history as it was."""
    at: datetime
    by: str | None = None
    """Who made the fork, where they said so."""


@dataclass(frozen=True, slots=True)
class RequestCost:
    """What one reply of a model cost: its tokens, those of attempts that failed before it included."""

    turn: int
    usage: Usage
    model: str | None = None
    agent: str | None = None
    is_nested: bool = False
    """Whether an agent that was used as a tool asked for it."""


@dataclass(frozen=True, slots=True)
class RunUsage:
    """What one run on a session has cost (B15)."""

    run_id: str
    at: datetime
    """When the latest of it was kept."""
    requests: tuple[RequestCost, ...] = field(default=())

    @property
    def total(self) -> Usage:
        """All of it."""
        return sum_usages([one.usage for one in self.requests])

    @property
    def turns(self) -> dict[int, Usage]:
        """The sum of each turn, by its number."""
        numbers = dict.fromkeys(one.turn for one in self.requests)
        return {number: sum_usages([one.usage for one in self.requests if one.turn == number]) for number in numbers}


def sum_usages(parts: list[Usage]) -> Usage:
    """The sum of several usages, as one of its own."""
    total = Usage()
    for part in parts:
        total.add(part)
    return total


# --- abilities -------------------------------------------------------------------------------------------------------


@runtime_checkable
class CanReadRecords(Protocol):
    """B11: records in pages, in both directions."""

    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        """The `limit` records before a cursor, or behind one ("": from the start); with neither, the latest."""
        ...


@runtime_checkable
class CanWatch(Protocol):
    """B12: what comes after a cursor, as it comes."""

    def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        """Every record behind that cursor (None: from now on), for as long as somebody iterates."""
        ...


@runtime_checkable
class CanSearch(Protocol):
    """B13: finding words."""

    async def search(self, text: str, *, after: str | None = None, limit: int = 50) -> SearchPage:
        """The newest records that hold these words, in any case."""
        ...


@runtime_checkable
class KnowsHolder(Protocol):
    """B14: who has the session."""

    async def holder(self) -> Holder | None:
        """Who holds the lease and until when; None if nobody does."""
        ...


@runtime_checkable
class KnowsOrigin(Protocol):
    """B14: where a fork came from."""

    async def origin(self) -> Origin | None:
        """What this session was forked from; None if it was not."""
        ...


@runtime_checkable
class KeepsUsage(Protocol):
    """B15: what runs cost stays with the conversation."""

    async def usage(self) -> list[RunUsage]:
        """What each run cost, oldest first."""
        ...
