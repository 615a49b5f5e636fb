"""Entry into a voice session: a task of its own, cancelled and awaited by closing (E1, E3)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from standfast._src.base.aio import side_by_side
from standfast._src.base.errors import RealtimeStateError


class Entering:
    """The entry under way, if any."""

    def __init__(self) -> None:
        self._task: asyncio.Future[None] | None = None

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run the entry in its own task. Cancelling the caller cancels and awaits the task."""
        (self._task,) = side_by_side([work])
        await self._task

    def owns(self, task: asyncio.Task[Any] | None) -> bool:
        """Return whether a task is the entry."""
        return task is not None and task is self._task

    async def stop(self, timeout_s: float) -> list[str]:
        """Cancel the entry and wait until the timeout; return its name if still running."""
        task = self._task
        if task is None or task.done():
            return []
        task.cancel()
        await asyncio.wait([task], timeout=timeout_s)
        return [] if task.done() else ["the entry"]


def closed_while_connecting() -> RealtimeStateError:
    """Build the error for a caller of `enter` whose session was closed by another task, or by code of the entry."""
    return RealtimeStateError("this session was closed while connecting", "Make a new one with RealtimeRunner.run().")
