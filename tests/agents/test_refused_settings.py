"""What can be wrong with a RunConfig or an Agent is found when it is made, with a remedy."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from standfast import Agent, CallerError, RunConfig, Runner, function_tool, handoff
from standfast._src.agents.run_config import RunConfig as Config
from standfast.testing import ScriptedModel, final

WRONG: list[tuple[str, Any]] = [
    ("model", 42),
    ("model_provider", 42),
    ("model_settings", 42),
    ("handoff_input_filter", 42),
    ("nest_handoff_history", "no"),
    ("handoff_history_mapper", 42),
    ("input_guardrails", ["x"]),
    ("input_guardrails", "x"),
    ("output_guardrails", [print]),
    ("tracing_disabled", "no"),
    ("tracing", "nonsense"),
    ("tracing", {"tracer": 1}),
    ("trace_include_sensitive_data", "no"),
    ("workflow_name", 42),
    ("trace_id", 42),
    ("group_id", 42),
    ("trace_metadata", "x"),
    ("session_input_callback", 42),
    ("call_model_input_filter", 42),
    ("tool_error_formatter", 42),
    ("session_settings", 42),
    ("reasoning_item_id_policy", "sometimes"),
    ("sandbox", 42),
    ("tool_execution", 42),
    ("tool_not_found_behavior", "ignore"),
    ("tool_name_collision_policy", "ignore"),
    ("output_guardrail_blocked_message", 42),
    ("run_id", 42),
    ("run_id", ""),
    ("run_store", 42),
    ("save", "sometimes"),
    ("concurrency", "maybe"),
    ("unfinished", "maybe"),
    ("lease_ttl_s", "x"),
    ("lease_ttl_s", 0),
    ("lease_wait_s", "x"),
    ("lease_wait_s", -1),
    ("close_session", "no"),
    ("messages", "sometimes"),
    ("stored_input_filter", 42),
    ("limits", 42),
    ("budgets", 42),
    ("price", 42),
]


@pytest.mark.parametrize(("name", "value"), WRONG)
async def test_a_run_config_refuses_what_cannot_work_before_anything_runs(name: str, value: Any) -> None:
    refusals = (CallerError, TypeError) if name == "session_settings" else CallerError
    with pytest.raises(refusals):
        RunConfig(**{name: value})
    model = ScriptedModel([])
    with pytest.raises(refusals):
        await Runner.run(Agent(name="a", model=model), "hello", run_config={name: value})
    assert model.calls == ()


def test_every_setting_of_a_run_config_has_been_tried() -> None:
    assert {name for name, _ in WRONG} == {field.name for field in dataclasses.fields(Config)}


async def test_what_was_written_for_the_sdk_is_taken() -> None:
    class Model(ScriptedModel):
        pass

    class Provider:
        def get_model(self, name: str | None) -> Any:
            return Model([final("hi")])

    config = RunConfig(model_provider=Provider(), tracing={"api_key": "sk-1"}, trace_metadata={"a": 1})  # type: ignore[arg-type]
    assert (await Runner.run(Agent(name="a"), "hello", run_config=config)).final_output == "hi"


@function_tool
def look() -> str:
    """Look."""
    return "seen"


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("tools", ["x"], "function_tool"),
        ("tools", [42], "function_tool"),
        ("handoffs", ["x"], "handoff"),
        ("handoffs", [42], "handoff"),
        ("mcp_servers", ["x"], "MCP servers"),
        ("input_guardrails", ["x"], "@input_guardrail"),
        ("output_guardrails", [lambda context, agent, output: None], "@output_guardrail"),
        ("mcp_config", {"strict": True}, "convert_schemas_to_strict"),
    ],
)
def test_an_agent_refuses_members_that_no_run_could_use(name: str, value: Any, remedy: str) -> None:
    with pytest.raises(CallerError, match=remedy):
        Agent(name="a", **{name: value})
    Agent(name="a", tools=[look], handoffs=[Agent(name="b"), handoff(Agent(name="c"))])
