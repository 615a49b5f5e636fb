"""A tool that is disabled between being shown and being called does not run."""

from __future__ import annotations

from typing import Any

import pytest

from standfast import Agent, ModelBehaviorError, RunConfig, function_tool
from standfast.testing import ScriptedModel, function_call
from tests.runs.whole_runs import go, outputs, said

STREAMED = pytest.mark.parametrize("streamed", [False, True], ids=["whole", "streamed"])


def shop(script: list[Any], **options: Any) -> tuple[Agent[Any], list[str], dict[str, bool]]:
    """An agent with a `pay` that the model's own reply switches off, what ran, and the switch."""
    ran: list[str] = []
    open_for = {"pay": True}

    async def ask(context: Any, agent: Any) -> bool:
        return open_for["pay"]

    @function_tool(is_enabled=ask, **options)
    async def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    @function_tool
    async def look() -> str:
        """Look."""
        ran.append("look")
        return "seen"

    model = ScriptedModel(script)
    return Agent(name="shop", model=model, tools=[pay, look]), ran, open_for


def closing(open_for: dict[str, bool], *items: Any) -> Any:
    from standfast.testing import ModelStep

    def respond(call: Any) -> Any:
        open_for["pay"] = False  # the application withdraws it while the model is thinking
        return list(items)

    return ModelStep.respond(respond)


@STREAMED
async def test_a_tool_disabled_after_it_was_listed_does_not_run(streamed: bool) -> None:
    agent, ran, open_for = shop([])
    agent.model.enqueue(closing(open_for, function_call("pay", {}, call_id="c1")))  # type: ignore[union-attr]
    with pytest.raises(ModelBehaviorError, match="no longer enabled"):
        await go(agent, "pay", streamed=streamed)
    assert ran == []


@STREAMED
async def test_the_model_is_told_where_that_is_asked_for(streamed: bool) -> None:
    agent, ran, open_for = shop([])
    calls = [function_call("pay", {}, call_id="c1"), function_call("look", {}, call_id="c2")]
    agent.model.extend([closing(open_for, *calls), said("sorry")])  # type: ignore[union-attr]
    config = RunConfig(tool_not_found_behavior="return_error_to_model")
    result = await go(agent, "pay", streamed=streamed, run_config=config)
    assert ran == ["look"]
    assert result.final_output == "sorry"
    told, looked = outputs(result.to_input_list())
    assert "pay" in told
    assert looked == "seen"


async def test_a_tool_disabled_while_a_person_thought_about_it_does_not_run() -> None:
    agent, ran, open_for = shop([[function_call("pay", {}, call_id="c1")], said("never")], needs_approval=True)
    paused = await go(agent, "pay")
    state = paused.to_state()
    state.approve(paused.interruptions[0])
    open_for["pay"] = False
    with pytest.raises(ModelBehaviorError, match="no longer enabled"):
        await go(agent, state)
    assert ran == []
