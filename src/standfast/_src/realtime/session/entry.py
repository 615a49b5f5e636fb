"""The entry of a voice session: one task of its own, which closing the session cancels and awaits (E1, E3)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from standfast._src.base.aio import side_by_side
from standfast._src.base.errors import RealtimeStateError


class Entering:
    """The entry under way, if there is one."""

    def __init__(self) -> None:
        self._task: asyncio.Future[None] | None = None

    async def run(self, work: Coroutine[Any, Any, None]) -> None:
        """Do this in a task of its own. Cancelling the caller cancels it and waits for it."""
        (self._task,) = side_by_side([work])
        await self._task

    def owns(self, task: asyncio.Task[Any] | None) -> bool:
        """Whether this task is the entry."""
        return task is not None and task is self._task

    async def stop(self, timeout_s: float) -> list[str]:
        """Cancel the entry and wait for its end, at most so long; its name if it runs even then."""
        task = self._task
        if task is None or task.done():
            return []
        task.cancel()
        await asyncio.wait([task], timeout=timeout_s)
        return [] if task.done() else ["the entry"]


def closed_while_connecting() -> RealtimeStateError:
    """Build the error for the caller of `enter` whose session another task, or code of the entry, has closed."""
    return RealtimeStateError("this session was closed while connecting", "Make a new one with RealtimeRunner.run().")
