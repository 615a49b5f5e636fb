"""A seam to what branch `recover` builds; replaced by `Runner.recover` and `Runner.hand_over` when it is merged."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable
from typing import Any

from standfast.agents.agent import Agent
from standfast.face.runner import Runner
from standfast.ground.errors import StandfastError
from standfast.operators.store import Store


class RunHandedOverError(StandfastError):
    """A run was handed over."""


async def hand_over(*, within_s: float) -> None:
    """Nothing, until there is something."""


async def recover(agents: Iterable[Agent[Any]], store: Store) -> dict[str, int]:
    """Go on with every run that is running or ready and whose worker is gone."""
    found: Counter[str] = Counter()
    by_name = {agent.name: agent for agent in agents}
    for status in ("running", "ready"):
        for run in (await store.runs(status=status)).runs:
            session = store.session(run.session_id or "-")
            where: dict[str, Any] = {"session": session} if run.session_id else {"run_store": session.run_store()}
            try:
                with contextlib.suppress(StandfastError):
                    await Runner.resume(by_name[run.agent], run.run_id, run_config={"concurrency": "reject"}, **where)
                    found["continued"] += 1
            finally:
                await session.close()
    return dict(found)
