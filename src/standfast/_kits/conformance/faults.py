"""Faults inside a process: a cancellation at a chosen await, a wrong clock, many threads."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Any, Self

Operation = Callable[[], Awaitable[Any]]

# --- cancellation ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Cut:
    """Outcome of an operation to be cancelled: did it reach the chosen await, and then return, raise or leave?"""

    reached: bool
    cancelled: bool
    value: Any = None
    error: BaseException | None = None
    took_s: float = 0.0


async def cancelled_at(operation: Operation, await_number: int, delay_s: float = 0.0) -> Cut:
    """Run an operation in a task, and cancel it at its await number `await_number`, `delay_s` after it began to wait.

    The cancellation really arrives at that await: it is requested while the operation is suspended there.
    """
    loop = asyncio.get_running_loop()
    reached = False

    def on_suspend(number: int) -> None:
        nonlocal reached
        if number == await_number:
            reached = True
            if delay_s:
                loop.call_later(delay_s, task.cancel)
            else:
                loop.call_soon(task.cancel)

    async def whole() -> Any:
        return await _await_stepwise(operation(), on_suspend)

    started = time.perf_counter()
    task = loop.create_task(whole())
    await asyncio.wait([task])
    took_s = time.perf_counter() - started
    if task.cancelled():
        return Cut(reached, True, took_s=took_s)
    return Cut(reached, False, None if task.exception() else task.result(), task.exception(), took_s)


@types.coroutine
def _await_stepwise(awaitable: Awaitable[Any], on_suspend: Callable[[int], None]) -> Generator[Any, Any, Any]:
    """Await an object, and call `on_suspend` at each suspension."""
    inner = awaitable.__await__()
    number, value, error = 0, None, None
    while True:
        try:
            waits_for = inner.send(value) if error is None else inner.throw(error)
        except StopIteration as stop:
            return stop.value
        on_suspend(number)
        number += 1
        value = error = None
        try:
            value = yield waits_for
        except BaseException as thrown:
            error = thrown


# --- clocks -----------------------------------------------------------------------------------------------------------


class WallClock:
    """Wall clock of this process, as seen by `time.time` and `datetime.now`; settable."""

    def __init__(self) -> None:
        self.now = time.time()

    def step(self, seconds: float) -> None:
        """Move the clock; back if negative."""
        self.now += seconds


@contextmanager
def wall_clock(package: str) -> Iterator[WallClock]:
    """Yield a clock that only moves by `step`, seen by `time` and by the modules of a package."""
    clock = WallClock()

    class Shifted(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Self:
            return cls.fromtimestamp(clock.now, tz)

        @classmethod
        def utcnow(cls) -> Self:
            return cls.utcfromtimestamp(clock.now)

    changed: list[tuple[Any, str, Any]] = []

    def change(owner: object, name: str, value: object) -> None:
        changed.append((owner, name, getattr(owner, name)))
        setattr(owner, name, value)

    try:
        change(time, "time", lambda: clock.now)
        change(time, "time_ns", lambda: int(clock.now * 1_000_000_000))
        for name, module in list(sys.modules.items()):
            # What it has, not what it would give: a module may look names up when it is asked for them.
            if name.partition(".")[0] == package and vars(module).get("datetime") is datetime:
                change(module, "datetime", Shifted)
        yield clock
    finally:
        for owner, name, value in reversed(changed):
            setattr(owner, name, value)


@contextmanager
def time_zone(name: str) -> Iterator[None]:
    """Change the time zone of this process."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = name
    time.tzset()
    try:
        yield
    finally:
        os.environ.pop("TZ")
        if before is not None:
            os.environ["TZ"] = before
        time.tzset()


# --- threads and resources --------------------------------------------------------------------------------------------


def in_threads(works: Sequence[Callable[[], Coroutine[Any, Any, Any]]]) -> list[Any]:
    """Each coroutine in a thread and loop of its own, all beginning at once; results in order, errors included."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)

    def run(place: int) -> None:
        barrier.wait()
        try:
            results[place] = asyncio.run(works[place]())
        except BaseException as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=(place,), daemon=True) for place in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def descriptor_count() -> int:
    """Count the open file descriptors of this process."""
    return len(os.listdir("/proc/self/fd" if os.path.isdir("/proc/self/fd") else "/dev/fd"))
