"""Methods of a stored session for people: records, search, lease holder, origin and cost.

Apart from `StoredSession`, which is what runs use: everything here only reads.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from standfast._src.base.durations import check_seconds
from standfast._src.base.errors import CallerError, InvalidLimitError
from standfast._src.sessions.protocol import page_size
from standfast._src.sessions.records import Holder, Origin, Record, RecordPage, RunUsage, SearchPage
from standfast._src.sessions.rules import inspection
from standfast._src.sessions.storage import Name, Plan

T = TypeVar("T")

WATCHED_AT_ONCE = 256
# How many records a watcher reads at a time when it is far behind.


class InspectionMethods(ABC):
    """Abilities that show a stored conversation to people, for a session that can execute a plan."""

    _name: Name

    @abstractmethod
    def _read(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        """Execute a plan that only reads."""

    def looked(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        """Return the result of a plan that only reads; for tools whose question has no method."""
        return self._read(plan)

    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        """Return the `limit` records before a cursor, or after one ("": from the start); with neither, the latest
        (B11).

        Raises SessionConflictError for a cursor whose history was replaced or cleared since.
        """
        limit = check_page(limit)
        if before is not None and after is not None:
            raise CallerError("a page is before one cursor or after one, not both", "Give `before` or `after`.")
        return await self._read(partial(inspection.records, self._name, before, after, limit))

    async def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        """Yield each record after a cursor (None: from now on) as it is written, while the caller iterates (B12).

        The store is asked every `poll_s` seconds, by one small read. Raises SessionConflictError when the history is
        replaced or cleared: records already yielded are then no longer stored.
        """
        check_seconds("poll_s of a watch", poll_s, is_ttl=True)
        if after is None:
            after = (await self.records(limit=1)).after
        while True:
            page = await self.records(after=after, limit=WATCHED_AT_ONCE)
            for record in page.records:
                yield record
            after = page.after
            if page.is_newest:
                await asyncio.sleep(poll_s)

    async def search(self, text: str, *, after: str | None = None, limit: int = 50) -> SearchPage:
        """Return the newest records that contain these words, ignoring case and white space (B13).

        Reads the history from its end, at most some twenty thousand records at a time. A page may therefore have few
        hits or none, and `after` continues behind it.
        """
        return await self._read(partial(inspection.search, self._name, checked_words(text), after, check_page(limit)))

    async def holder(self) -> Holder | None:
        """Return the holder of the session's lease and the expiry by the store's clock, or None (B14)."""
        return await self._read(partial(inspection.holder, self._name))

    async def origin(self) -> Origin | None:
        """Return the session and position this session was forked from; None without a fork (B14)."""
        return await self._read(partial(inspection.origin, self._name))

    async def usage(self) -> list[RunUsage]:
        """Return the cost of each run on this session, oldest first. Pruning runs keeps it; a clear removes it
        (B15).
        """
        return await self._read(partial(inspection.usage, self._name))


def check_page(limit: int) -> int:
    """Return the limit of a page that carries a cursor: at least one."""
    size = page_size(limit)
    if not size:
        raise InvalidLimitError("a page of nothing says nothing", "Give a limit of 1 or more.")
    return size


def checked_words(text: object) -> str:
    """Return the words to search for."""
    if not isinstance(text, str) or not text.strip():
        raise CallerError(f"{text!r} holds no words to look for", "Give a text of at least one letter.")
    return text
