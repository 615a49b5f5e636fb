"""What can be wrong with a run's configuration is found before anything runs."""

from __future__ import annotations

import dataclasses
from typing import Any

import agents
import pytest

from standfast._src.agents.error_handlers import RunErrorHandlerResult, check_error_handlers, read_handler_result
from standfast._src.agents.run_config import RunConfig, ToolExecutionConfig, coerce_run_config
from standfast._src.base.errors import UserError
from standfast._src.models.model_settings import ModelSettings
from standfast._src.sessions.protocol import SessionSettings


def test_every_field_of_the_sdk_is_there_in_its_place():
    """A positional or keyword construction written for the SDK keeps its meaning."""
    theirs = [field.name for field in dataclasses.fields(agents.RunConfig)]
    ours = [field.name for field in dataclasses.fields(RunConfig)]
    assert ours[: len(theirs)] == theirs
    extra = [field for field in dataclasses.fields(RunConfig) if field.name not in theirs]
    assert all(field.kw_only for field in extra)
    assert {field.name for field in extra} >= {"run_id", "run_store", "concurrency", "lease_ttl_s", "lease_wait_s"}


def test_defaults_are_the_sdks_except_where_we_say_so():
    theirs, ours = agents.RunConfig(), RunConfig()
    different = {
        field.name for field in dataclasses.fields(theirs) if getattr(theirs, field.name) != getattr(ours, field.name)
    }
    # The provider is found when it is needed, and traces hold no content unless asked.
    assert different == {"model_provider", "trace_include_sensitive_data"}


def test_a_dict_is_read_and_nested_dicts_too():
    config = coerce_run_config(
        {
            "model_settings": {"temperature": 0.5},
            "session_settings": {"limit": 3},
            "tool_execution": {"max_function_tool_concurrency": 2},
        }
    )
    assert config.model_settings == ModelSettings(temperature=0.5)
    assert config.session_settings == SessionSettings(limit=3)
    assert config.tool_execution == ToolExecutionConfig(max_function_tool_concurrency=2)


def test_nothing_gives_defaults_and_an_instance_is_kept():
    config = RunConfig(workflow_name="w")
    assert coerce_run_config(config) is config
    assert coerce_run_config(None) == RunConfig()


@pytest.mark.parametrize(
    "value", [{"modle": "gpt"}, {"tool_execution": {"limit": 1}}, {"model_settings": {"temprature": 1}}, "config", 3]
)
def test_a_key_that_does_not_exist_is_a_type_error(value: Any):
    with pytest.raises(TypeError):
        coerce_run_config(value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"tool_name_collision_policy": "ignore"},
        {"tool_not_found_behavior": "guess"},
        {"reasoning_item_id_policy": "drop"},
        {"concurrency": "queue"},
        {"lease_ttl_s": 0},
        {"lease_wait_s": -1},
        {"lease_ttl_s": float("nan")},
        {"run_id": ""},
        {"output_guardrail_blocked_message": ""},
        {"save": "sometimes"},
        {"session_settings": {"limit": -1}},
        {"tool_execution": {"max_function_tool_concurrency": 0}},
        {"tool_execution": {"max_function_tool_concurrency": True}},
        {"tool_execution": {"pre_approval_tool_input_guardrails": "yes"}},
    ],
)
def test_a_value_that_means_nothing_is_a_value_error(wrong: dict[str, Any]):
    with pytest.raises(ValueError):
        coerce_run_config(wrong)


def test_a_message_that_is_no_message_is_a_type_error():
    with pytest.raises(TypeError):
        RunConfig(output_guardrail_blocked_message=3)  # type: ignore[arg-type]
    assert RunConfig(output_guardrail_blocked_message=lambda args: None).output_guardrail_blocked_message is not None


def test_what_we_do_not_have_is_refused_by_name():
    with pytest.raises(UserError, match="sandbox"):
        RunConfig(sandbox={})


@pytest.mark.parametrize("value", ["1", "true", "YES", "on"])
@pytest.mark.parametrize(
    "name", ["STANDFAST_TRACE_INCLUDE_SENSITIVE_DATA", "OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA"]
)
def test_traces_hold_content_only_if_asked(monkeypatch: pytest.MonkeyPatch, name: str, value: str):
    monkeypatch.delenv("STANDFAST_TRACE_INCLUDE_SENSITIVE_DATA", raising=False)
    monkeypatch.delenv("OPENAI_AGENTS_TRACE_INCLUDE_SENSITIVE_DATA", raising=False)
    assert RunConfig().trace_include_sensitive_data is False
    monkeypatch.setenv(name, value)
    assert RunConfig().trace_include_sensitive_data is True
    monkeypatch.setenv(name, "0")
    assert RunConfig().trace_include_sensitive_data is False


# --- error handlers --------------------------------------------------------------------------------------------------


def test_a_handler_may_decline_or_give_the_output_in_three_forms():
    assert read_handler_result(None) is None
    result = RunErrorHandlerResult("x", include_in_history=False)
    assert read_handler_result(result) is result
    assert read_handler_result({"final_output": "x", "include_in_history": False}) == result
    assert read_handler_result("x") == RunErrorHandlerResult("x")
    assert read_handler_result({"answer": 1}) == RunErrorHandlerResult({"answer": 1})


@pytest.mark.parametrize("value", [{"final_output": 1, "extra": 2}, {"final_output": 1, "include_in_history": "no"}])
def test_a_handlers_dict_with_other_keys_is_refused(value: Any):
    with pytest.raises(UserError):
        read_handler_result(value)


def test_a_handler_for_an_error_nobody_handles_is_refused():
    check_error_handlers({"max_turns": print, "model_refusal": print, "invalid_final_output": print})
    check_error_handlers(None)
    with pytest.raises(UserError, match="max_turn"):
        check_error_handlers({"max_turn": print})
