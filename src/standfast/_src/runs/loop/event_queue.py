"""Queue of a run's events, between the loop, which never waits for a watcher, and the iterating watcher.

Leaving the iteration does not stop the run, and neither does a slow watcher: events not yet taken wait here.
"""

from __future__ import annotations

import asyncio
from collections import deque

from standfast._src.items.stream_events import StreamEvent


class EventQueue:
    """Queue of events between a run and its watchers."""

    def __init__(self) -> None:
        self.events: deque[StreamEvent] = deque()
        self._wake = asyncio.Event()
        self._waiting = 0
        self._is_asleep = False
        """True if a reader waits and was not woken yet: of several events shown at once, the first one wakes it."""
        self.ended = False

    def show(self, event: StreamEvent) -> None:
        """Offer an event. Never waits."""
        self.events.append(event)
        if self._is_asleep:
            self._is_asleep = False
            self._wake.set()

    def end(self) -> None:
        """Mark the end: no further event will come."""
        self.ended = True
        self._wake.set()

    def discard(self) -> None:
        """Drop all events not yet taken."""
        self.events.clear()
        self._wake.set()

    async def next(self) -> StreamEvent | None:
        """Return the next event, or None after the last one."""
        while not self.events:
            if self.ended:
                return None
            self._waiting += 1
            self._is_asleep = True
            self._wake.clear()
            try:
                await self._wake.wait()
            finally:
                self._waiting -= 1
        return self.events.popleft()

    async def give_way(self) -> None:
        """Let a waiting watcher handle the present events, as far as it does so without waiting itself.

        So `cancel("after_turn")`, called on a turn's last event, comes before the next request. It costs one iteration
        of the event loop and no time: a slow watcher must never slow the run, so there is no wait here.
        """
        # Only a watcher that is waiting will look in this very round; any other is busy, and the run goes on.
        if self._waiting and self.events:
            await asyncio.sleep(0)
