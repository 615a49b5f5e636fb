"""Helpers for functions that may be sync or async, and for awaiting several at the same time."""

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
    """Return a value, after awaiting it if awaitable."""
    return await value if inspect.isawaitable(value) else value


async def together(*awaitables: Awaitable[T]) -> list[T]:
    """Await all at the same time and return the results. If one raises, cancel the rest and wait for them."""
    tasks = side_by_side(awaitables)
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


def side_by_side(awaitables: Iterable[Awaitable[T]]) -> list[asyncio.Future[T]]:
    """Start a task for each awaitable. The caller must wait for all tasks in every case: see `cancel`."""
    tasks: list[asyncio.Future[T]] = [asyncio.ensure_future(one) for one in awaitables]
    waiter = asyncio.current_task()
    for task in tasks:
        _waiters[task] = waiter
    return tasks


def waiting_tasks(task: asyncio.Task[Any] | None) -> list[asyncio.Task[Any]]:
    """Return a task and its chain of waiters: the task that started it by `side_by_side`, the waiter of that task, and
    so on.
    """
    found: list[asyncio.Task[Any]] = []
    while task is not None:
        found.append(task)
        task = _waiters.get(task)
    return found


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel all unfinished tasks, and wait for their end."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)
