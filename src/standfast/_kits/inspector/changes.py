"""News of a store, polled once for all open pages.

Each watched session has one `Channel`. It polls the store at a fixed rate for any number of open pages, and keeps the
latest records. A returning page gives the cursor of its last record and gets the records since; after a longer absence
it reads the store itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Literal

from standfast._kits.operators.store import Store
from standfast._src.base.errors import SessionConflictError, StandfastError
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.records import Record

POLL_S = 0.25
"""How long between two looks for records: four a second for each session that is watched."""
RUNS_EVERY = 4
"""Each how many looks the session's runs are looked at too: once a second."""
KEPT = 1000
"""How many records a channel keeps for pages that come back."""
PAGE = 200


@dataclass(frozen=True, slots=True)
class News:
    """One piece of news: a record; the session's runs; or a replaced, cleared or unreadable history."""

    kind: Literal["record", "runs", "replaced", "unreadable"]
    record: Record | None = None
    why: str = ""


class Channel:
    """News of one session, as long as it has listeners."""

    def __init__(self, store: Store, session_id: str) -> None:
        self._store, self._session_id = store, session_id
        self._news: deque[News] = deque(maxlen=KEPT)
        self._count = 0  # how many there have been, dropped ones included
        self._cursors: dict[str, int] = {}  # cursor of a kept record to the number of the news behind it
        self._changed = asyncio.Event()
        self._started = asyncio.Event()
        self._runs: tuple[tuple[str, str, int], ...] | None = None
        self.looks = 0
        self.listeners = 0
        self.task: asyncio.Task[None] | None = None

    async def follow(self) -> None:
        """Poll for news until cancelled. An unreadable store is reported, and polled again."""
        session = self._store.session(self._session_id)
        cursor: str | None = None
        try:
            while True:
                try:
                    cursor = await self._look(session, cursor)
                except SessionConflictError as error:
                    self._tell(News("replaced", why=str(error)))
                    cursor = None
                except StandfastError as error:
                    self._tell(News("unreadable", why=str(error)))
                self._started.set()
                await asyncio.sleep(POLL_S)
        finally:
            await session.close()

    async def _look(self, session: StoredSession, cursor: str | None) -> str:
        self.looks += 1
        page = await session.records(limit=1) if cursor is None else await session.records(after=cursor, limit=PAGE)
        if cursor is None:  # from now on: what is there already was read with the page
            self._cursors[page.after] = self._count
        else:
            for record in page.records:
                self._tell(News("record", record))
        if self.looks % RUNS_EVERY == 1:
            runs = (await self._store.runs(session_id=self._session_id, limit=20)).runs
            seen = tuple((run.run_id, run.status, run.revision) for run in runs)
            if self._runs is not None and seen != self._runs:
                self._tell(News("runs"))
            self._runs = seen
        return page.after

    def _tell(self, news: News) -> None:
        if len(self._news) == self._news.maxlen:
            gone = self._count - len(self._news)
            self._cursors = {cursor: place for cursor, place in self._cursors.items() if place > gone}
        self._news.append(news)
        self._count += 1
        if news.record is not None:
            self._cursors[news.record.cursor] = self._count
        self._changed.set()
        self._changed = asyncio.Event()

    async def listen(self, after: str | None) -> AsyncIterator[News]:
        """Yield all news behind a cursor (None: from now on) while the caller iterates."""
        await self._started.wait()
        place = self._count if after is None else self._cursors.get(after)
        while place is None and after is not None:  # it was away for longer than the channel remembers
            session = self._store.session(self._session_id)
            try:
                page = await session.records(after=after, limit=PAGE)
            except SessionConflictError as error:
                yield News("replaced", why=str(error))
                return
            finally:
                await session.close()
            for record in page.records:
                yield News("record", record)
            after = page.after
            place = self._cursors.get(after)
            if place is None and page.is_newest:
                await self._changed.wait()  # the channel has not come to it yet
        assert place is not None
        while True:
            first = self._count - len(self._news)
            if place < first:  # it reads more slowly than things happen: it must come back with its cursor
                return
            while place < self._count:
                news = self._news[place - (self._count - len(self._news))]
                place += 1
                yield news
                if place < self._count - len(self._news):
                    return
            await self._changed.wait()


class Watching:
    """Channels of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.channels: dict[str, Channel] = {}

    async def listen(self, session_id: str, after: str | None) -> AsyncIterator[News]:
        """Yield the news of a session behind a cursor; the store is polled once for all listeners."""
        channel = self.channels.get(session_id)
        if channel is None:
            channel = self.channels[session_id] = Channel(self._store, session_id)
            channel.task = asyncio.create_task(channel.follow(), name=f"watch {session_id!r}")
        channel.listeners += 1
        try:
            async for news in channel.listen(after):
                yield news
        finally:
            channel.listeners -= 1
            if not channel.listeners:
                self.channels.pop(session_id, None)
                await _cancel_task(channel)

    async def close(self) -> None:
        """Stop looking."""
        channels, self.channels = list(self.channels.values()), {}
        for channel in channels:
            await _cancel_task(channel)


async def _cancel_task(channel: Channel) -> None:
    if channel.task is not None:
        channel.task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.shield(asyncio.gather(channel.task, return_exceptions=True))
