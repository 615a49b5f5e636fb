"""Lock for one run at a time on a session object, within this process: for a foreign session in place of a lease."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Generator, Hashable
from types import TracebackType
from typing import Any, ClassVar, Self

from standfast._src.base.errors import SessionBusyError


class TurnLock:
    """A lock for tasks of any event loop and thread of this process, first come first served."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._taken = False
        self._waiting: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()

    async def enter(self, wait_s: float | None = None) -> bool:
        """Acquire the lock, waiting at most `wait_s` (None: for ever); return whether it was acquired."""
        loop = asyncio.get_running_loop()
        with self._guard:
            if not self._taken:
                self._taken = True
                return True
            turn = loop.create_future()
            self._waiting.append((loop, turn))
        try:
            async with asyncio.timeout(wait_s):
                await turn
        except BaseException as error:
            if self._withdraw(loop, turn):
                self.leave()  # it was handed over in the moment of giving up
            if isinstance(error, TimeoutError):
                return False
            raise
        return True

    def leave(self) -> None:
        """Pass the lock to the longest waiter, or release it."""
        with self._guard:
            while self._waiting:
                loop, turn = self._waiting.popleft()
                try:
                    loop.call_soon_threadsafe(self._grant, turn)
                except RuntimeError:
                    continue  # that loop has ended, and its tasks with it
                return
            self._taken = False

    def _grant(self, turn: asyncio.Future[None]) -> None:
        if turn.done():
            self.leave()
        else:
            turn.set_result(None)

    def _withdraw(self, loop: asyncio.AbstractEventLoop, turn: asyncio.Future[None]) -> bool:
        with self._guard:
            handed_over = (loop, turn) not in self._waiting
            if not handed_over:
                self._waiting.remove((loop, turn))
        if turn.done():
            return not turn.cancelled()
        if loop.is_closed():  # the waiter is being collected; what is on its way to it will never arrive
            return handed_over
        turn.cancel()
        return False

    async def __aenter__(self) -> None:
        await self.enter()

    async def __aexit__(self, *_: object) -> None:
        self.leave()


class ProcessLease:
    """Exclusive right of a run of this process to a conversation (C13): `async with`, or `await` and `release`.

    Other processes are not excluded. `what` is the conversation's name for people, `key` for comparing.
    """

    number: ClassVar[int] = 0

    def __init__(self, lock: TurnLock, what: str, wait_s: float | None, key: Hashable = None) -> None:
        self._lock, self._what, self._wait_s, self.key = lock, what, wait_s, key
        self.is_held = False

    async def acquire(self) -> Self:
        """Wait for the lease; raise SessionBusyError if it was not released in time."""
        if not self.is_held:
            if not await self._lock.enter(self._wait_s):
                raise SessionBusyError(
                    f"{self._what} is held by another run of this process and was not given up within {self._wait_s} s",
                    "Wait longer, choose another concurrency policy for the run, or give it a conversation of its own.",
                )
            self.is_held = True
        return self

    async def renew(self) -> None:
        """Do nothing: a lock in this process does not expire."""

    async def release(self) -> None:
        """Release the lease. Releasing twice does nothing."""
        self.release_now()

    def release_now(self) -> None:
        """Give it up, from any thread and without a loop. Doing so twice does nothing."""
        if self.is_held:
            self.is_held = False
            self._lock.leave()

    def __await__(self) -> Generator[Any, Any, Self]:
        return self.acquire().__await__()

    async def __aenter__(self) -> Self:
        return await self.acquire()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()
