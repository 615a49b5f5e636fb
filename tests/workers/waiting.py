"""Waiting for what worker processes come to, by what the store says."""

from __future__ import annotations

import asyncio
from typing import Any

from standfast import NotFoundError

PATIENCE_S = 120.0


async def is_status(engine: Any, run_id: str, *wanted: str) -> Any:
    """Wait until the store says this of a run: the run."""
    end = asyncio.get_running_loop().time() + PATIENCE_S
    while True:
        try:
            view = await engine.jobs.store.run(run_id)
        except NotFoundError:
            view = None
        if view is not None and view.status in wanted:
            return view
        assert asyncio.get_running_loop().time() < end, f"run {run_id} is {view and view.status}, not {wanted}"
        await asyncio.sleep(0.05)


async def outputs(engine: Any, session_id: str) -> dict[str, str]:
    """What the history says of each call; one that was answered twice is an error."""
    session = engine.jobs.store.session(session_id)
    try:
        items = await session.get_items()
    finally:
        await session.close()
    answers = [item for item in items if item.get("type") == "function_call_output"]
    assert len({item["call_id"] for item in answers}) == len(answers), "a call was answered twice"
    return {item["call_id"]: item["output"] for item in answers}
