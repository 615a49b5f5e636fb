"""`reasoning_item_id_policy="omit"`: requests and input lists lack ids of reasoning items; the history keeps them."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, InMemorySession, RunConfig, function_tool
from standfast.testing import ScriptedModel, function_call, reasoning
from tests.runs.whole_runs import go, said

POLICIES = pytest.mark.parametrize("policy", [None, "preserve", "omit"])


@function_tool
async def look() -> str:
    """Look."""
    return "seen"


def thinking() -> ScriptedModel:
    turns = [[reasoning("hm", item_id="rs_1"), function_call("look", {}, call_id="c1")], said("done")]
    return ScriptedModel([*turns, said("again")])


def reasoning_ids(items: list[Any]) -> list[Any]:
    return [item.get("id") for item in items if item.get("type") == "reasoning"]


@POLICIES
@pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])
async def test_requests_and_input_lists_follow_the_policy(policy: Any, streamed: bool) -> None:
    model = thinking()
    agent = Agent(name="a", model=model, tools=[look])
    result = await go(agent, "look", streamed=streamed, run_config=RunConfig(reasoning_item_id_policy=policy))
    wanted = [None] if policy == "omit" else ["rs_1"]
    assert reasoning_ids(model.calls[1].input) == wanted
    assert reasoning_ids(result.to_input_list()) == wanted
    assert reasoning_ids(result.to_input_list(mode="normalized")) == wanted


@POLICIES
async def test_the_history_of_a_session_follows_it_too_and_keeps_what_it_has(policy: Any) -> None:
    model, session = thinking(), InMemorySession("s")
    agent = Agent(name="a", model=model, tools=[look])
    await go(agent, "look", session=session)
    result = await go(agent, "and now", session=session, run_config=RunConfig(reasoning_item_id_policy=policy))
    wanted = [None] if policy == "omit" else ["rs_1"]
    assert reasoning_ids(model.calls[2].input) == wanted
    assert reasoning_ids(result.to_input_list(mode="normalized")) == wanted
    assert reasoning_ids(await session.get_items()) == ["rs_1"]
