"""Worker threads for sync tools, abandoned instead of joined.

A thread cannot be stopped, so a cancelled call is abandoned: its thread continues, and its result is dropped. Hence not
the event loop's own executor: its threads are few (one stuck call takes a place for good, a few make every later tool
wait) and are joined at exit (a stuck call hangs the program). These threads are daemons, there are as many as
concurrent calls, and an idle one is used again before a new one is started.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

IDLE_S_MAX = 10.0
# A thread costs some 50 µs to start and a stack to keep: long enough for the next turn, short enough to be gone after.

LOOK_EVERY_S = 0.01
# A thread that ends wakes no waiter for all of them; polling costs nothing for the seconds it may take.

_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]


def run_in_thread(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[T]:
    """Run a function in a worker thread, in a copy of the caller's context; await the future for its result.

    Cancelling the future abandons the call: the thread continues, and its result is dropped.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()
    work: Callable[[], T] = partial(context.run, function, *args, **kwargs)
    watch = WATCH.get()
    _pool.start(
        (loop, future, work if watch is None else watch.watch_work(work, getattr(function, "__name__", "a tool")))
    )
    return future


class ThreadWatch:
    """Register of calls running in threads. Closing code cannot stop them, but can wait and report."""

    def __init__(self) -> None:
        self._running: dict[object, str] = {}

    def watch_work(self, work: Callable[[], T], name: str) -> Callable[[], T]:
        """Count work as running from now until its end."""
        token = object()
        self._running[token] = name

        def run_watched() -> T:
            try:
                return work()
            finally:
                del self._running[token]

        return run_watched

    async def wait_until_idle(self, timeout_s: float) -> list[str]:
        """Wait for running calls until the timeout; return the names of those still running."""
        deadline = asyncio.get_running_loop().time() + timeout_s
        while self._running and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  # threads set no events
            await asyncio.sleep(LOOK_EVERY_S)
        return sorted(self._running.copy().values())


WATCH: contextvars.ContextVar[ThreadWatch | None] = contextvars.ContextVar("standfast_thread_watch", default=None)
"""Watch of the threads started in this context; None unless an owner sets it."""


class _Pool:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all threads: a forked child has no other thread."""
        self.lock = threading.Lock()
        self.idle: list[_Worker] = []

    def start(self, job: _Job) -> None:
        with self.lock:
            worker = self.idle.pop() if self.idle else None
        if worker is None:
            worker = _Worker(self)
            worker.start()
        worker.jobs.put(job)

    def rest(self, worker: _Worker) -> None:
        with self.lock:
            self.idle.append(worker)

    def retire(self, worker: _Worker) -> bool:
        """Remove an idle worker; return False if it was just assigned a job."""
        with self.lock:
            if worker in self.idle:
                self.idle.remove(worker)
                return True
            return False


class _Worker(threading.Thread):
    def __init__(self, pool: _Pool) -> None:
        super().__init__(name="standfast-tool", daemon=True)
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        self.pool = pool

    def run(self) -> None:
        while True:
            try:
                job = self.jobs.get(timeout=IDLE_S_MAX)
            except Empty:
                if self.pool.retire(self):
                    return
                continue
            self._do(job)
            del job  # an idle thread must not keep a caller's objects alive

    def _do(self, job: _Job) -> None:
        loop, future, function = job
        result: Any = None
        error: BaseException | None = None
        try:
            result = function()
        except StopIteration as stop:  # a future cannot carry it: it would look like the end of an await
            error = RuntimeError("a tool raised StopIteration")
            error.__cause__ = stop
        except BaseException as raised:  # whatever it is, it belongs to the caller
            error = raised
        self.pool.rest(self)  # before the caller wakes up, so that its next call finds this thread
        try:
            loop.call_soon_threadsafe(_deliver, future, result, error)
        except RuntimeError:
            pass  # the loop is closed: no caller is waiting
        finally:
            error = None  # the traceback holds this frame: without this they would hold each other


def _deliver(future: asyncio.Future[Any], result: object, error: BaseException | None) -> None:
    if future.done():
        return  # the call was abandoned
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


_pool = _Pool()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.reset)
