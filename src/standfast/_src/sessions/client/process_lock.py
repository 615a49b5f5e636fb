"""A lock for any task of this process, in any thread and event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Self

POLL_S = 0.005
# Any thread and loop may use a session; asking again is simpler than a queue of waiters whose loops may have ended.


class ProcessLock:
    """`async with` it to enter alone. A cancelled waiter leaves nothing behind."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> Self:
        while not self._lock.acquire(blocking=False):  # noqa: ASYNC110 — an Event would belong to one loop
            await asyncio.sleep(POLL_S)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._lock.release()
