"""Which of an agent's tools and handoffs are there for this run: `is_enabled`, asked at once and only where it asks.

Most agents have nothing to ask; for them this is one pass over a list.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from standfast.agents.context import RunContextWrapper

T = TypeVar("T")


async def enabled(candidates: Sequence[T], ctx: RunContextWrapper[Any], agent: Any) -> list[T]:
    """Those of the candidates that are enabled, in their order; what has no `is_enabled` is."""
    if all(getattr(candidate, "is_enabled", True) is True for candidate in candidates):
        return list(candidates)
    verdicts: list[Any] = []
    try:
        for candidate in candidates:
            policy: Any = getattr(candidate, "is_enabled", True)
            verdicts.append(policy(ctx, agent) if callable(policy) else policy)
    except BaseException:
        for verdict in verdicts:
            if inspect.iscoroutine(verdict):
                verdict.close()  # it was never started, and Python would complain about that
        raise
    await _await_all(verdicts)
    return [candidate for candidate, verdict in zip(candidates, verdicts, strict=True) if verdict]


async def _await_all(verdicts: list[Any]) -> None:
    """Replace every awaitable among these by what it gives. One that raises cancels and awaits the others."""
    waiting = [index for index, verdict in enumerate(verdicts) if inspect.isawaitable(verdict)]
    if len(waiting) == 1:
        verdicts[waiting[0]] = await verdicts[waiting[0]]
        return
    tasks = [asyncio.ensure_future(_awaited(verdicts[index])) for index in waiting]
    try:
        answers = await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    for index, answer in zip(waiting, answers, strict=True):
        verdicts[index] = answer


async def _awaited(awaitable: Awaitable[Any]) -> Any:
    return await awaitable
