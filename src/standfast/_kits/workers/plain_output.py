"""A run's final output as JSON, as an engine can keep it."""

from __future__ import annotations

from pydantic_core import to_jsonable_python

from standfast._src.base.json_values import JsonValue


def plain(output: object) -> JsonValue:
    """The output as a JSON value, whatever type the agent's `output_type` gave it."""
    return to_jsonable_python(output, fallback=str)
