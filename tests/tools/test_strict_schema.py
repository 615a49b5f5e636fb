"""Strict schemas: closed, complete, the same for the same objects, and bounded for strangers' schemas."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._src.base.errors import UserError
from standfast._src.tools.strict_schema import ensure_strict_json_schema

leaves = st.fixed_dictionaries(
    {"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])},
    optional={"description": st.text(max_size=5), "default": st.none() | st.integers(), "enum": st.just(["a"])},
)
NAMES = st.sampled_from(["a", "b", "c", "d"])
REFS = st.sampled_from(["Leaf", "Tree"]).map(lambda name: {"$ref": f"#/$defs/{name}"})


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={"required": st.lists(NAMES, max_size=2), "additionalProperties": st.just(False)},
        ),
        st.fixed_dictionaries({"properties": st.dictionaries(NAMES, inner, max_size=3)}),
        st.fixed_dictionaries({"type": st.just("array"), "items": inner}),
        st.fixed_dictionaries({"anyOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"oneOf": st.lists(inner, min_size=1, max_size=3)}),
        st.fixed_dictionaries({"allOf": st.lists(inner, min_size=1, max_size=2)}, optional={"title": st.just("T")}),
        st.fixed_dictionaries({"$ref": st.just("#/$defs/Leaf")}, optional={"description": st.text(max_size=5)}),
        st.fixed_dictionaries({"$ref": st.just("#/$defs/Tree")}, optional={"description": st.text(max_size=5)}),
    )


members = st.recursive(leaves | REFS, containers, max_leaves=12)
DEFS: dict[str, Any] = {
    "Leaf": {"type": "object", "properties": {"value": {"type": "integer", "default": None}}},
    "Tree": {
        "type": "object",
        "properties": {
            "left": {"$ref": "#/$defs/Tree", "description": "the left one"},
            "rest": {"type": "array", "items": {"$ref": "#/$defs/Tree"}},
        },
    },
}
schemas = st.dictionaries(NAMES, members, max_size=4).map(
    lambda properties: {"type": "object", "properties": properties, "$defs": copy.deepcopy(DEFS)}
)


def nodes(schema: Any) -> list[dict[str, Any]]:
    """Every schema in a schema."""
    found = [schema]
    for key in ("properties", "$defs"):
        found += [node for inner in schema.get(key, {}).values() if isinstance(inner, dict) for node in nodes(inner)]
    for key in ("anyOf", "allOf", "oneOf"):
        found += [node for inner in schema.get(key, []) for node in nodes(inner)]
    if isinstance(schema.get("items"), dict):
        found += nodes(schema["items"])
    return found


@given(schemas)
def test_every_object_is_closed_and_every_property_required(schema: dict[str, Any]):
    for node in nodes(ensure_strict_json_schema(schema)):
        if node.get("type") == "object":
            assert node["additionalProperties"] is False
        if "properties" in node:
            assert node["required"] == list(node["properties"])
            assert node["type"] == "object"
        assert "oneOf" not in node
        assert "$ref" not in node or set(node) == {"$ref"}
        assert "default" not in node or node["default"] is not None


@given(schemas)
def test_a_strict_schema_is_left_as_it_is_and_the_input_is_never_touched(schema: dict[str, Any]):
    before = copy.deepcopy(schema)
    strict = ensure_strict_json_schema(schema)
    assert schema == before
    assert ensure_strict_json_schema(strict) == strict


def test_no_schema_is_an_object_without_properties():
    assert ensure_strict_json_schema({}) == {
        "additionalProperties": False,
        "type": "object",
        "properties": {},
        "required": [],
    }


@pytest.mark.parametrize("free", [True, {}, {"type": "string"}])
def test_an_object_with_free_keys_is_refused_with_the_way_out(free: Any):
    schema = {"type": "object", "properties": {"map": {"type": "object", "additionalProperties": free}}}
    with pytest.raises(UserError, match="strict_mode=False"):
        ensure_strict_json_schema(schema)


def test_a_root_that_is_no_object_is_refused():
    with pytest.raises(UserError, match="union"):
        ensure_strict_json_schema({"anyOf": [{"type": "object", "properties": {}}]})
    with pytest.raises(UserError):
        ensure_strict_json_schema({"type": ["object", "null"], "properties": {}})
    assert ensure_strict_json_schema({"type": ["object"], "properties": {}})["type"] == "object"


def test_a_reference_with_siblings_is_replaced_by_what_it_means():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/A", "description": "mine"}},
        "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"type": "string", "description": "theirs"}},
    }
    strict = ensure_strict_json_schema(schema)
    assert strict["properties"]["a"] == {"type": "string", "description": "mine"} or strict["properties"]["a"] == {
        "$ref": "#/$defs/B"
    }


@pytest.mark.parametrize("schema", [True, [1], "object"])
def test_something_that_is_no_schema_is_refused(schema: Any):
    with pytest.raises(UserError, match="must be an object"):
        ensure_strict_json_schema(schema)


def test_true_as_a_schema_stays_true():
    assert ensure_strict_json_schema({"properties": {"a": True}})["properties"] == {"a": True}


def test_an_all_of_that_contradicts_its_parent_is_not_flattened():
    schema = {"properties": {"a": {"allOf": [{"type": "string", "maxLength": 3}], "maxLength": 5}}}
    strict = ensure_strict_json_schema(schema)["properties"]["a"]
    assert strict == {"allOf": [{"type": "string", "maxLength": 3}], "maxLength": 5}


def test_references_into_properties_and_with_escapes_are_followed():
    schema = {
        "properties": {
            "a/b~c": {"type": "string"},
            "d": {"$ref": "#/properties/a~1b~0c", "title": "D"},
            "e": {"$ref": "#/properties/a~1b~0c"},
        }
    }
    strict = ensure_strict_json_schema(schema)
    assert strict["properties"]["d"] == {"type": "string", "title": "D"}
    with pytest.raises(UserError, match="elsewhere"):
        ensure_strict_json_schema({"properties": {"a": {"$ref": "elsewhere.json", "title": "x"}}})


def test_a_recursive_root_is_unfolded_once():
    strict = ensure_strict_json_schema({"$ref": "#/$defs/Tree", "$defs": DEFS})
    assert strict["type"] == "object"
    assert strict["properties"]["rest"]["items"] == {"$ref": "#/$defs/Tree"}


def test_a_reference_to_nothing_is_refused():
    with pytest.raises(UserError, match="not in it"):
        ensure_strict_json_schema({"properties": {"a": {"$ref": "#/$defs/Gone", "title": "x"}}})


def test_one_member_of_all_of_becomes_part_of_its_parent():
    schema = {
        "properties": {"a": {"allOf": [{"$ref": "#/$defs/A"}], "description": "d"}},
        "$defs": {"A": {"type": "string"}},
    }
    assert ensure_strict_json_schema(schema)["properties"]["a"] == {"type": "string", "description": "d"}


def test_a_schema_made_to_explode_is_refused():
    """A small schema whose references double at every step would take the machine with it."""
    defs = {"D0": {"type": "object", "properties": {}}}
    for level in range(1, 40):
        ref = {"$ref": f"#/$defs/D{level - 1}", "title": "again"}
        defs[f"D{level}"] = {"type": "object", "properties": {"a": ref, "b": ref}}  # type: ignore[dict-item]
    with pytest.raises(UserError):
        ensure_strict_json_schema({"properties": {"x": {"$ref": "#/$defs/D39", "title": "x"}}, "$defs": defs})


def test_a_schema_nested_without_measure_is_refused():
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(5_000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(UserError, match="deeper"):
        ensure_strict_json_schema({"properties": {"x": schema}})
