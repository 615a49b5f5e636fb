"""What a model call becomes in the words of the Responses API, as pure functions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, strategies as st
from models.providers.asking import Handoff, Tool

from standfast._src.base.errors import UserError
from standfast._src.models.interface import ModelRequest
from standfast._src.models.model_settings import ModelSettings
from standfast._src.models.responses_format import input_param, request, tool_choice_param, tool_param, tools_param

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
# "provider_data" and "status" are what the converter takes out of any item; everything else is not its business.
fields = st.dictionaries(
    st.text(min_size=1, max_size=8).filter(lambda name: name not in ("provider_data", "status", "id", "type")),
    json_values,
)


@given(st.text(min_size=1), fields, st.none() | st.text(min_size=1).filter(lambda value: value != "__fake_id__"))
def test_items_of_any_kind_pass_through_unchanged(kind: str, rest: dict[str, Any], item_id: str | None):
    item = {"type": kind, **rest} | ({"id": item_id} if item_id is not None else {})
    before = repr(item)
    assert input_param([item]) == [item]
    assert repr(item) == before  # the caller's object is not touched


def test_only_what_the_service_refuses_is_taken_out():
    items = [
        {"type": "message", "role": "assistant", "id": "__fake_id__", "content": "x", "provider_data": {"a": 1}},
        {"type": "reasoning", "id": "r1", "summary": [], "provider_data": {"model": "other"}},
        {"type": "function_call", "id": None, "call_id": "c", "name": "f", "arguments": "{}", "status": None},
    ]
    assert input_param(items) == [
        {"type": "message", "role": "assistant", "content": "x"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]


@dataclass
class Grouped(Tool):
    namespace: str | None = None
    namespace_description: str | None = None
    defer_loading: bool = False
    allowed_callers: list[str] | None = None
    output_json_schema: dict[str, Any] | None = None


def test_tools_of_a_namespace_stand_together_where_the_first_stood():
    tools = [
        Grouped("a", namespace="crm", namespace_description="customers"),
        Tool("b"),
        Grouped("c", namespace="crm", namespace_description="customers", defer_loading=True),
    ]
    converted, _ = tools_param(tools, [Handoff("h")])
    assert [tool["name"] for tool in converted] == ["crm", "b", "h"]
    assert [tool["name"] for tool in converted[0]["tools"]] == ["a", "c"]
    assert converted[0]["tools"][1]["defer_loading"] is True
    tools[2].namespace_description = "something else"  # type: ignore[attr-defined]
    with pytest.raises(UserError, match="namespace 'crm'"):
        tools_param(tools, [])


def test_optional_parts_of_a_function_are_sent_when_there_are_any():
    param = tool_param(Grouped("a", allowed_callers=["direct"], output_json_schema={"type": "string"}))
    assert (param["allowed_callers"], param["output_schema"]) == (["direct"], {"type": "string"})
    assert "defer_loading" not in param


@dataclass
class Hosted:
    name: str
    vector_store_ids: list[str] = field(default_factory=list)
    max_num_results: int | None = None
    include_search_results: bool = False
    external_web_access: bool | None = None
    search_content_types: list[str] | None = None
    environment: dict[str, Any] | None = None
    allowed_callers: list[str] | None = None


@pytest.mark.parametrize(
    ("tool", "param", "includes"),
    [
        (
            Hosted("file_search", vector_store_ids=["vs_1"], max_num_results=5, include_search_results=True),
            {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 5},
            ["file_search_call.results"],
        ),
        (
            Hosted("web_search", external_web_access=False, search_content_types=["image"]),
            {"type": "web_search", "external_web_access": False, "search_content_types": ["image"]},
            ["web_search_call.results"],
        ),
        (Hosted("shell"), {"type": "shell", "environment": {"type": "local"}}, []),
        (Hosted("apply_patch", allowed_callers=["direct"]), {"type": "apply_patch", "allowed_callers": ["direct"]}, []),
        (Hosted("local_shell"), {"type": "local_shell"}, []),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_hosted_tools(tool: Any, param: dict[str, Any], includes: list[str]):
    assert tools_param([tool], []) == ([param], includes)


def test_a_tool_that_describes_itself_and_one_that_nobody_knows():
    class SelfMade:
        name = "mine"

        def to_wire(self) -> dict[str, Any]:
            return {"type": "custom", "name": "mine"}

    assert tool_param(SelfMade()) == {"type": "custom", "name": "mine"}
    with pytest.raises(UserError, match="not a tool the Responses API knows"):
        tool_param(Hosted("telepathy"))


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, None),
        ("auto", "auto"),
        ("required", "required"),
        ("none", "none"),
        ("add", {"type": "function", "name": "add"}),
        ("web_search", {"type": "web_search"}),
        ("file_search", {"type": "file_search"}),
        ("shell", {"type": "shell"}),
        ("h", {"type": "function", "name": "h"}),
        ("unknown", {"type": "function", "name": "unknown"}),
    ],
)
def test_tool_choice(choice: Any, expected: Any):
    assert tool_choice_param(choice, [Tool("add"), Hosted("shell")], [Handoff("h")]) == expected


def test_a_function_named_like_a_hosted_tool_is_the_function():
    assert tool_choice_param("web_search", [Tool("web_search")]) == {"type": "function", "name": "web_search"}
    assert tool_choice_param("shell", [Tool("add")]) == {"type": "function", "name": "shell"}


def test_nothing_is_sent_that_was_not_said():
    asked = ModelRequest(
        system_instructions=None, input="hi", model_settings=ModelSettings(), tools=[], output_schema=None, handoffs=[]
    )
    assert request("m", asked) == {
        "model": "m",
        "input": [{"role": "user", "content": "hi"}],
    }
