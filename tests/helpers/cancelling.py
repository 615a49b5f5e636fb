"""Cancel a coroutine at its suspension number `at`: once, twice, without end, or by an anyio scope.

A suspension is a place where the coroutine really waits; counting them tries every await of the code under test, as
deep as it goes, without knowing any of them. The cancellation is the real one of the task (or of the scope) that the
coroutine runs in.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, Literal

import anyio
from helpers.counts import tried

Way = Literal["once", "twice", "forever", "anyio"]
WAYS: tuple[Way, ...] = ("once", "twice", "forever", "anyio")


class Counted:
    """Awaits `coroutine` and calls `cancel` at the suspensions from `at` (counted from 0) on, `times` times."""

    def __init__(
        self, coroutine: Coroutine[Any, Any, Any], at: int | None, times: float, cancel: Callable[[], object]
    ) -> None:
        self._coroutine, self._at, self._times, self._cancel = coroutine, at, times, cancel
        self.count = 0

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self._coroutine.__await__()
        throwing: BaseException | None = None
        try:
            while True:
                try:
                    waited_for = inner.send(None) if throwing is None else inner.throw(throwing)
                except StopIteration as ended:
                    return ended.value
                throwing = None
                if self._at is not None and self._at <= self.count < self._at + self._times:
                    # Called while the task runs: it is cancelled as soon as it waits for what is yielded here.
                    self._cancel()
                self.count += 1
                try:
                    yield waited_for
                except BaseException as error:
                    throwing = error
        finally:
            inner.close()


async def suspensions(work: Callable[[], Coroutine[Any, Any, Any]]) -> int:
    """How often this work waits when nobody cancels it."""
    counted = Counted(work(), None, 0, lambda: None)
    await counted
    return counted.count


async def cancelled_at(work: Callable[[], Coroutine[Any, Any, Any]], at: int, way: Way) -> bool:
    """Do `work` in a task of its own and cancel it at suspension `at`; whether it was cancelled and ended so."""
    tried[f"cancellations ({way})"] += 1
    if way == "anyio":
        return await asyncio.create_task(_in_a_scope(work, at))
    times = {"once": 1, "twice": 2}.get(way, float("inf"))

    async def body() -> None:
        task = asyncio.current_task()
        assert task is not None
        await Counted(work(), at, times, task.cancel)

    task = asyncio.create_task(body())
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error
    return task.cancelled()


async def cut_soon(work: Coroutine[Any, Any, Any], chance: random.Random, within_s: float) -> None:
    """Do `work` in a task whose caller goes away within that time, once or again and again; raise what it raised."""
    task = asyncio.create_task(work)
    await asyncio.sleep(chance.random() * within_s)
    for _ in range(chance.choice([1, 2, 5])):
        task.cancel()
        await asyncio.sleep(0)
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


async def _in_a_scope(work: Callable[[], Coroutine[Any, Any, Any]], at: int) -> bool:
    with anyio.CancelScope() as scope:
        await Counted(work(), at, 1, scope.cancel)
    return scope.cancelled_caught


async def no_task_is_left(patience_s: float = 20.0) -> None:
    """Wait until only the calling task is left."""
    me = asyncio.current_task()
    async with asyncio.timeout(patience_s):
        while others := [task for task in asyncio.all_tasks() if task is not me]:
            await asyncio.wait(others, timeout=0.05)


Scenario = Callable[[], Awaitable[None]]
