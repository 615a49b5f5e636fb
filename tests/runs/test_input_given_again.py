"""Items that a session has already, given again as input (C2)."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast import Agent
from standfast.testing import ScriptedModel

from .observing import SESSIONS
from .whole_runs import add, adding, go, kinds, said, user


@pytest.mark.parametrize("streamed", [False, True], ids=["run", "streamed"])
@pytest.mark.parametrize("kind", sorted(SESSIONS))
async def test_a_call_given_again_with_its_output_is_sent_once(kind: str, streamed: bool, tmp_path: Path) -> None:
    """`to_input_list()` beside `session=` is an easy mistake, and a provider refuses an item's id that comes twice."""
    model = ScriptedModel([[{**adding(1, "c1"), "id": "fc_1"}], said("2"), said("again")])
    agent, session = Agent("Clerk", tools=[add], model=model), SESSIONS[kind](tmp_path)
    first = await go(agent, "add", session=session, streamed=streamed)
    again = first.to_input_list() + (first.to_input_list() if session is None else [])
    await go(agent, [*again, user("and now?")], session=session, streamed=streamed)
    assert model.last_call is not None
    turn = ["user", "function_call", "function_call_output", "assistant"]
    assert kinds(model.last_call.input) == [*turn, "user", "assistant", "user"]
