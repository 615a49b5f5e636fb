"""Facts about a stored conversation besides its items, for people and tools, and the abilities that return them.

An item is input of a model. A record is the item as stored: its place, its time, its writer and its number among the
writer's items, and the generation it replaced.
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
    """Stored record. `cursor` is its place: the pages before and after it are requested by cursor (B11)."""

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
    """A record that contains the searched words, and the line around them."""

    session_id: str
    record: Record
    excerpt: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """A page of hits, newest first; `after` continues the search behind them, None at its end (B13)."""

    hits: list[Hit]
    after: str | None


@dataclass(frozen=True, slots=True)
class Holder:
    """Holder of a session's lease, by the store's clock (B14)."""

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
    """Origin of a fork (B14)."""

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
    """Cost of a model's reply: tokens, including the failed attempts before the reply."""

    turn: int
    usage: Usage
    model: str | None = None
    agent: str | None = None
    is_nested: bool = False
    """Whether an agent that was used as a tool asked for it."""


@dataclass(frozen=True, slots=True)
class RunUsage:
    """Usage of a run on a session (B15)."""

    run_id: str
    at: datetime
    """When the latest of it was kept."""
    requests: tuple[RequestCost, ...] = field(default=())

    @property
    def total(self) -> Usage:
        """Return the sum over all requests."""
        return sum_usages([one.usage for one in self.requests])

    @property
    def turns(self) -> dict[int, Usage]:
        """Return the sum of each turn, by its number."""
        numbers = dict.fromkeys(one.turn for one in self.requests)
        return {number: sum_usages([one.usage for one in self.requests if one.turn == number]) for number in numbers}


def sum_usages(parts: list[Usage]) -> Usage:
    """Add up several usages in a new one."""
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
    """B12: live updates behind a cursor."""

    def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        """Yield every record behind a cursor (None: from now on), as long as the caller iterates."""
        ...


@runtime_checkable
class CanSearch(Protocol):
    """B13: finding words."""

    async def search(self, text: str, *, after: str | None = None, limit: int = 50) -> SearchPage:
        """Return the newest records that contain these words, ignoring case."""
        ...


@runtime_checkable
class KnowsHolder(Protocol):
    """B14: holder of the session."""

    async def holder(self) -> Holder | None:
        """Return the holder of the lease, or None."""
        ...


@runtime_checkable
class KnowsOrigin(Protocol):
    """B14: origin of a fork."""

    async def origin(self) -> Origin | None:
        """Return the origin of a forked session, else None."""
        ...


@runtime_checkable
class KeepsUsage(Protocol):
    """B15: usage of runs, kept with the conversation."""

    async def usage(self) -> list[RunUsage]:
        """Return the usage of each run, oldest first."""
        ...
