"""Model settings: what is said overrides what is not, and what cannot be is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st
from openai.types.shared import Reasoning

from standfast._src.agents.retry_policies import retry_policies
from standfast._src.base.errors import InvalidSettingError
from standfast._src.models.model_settings import MCPToolChoice, ModelSettings, coerce_model_settings
from standfast._src.models.retry import ModelRetryBackoffSettings, ModelRetrySettings

said = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2) | st.none(),
        "max_tokens": st.integers(1, 100) | st.none(),
        "tool_choice": st.sampled_from(["auto", "required", None]),
        "store": st.booleans() | st.none(),
        "timeout": st.floats(0.1, 100) | st.none(),
        "metadata": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2) | st.none(),
        "extra_args": st.dictionaries(st.sampled_from("abc"), st.integers(), max_size=3) | st.none(),
    },
)


@given(said, said)
def test_an_override_wins_where_it_says_something(one, other):
    base, override = ModelSettings(**one), ModelSettings(**other)
    result = base.resolve(override)
    for name in one.keys() | other.keys():
        if name == "extra_args":
            continue
        expected = other.get(name) if other.get(name) is not None else one.get(name)
        assert getattr(result, name) == expected
    if one.get("extra_args") or other.get("extra_args"):
        assert result.extra_args == {**(one.get("extra_args") or {}), **(other.get("extra_args") or {})}
    assert base == ModelSettings(**one)
    assert override == ModelSettings(**other)
    assert base.resolve(other) == result


@given(said, said, said)
def test_overrides_can_be_combined_in_any_grouping(one, two, three):
    a, b, c = ModelSettings(**one), ModelSettings(**two), ModelSettings(**three)
    assert a.resolve(b).resolve(c) == a.resolve(b.resolve(c))


@given(said)
def test_settings_survive_json(values):
    settings = ModelSettings(**values)
    assert coerce_model_settings(json.loads(json.dumps(settings.to_json_dict()))) == settings


def test_retry_settings_are_merged_field_by_field():
    never = retry_policies.never()
    base = ModelSettings(retry=ModelRetrySettings(2, {"initial_delay": 1}, never))
    result = base.resolve({"retry": {"backoff": {"max_delay": 3}}})
    assert result.retry is not None
    assert result.retry.max_retries == 2
    assert result.retry.policy is never
    assert result.retry.backoff == ModelRetryBackoffSettings(initial_delay=1.0, max_delay=3.0)


def test_nothing_said_changes_nothing():
    settings = ModelSettings(temperature=0.1)
    assert settings.resolve(None) is settings
    assert settings.resolve({}) is settings


def test_a_dict_is_read_with_everything_inside_it():
    settings = coerce_model_settings(
        {"tool_choice": {"server_label": "s", "name": "n"}, "retry": {"max_retries": 2, "backoff": {"jitter": False}}}
    )
    assert settings.tool_choice == MCPToolChoice("s", "n")
    assert settings.retry == ModelRetrySettings(2, ModelRetryBackoffSettings(jitter=False))


def test_an_instance_is_kept_and_none_gives_fresh_defaults():
    settings = ModelSettings()
    assert coerce_model_settings(settings) is settings
    assert coerce_model_settings(None) == ModelSettings()


@pytest.mark.parametrize(
    "value", [{"temprature": 1}, {"retry": {"max_retires": 1}}, {"retry": {"backoff": {"x": 1}}}, 3]
)
def test_a_misspelt_setting_is_a_type_error(value):
    with pytest.raises(TypeError):
        coerce_model_settings(value)


def test_the_error_names_the_setting_and_what_to_do():
    with pytest.raises(TypeError, match=r"Unknown model settings: bogus, wrong\. Check the spelling"):
        coerce_model_settings({"wrong": 1, "bogus": 1})


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "soon", []])
def test_a_timeout_that_is_no_time_is_refused(seconds):
    with pytest.raises(InvalidSettingError):
        ModelSettings(timeout=seconds)


@pytest.mark.parametrize("field", ["initial_delay", "max_delay", "multiplier"])
@pytest.mark.parametrize("value", [-1, float("inf"), "x", True])
def test_a_backoff_that_cannot_be_is_refused(field, value):
    with pytest.raises(ValueError, match=field):
        ModelRetryBackoffSettings(**{field: value})


def test_json_has_every_setting_and_no_code():
    settings = ModelSettings(
        tool_choice=MCPToolChoice("s", "n"),
        reasoning=Reasoning(effort="low"),
        retry=ModelRetrySettings(1, policy=retry_policies.never()),
        extra_headers={"x": object()},
    )
    plain = settings.to_json_dict()
    assert plain["tool_choice"] == {"server_label": "s", "name": "n"}
    assert plain["reasoning"]["effort"] == "low"
    assert plain["retry"] == {"max_retries": 1, "backoff": None}
    json.dumps(plain)


def test_a_trace_does_not_show_what_may_be_secret():
    shown = ModelSettings(temperature=0.5, extra_headers={"key": "secret"}, extra_args={"a": 1}).to_traceable_dict()
    assert shown["temperature"] == 0.5
    assert not any(name.startswith("extra_") for name in shown)


def test_settings_hold_sets_and_records_of_others_as_json():
    settings = ModelSettings(extra_body={"a": {1}}, prompt_cache_options=MCPToolChoice("s", "n"))
    plain = settings.to_json_dict()
    assert plain["extra_body"] == {"a": [1]}
    assert plain["prompt_cache_options"] == {"server_label": "s", "name": "n"}
