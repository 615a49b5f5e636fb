"""Functions of the application may be async or not, and several are asked at once: here is how that is awaited."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def maybe_await(value: Awaitable[T] | T) -> T:
    """Return the value, after awaiting it if it has to be awaited."""
    return await value if inspect.isawaitable(value) else value


async def together(*awaitables: Awaitable[T]) -> list[T]:
    """What each of these gives, all awaited at once. One that raises cancels the others: none goes on behind it."""
    tasks = [asyncio.ensure_future(one) for one in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        await cancel(tasks)


async def cancel(tasks: Iterable[asyncio.Future[Any]]) -> None:
    """Cancel those of these that have not ended, and wait until they have."""
    running = [task for task in tasks if not task.done()]
    for task in running:
        task.cancel()
    if running:
        await asyncio.gather(*running, return_exceptions=True)
