"""What a stored session shows people: records, search, who holds it, where it came from, what it cost.

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
    """The abilities that show a stored conversation to people, for a session that can carry out a plan."""

    _name: Name

    @abstractmethod
    def _read(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        """Carry out a plan that only looks."""

    def looked(self, plan: Callable[[], Plan[T]]) -> Coroutine[Any, Any, T]:
        """The result of a plan that only looks; for tools that ask what no method does."""
        return self._read(plan)

    async def records(self, *, before: str | None = None, after: str | None = None, limit: int = 50) -> RecordPage:
        """The `limit` records before a cursor, or behind one ("": from the start); with neither, the latest (B11).

        Raises SessionConflictError for a cursor whose history was replaced or cleared since.
        """
        limit = check_page(limit)
        if before is not None and after is not None:
            raise CallerError("a page is before one cursor or after one, not both", "Give `before` or `after`.")
        return await self._read(partial(inspection.records, self._name, before, after, limit))

    async def watch(self, *, after: str | None = None, poll_s: float = 0.25) -> AsyncIterator[Record]:
        """Every record behind that cursor (None: from now on), as it is written, while somebody iterates (B12).

        The store is asked every `poll_s` seconds, by one small look. Raises SessionConflictError when the history is
        replaced or cleared: what was seen is no longer what is there.
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
        """The newest records that hold these words, in any case and any white space (B13).

        It reads the history from its end, at most some twenty thousand records at a time: a page may have few hits, or
        none, and `after` goes on behind it.
        """
        return await self._read(partial(inspection.search, self._name, checked_words(text), after, check_page(limit)))

    async def holder(self) -> Holder | None:
        """Who holds this session's lease and until when, by the store's clock; None if nobody does (B14)."""
        return await self._read(partial(inspection.holder, self._name))

    async def origin(self) -> Origin | None:
        """What this session was forked from; None if it was not (B14)."""
        return await self._read(partial(inspection.origin, self._name))

    async def usage(self) -> list[RunUsage]:
        """What each run on this session cost, oldest first; it stays when runs are pruned, until a clear (B15)."""
        return await self._read(partial(inspection.usage, self._name))


def check_page(limit: int) -> int:
    """The limit of a page of which each part tells where the next one begins: at least one."""
    size = page_size(limit)
    if not size:
        raise InvalidLimitError("a page of nothing says nothing", "Give a limit of 1 or more.")
    return size


def checked_words(text: object) -> str:
    """The words to look for."""
    if not isinstance(text, str) or not text.strip():
        raise CallerError(f"{text!r} holds no words to look for", "Give a text of at least one letter.")
    return text
