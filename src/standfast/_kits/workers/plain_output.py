"""Final output of a run as JSON, for storage by an engine."""

from __future__ import annotations

from pydantic_core import to_jsonable_python

from standfast._src.base.json_values import JsonValue


def plain(output: object) -> JsonValue:
    """Convert an output of any `output_type` to a JSON value."""
    return to_jsonable_python(output, fallback=str)
