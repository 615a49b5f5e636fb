"""Watching a run: a buffer between the driver, which never waits for a watcher, and whoever iterates.

Leaving the iteration does not stop the run. Between turns the driver gives a watcher that is there the time to come
back for more, so that `cancel("after_turn")`, said while handling a turn's last event, takes effect before the next
request.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

POLITENESS_S = 30.0
# A watcher that holds its iterator and does not come back must not stop the run for ever.


class Watch:
    """What a driver shows and a watcher takes."""

    def __init__(self) -> None:
        self.events: deque[Any] = deque()
        self._wake = asyncio.Event()
        self._taken = asyncio.Event()
        self._watchers = 0
        self._waiting = 0
        self.ended = False

    def show(self, event: Any) -> None:
        """Offer an event. Never waits."""
        self.events.append(event)
        if self._waiting:
            self._wake.set()

    def end(self) -> None:
        """Nothing more will be shown."""
        self.ended = True
        self._wake.set()
        self._taken.set()

    def discard(self) -> None:
        """Drop what nobody has taken yet."""
        self.events.clear()
        self._wake.set()
        self._taken.set()

    async def next(self) -> Any | None:
        """The next event; None after the last one."""
        while not self.events:
            if self.ended:
                return None
            self._waiting += 1
            self._wake.clear()
            self._taken.set()
            try:
                await self._wake.wait()
            finally:
                self._waiting -= 1
        return self.events.popleft()

    async def taken(self) -> None:
        """Wait until a watcher, if there is one, has handled everything that was shown."""
        if not self._watchers:
            return
        try:
            async with asyncio.timeout(POLITENESS_S):
                while self._watchers and not self.ended and not (self._waiting and not self.events):
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:
            return

    def arrive(self) -> None:
        """A watcher is here."""
        self._watchers += 1

    def leave(self) -> None:
        """A watcher is gone."""
        self._watchers -= 1
        self._taken.set()
