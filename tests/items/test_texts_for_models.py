"""Every sentence that a model reads from us can be set, in one place, and the guide to moving lists each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from standfast import Agent, ModelTexts, RunConfig, Runner, function_tool, set_model_texts
from standfast._src.items.texts_for_models import DEFAULT_TEXTS
from standfast.testing import ScriptedModel, final, function_call

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "move-from-openai-agents.md"


@pytest.fixture(autouse=True)
def _ours_are_back() -> Iterator[None]:
    yield
    set_model_texts()


def outputs(model: ScriptedModel) -> list[Any]:
    call = model.last_call
    assert call is not None
    assert isinstance(call.input, list)
    return [item["output"] for item in call.input if item.get("type") == "function_call_output"]


async def test_a_model_reads_what_was_set():
    set_model_texts(
        tool_failed="F {error}", tool_not_found="N {tool_name}", handoff_ignored="I", handoff_offer="O {agent_name}"
    )

    @function_tool
    def broken() -> str:
        """Break."""
        raise ValueError("no")

    one, two = (Agent(name=name, model=ScriptedModel([final("x")])) for name in ("One", "Two"))
    calls = [function_call("broken", {}, call_id="c1"), function_call("ghost", {}, call_id="c2")]
    over = [function_call(f"transfer_to_{name}", {}, call_id=name) for name in ("one", "two")]
    agent = Agent(name="A", tools=[broken], handoffs=[one, two], model=ScriptedModel([calls, over]))
    await Runner.run(agent, "Go", run_config=RunConfig(tool_not_found_behavior="return_error_to_model"))
    assert isinstance(agent.model, ScriptedModel)
    assert outputs(agent.model) == ["F no", "N ghost"]
    assert isinstance(one.model, ScriptedModel)
    assert outputs(one.model)[-1] == "I"
    assert [handoff.tool_description for handoff in agent.model.calls[0].handoffs] == ["O One", "O Two"]


async def test_a_rejection_reads_as_was_set():
    set_model_texts(call_rejected="R")
    asking = function_tool(lambda: "x", name_override="ask", needs_approval=True)
    model = ScriptedModel([[function_call("ask", {}, call_id="c1")], final("x")])
    agent = Agent(name="A", tools=[asking], model=model)
    state = (await Runner.run(agent, "Go")).to_state()
    state.reject(state.get_interruptions()[0])
    await Runner.run(agent, state)
    assert outputs(model) == ["R"]


def test_without_arguments_ours_are_back():
    assert set_model_texts(did_not_run="D").did_not_run == "D"
    assert set_model_texts(not_completed="N") == ModelTexts(did_not_run="D", not_completed="N")
    assert set_model_texts() == DEFAULT_TEXTS


def test_a_text_that_does_not_exist_or_cannot_be_filled_in_is_refused():
    with pytest.raises(TypeError, match="there is no text tool_fails"):
        set_model_texts(tool_fails="x")
    with pytest.raises(ValueError, match="cannot be filled in"):
        set_model_texts(tool_failed="{reason}")
    with pytest.raises(ValueError, match="cannot be filled in"):
        set_model_texts(tool_failed="{")


def test_the_guide_lists_every_text():
    text = GUIDE.read_text(encoding="utf-8")
    assert not [one.name for one in fields(ModelTexts) if f"| `{one.name}` |" not in text]
