"""A server in a thread of its own, with an event loop of its own: base of both loopback servers.

It serves synchronous and asynchronous tests alike and continues when the loop under test is blocked, cancelled or
closed. `stop` (or the end of the `with` block) waits for the thread; nothing is left running.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from threading import Event, Thread
from types import TracebackType
from typing import Self, TypeVar

START_TIMEOUT_S = 30.0
T = TypeVar("T")


class ServedInThread:
    """Base of a server that listens on a free port of 127.0.0.1. A subclass says how in `listen`."""

    def __init__(self, name: str) -> None:
        self._thread_name = name
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._port: int | None = None
        self._begin_error: BaseException | None = None

    def listen(self) -> AbstractAsyncContextManager[int]:
        """Listen, and yield the port. Leaving closes every connection and waits for its tasks."""
        raise NotImplementedError

    def start(self) -> Self:
        """Listen on a free port. Returns when clients can come."""
        if self._thread is not None:
            raise RuntimeError("the loopback server is already running")
        ready = Event()
        self._begin_error = None
        self._thread = Thread(target=lambda: asyncio.run(self._serve(ready)), name=self._thread_name, daemon=True)
        self._thread.start()
        if not ready.wait(START_TIMEOUT_S) or self._begin_error is not None:
            raise RuntimeError("the loopback server could not start") from self._begin_error
        return self

    def stop(self) -> None:
        """Hang up every connection and wait until nothing is left running. Doing so twice does nothing."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        loop, stopping = self._loop, self._stopping
        if loop is not None and stopping is not None:
            loop.call_soon_threadsafe(stopping.set)
        thread.join()
        self._port = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Self:
        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    async def _serve(self, ready: Event) -> None:
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with self.listen() as self._port:
                ready.set()
                await self._stopping.wait()
        except BaseException as error:
            if ready.is_set():
                raise
            self._begin_error = error
            ready.set()

    def port(self) -> int:
        """Port of the server."""
        if self._port is None:
            raise RuntimeError("the loopback server is not running; use it as a context manager or call start()")
        return self._port

    def inside(self, work: Callable[[], T]) -> T:
        """Call a function in the server's thread and return its result; directly if the server is stopped."""
        loop = self._loop
        if self._port is None or loop is None:
            return work()
        outcome: Future[T] = Future()

        def call() -> None:
            try:
                outcome.set_result(work())
            except BaseException as error:
                outcome.set_exception(error)

        loop.call_soon_threadsafe(call)
        return outcome.result(START_TIMEOUT_S)
