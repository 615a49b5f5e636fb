"""Journal of all frames of all connections, both ways, as on the wire.

The proof of any claim about what is sent is on this side of the socket: a test asserts on the server's journal, not on
what the client believes it sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Literal

Direction = Literal["received", "sent"]
Match = str | Callable[["Frame"], bool]
"""Selection of frames: "any", an event type, or a function of the frame."""

WAIT_S = 30.0
# A test that waits longer waits for something that will not happen.


@dataclass(slots=True)
class Frame:
    """An event on the wire. `number` counts the frames of its direction on its connection, from 0."""

    direction: Direction
    connection: int
    number: int
    type: str
    body: Any
    """The event; the raw text if it is not a JSON object."""
    faults: tuple[str, ...] = ()
    """Faults applied to it."""

    def matches(self, wanted: Match) -> bool:
        """Return whether the frame matches."""
        if callable(wanted):
            return wanted(self)
        return wanted in ("any", self.type)


class Journal:
    """The frames so far, and a way to wait for one. Written in the server's thread, read anywhere."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._waiting: list[Callable[[], None]] = []
        self._lock = Lock()

    def add(self, frame: Frame) -> None:
        """Record a frame, and wake the waiters."""
        with self._lock:
            self._frames.append(frame)
            waiting = list(self._waiting)
        for wake in waiting:
            wake()

    def find(self, wanted: Match = "any", direction: Direction | None = None) -> list[Frame]:
        """Return the matching frames so far, in order."""
        with self._lock:
            frames = list(self._frames)
        return [one for one in frames if direction in (None, one.direction) and one.matches(wanted)]

    async def until(self, wanted: Match, direction: Direction, count: int, timeout_s: float = WAIT_S) -> Frame:
        """Wait until there are so many of them, and give the last."""
        loop, changed = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(changed.set)

        with self._lock:
            self._waiting.append(wake)
        try:
            async with asyncio.timeout(timeout_s):
                while len(found := self.find(wanted, direction)) < count:
                    changed.clear()
                    if len(found := self.find(wanted, direction)) >= count:
                        break
                    await changed.wait()
                return found[count - 1]
        except TimeoutError:
            kinds = [one.type for one in self.find("any", direction)]
            raise AssertionError(
                f"{count} × {wanted!r} was not {direction} within {timeout_s:g} s, but {kinds}"
            ) from None
        finally:
            with self._lock:
                self._waiting.remove(wake)
