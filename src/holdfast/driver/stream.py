"""Watching a run: a buffer between the driver, which never waits for a watcher, and whoever iterates.

Leaving the iteration does not stop the run. Between turns the driver waits until a watcher that is there has taken what
was shown, so that `cancel("after_turn")`, said while handling a turn's last event, comes before the next request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any


class Watch:
    """What a driver shows and a watcher takes."""

    def __init__(self) -> None:
        self._events: deque[Any] = deque()
        self._wake: asyncio.Event = asyncio.Event()
        self._taken: asyncio.Event = asyncio.Event()
        self._watchers = 0
        self.ended = False

    def show(self, event: Any) -> None:
        """Offer an event. Never waits."""
        self._events.append(event)
        self._wake.set()

    def end(self) -> None:
        """Nothing more will be shown."""
        self.ended = True
        self._wake.set()

    def discard(self) -> None:
        """Drop what nobody has taken yet."""
        self._events.clear()
        self._taken.set()

    async def next(self) -> Any | None:
        """The next event; None after the last one."""
        while not self._events:
            self._taken.set()
            if self.ended:
                return None
            self._wake.clear()
            await self._wake.wait()
        return self._events.popleft()

    async def taken(self) -> None:
        """Wait until a watcher, if there is one, has come back for more than was shown."""
        while self._watchers and self._events and not self.ended:
            self._taken.clear()
            await self._taken.wait()
        if self._watchers and not self._taken.is_set() and not self.ended:
            await self._taken.wait()

    def __enter__(self) -> Watch:
        self._watchers += 1
        self._taken.clear()
        return self

    def __exit__(self, *_: object) -> None:
        self._watchers -= 1
        self._taken.set()
