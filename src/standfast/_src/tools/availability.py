"""Selection of an agent's enabled tools and handoffs: all `is_enabled` functions are called at the same time.

Most agents have no such function; for them this is one pass over a list.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, TypeVar

from standfast._src.agents.context import RunContextWrapper
from standfast._src.base.aio import together

T = TypeVar("T")


async def filter_enabled(candidates: Sequence[T], ctx: RunContextWrapper[Any], agent: object) -> list[T]:
    """Return the enabled candidates, in their order; a candidate without `is_enabled` is enabled."""
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
                verdict.close()  # it was never started, and Python would warn about that
        raise
    waiting = [index for index, verdict in enumerate(verdicts) if inspect.isawaitable(verdict)]
    if len(waiting) == 1:
        verdicts[waiting[0]] = await verdicts[waiting[0]]  # one alone needs no task
    elif waiting:
        answers = await together(*(verdicts[index] for index in waiting))
        for index, answer in zip(waiting, answers, strict=True):
            verdicts[index] = answer
    return [candidate for candidate, verdict in zip(candidates, verdicts, strict=True) if verdict]
