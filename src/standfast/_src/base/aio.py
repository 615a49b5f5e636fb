"""Functions of the application may be async or not, and several are asked at once: here is how that is awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_waiters: WeakKeyDictionary[asyncio.Future[Any], asyncio.Task[Any] | None] = WeakKeyDictionary()
"""The tasks that `side_by_side` has started, each with the one that waits for it."""


async def maybe_await(value: Awaitable[T] | T) -> T:
    """Return the value, after awaiting it if it has to be awaited."""
    return await value if inspect.isawaitable(value) else value


async def together(*awaitables: Awaitable[T]) -> list[T]:
    """What each of these gives, all awaited at once. One that raises cancels the others: none goes on behind it."""
    tasks = side_by_side(awaitables)
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


def side_by_side(awaitables: Iterable[Awaitable[T]]) -> list[asyncio.Future[T]]:
    """Start each of these in a task of its own. The caller waits for all of them, whatever comes: see `cancel`."""
    tasks: list[asyncio.Future[T]] = [asyncio.ensure_future(one) for one in awaitables]
    waiter = asyncio.current_task()
    for task in tasks:
        _waiters[task] = waiter
    return tasks


def waiting_tasks(task: asyncio.Task[Any] | None) -> list[asyncio.Task[Any]]:
    """This task, the one that has started it by `side_by_side` and waits for it, the one that waits for that, ..."""
    found: list[asyncio.Task[Any]] = []
    while task is not None:
        found.append(task)
        task = _waiters.get(task)
    return found


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel those of these that have not ended, and wait until they have."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)
