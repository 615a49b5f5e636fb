"""Functions of the application may be async or not; here is how either is called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def maybe_await(value: Awaitable[T] | T) -> T:
    """Return the value, after awaiting it if it has to be awaited."""
    return await value if inspect.isawaitable(value) else value
