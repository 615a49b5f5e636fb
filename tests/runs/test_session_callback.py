"""What a `session_input_callback` may give back, and what it gets told if it gives something else (C1)."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, InMemorySession, RunConfig, Runner, UserError
from standfast.testing import ScriptedModel, final


@pytest.mark.clause("C1", backend="runs")
@pytest.mark.parametrize("wrong", [[1], ["hi"], [None], [{"role": "user", "content": "a"}, object()]])
async def test_a_callback_that_returns_strange_items_is_told_so_and_nothing_is_stored(wrong: list[Any]) -> None:
    session = InMemorySession("s")
    config = RunConfig(session_input_callback=lambda history, new: wrong)
    with pytest.raises(UserError, match="session_input_callback returned a list with"):
        await Runner.run(
            Agent(name="A", model=ScriptedModel([final("never")])), "hi", session=session, run_config=config
        )
    assert await session.get_items() == []
