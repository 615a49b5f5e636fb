"""Watching a run: a buffer between the loop, which never waits for a watcher, and whoever iterates.

Leaving the iteration does not stop the run, and neither does being slow: what nobody has taken yet waits here.
"""

from __future__ import annotations

import asyncio
from collections import deque

from standfast._src.items.stream_events import StreamEvent


class EventQueue:
    """What a run shows and a watcher takes."""

    def __init__(self) -> None:
        self.events: deque[StreamEvent] = deque()
        self._wake = asyncio.Event()
        self._waiting = 0
        self._is_asleep = False
        """Whether somebody waits who has not been told yet: of many events shown at once the first one tells."""
        self.ended = False

    def show(self, event: StreamEvent) -> None:
        """Offer an event. Never waits."""
        self.events.append(event)
        if self._is_asleep:
            self._is_asleep = False
            self._wake.set()

    def end(self) -> None:
        """Nothing more will be shown."""
        self.ended = True
        self._wake.set()

    def discard(self) -> None:
        """Drop what nobody has taken yet."""
        self.events.clear()
        self._wake.set()

    async def next(self) -> StreamEvent | None:
        """The next event; None after the last one."""
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
        """Let a watcher that waits for events handle what is there, as far as it does so without waiting itself.

        So `cancel("after_turn")`, said on a turn's last event, comes before the next request. It costs one round of the
        event loop and no time: a watcher that is slow must never slow the run, so nothing here is waited for.
        """
        # Only a watcher that is waiting will look in this very round; any other is busy, and the run goes on.
        if self._waiting and self.events:
            await asyncio.sleep(0)
