"""Conversion of a tool's value for the model: by its declared schema, or as text or parts.

A program written by the model (`ProgrammaticToolCallingTool`) reads outputs as well, and reads JSON: a value becomes
JSON for it, and a text about a failure becomes an object with an `error` if the schema promised an object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from standfast._src.base.errors import UserError
from standfast._src.base.json_values import Item, JsonValue
from standfast._src.base.type_names import describe_type
from standfast._src.items.fields import read
from standfast._src.items.tool_outputs import tool_output
from standfast._src.tools.local_tool import LocalTool
from standfast._src.tools.output_types import OutputAdapter


def is_programmatic(call: object) -> bool:
    """Return whether a call was made by a program of the model instead of the model itself."""
    return bool(read(read(call, "caller"), "type") == "program")


def model_output(tool: LocalTool, call: object, value: object) -> str | list[Item]:
    """Convert a value for the model, or for a calling program. Raises UserError if it violates the declared schema."""
    text = tool.item_output(value)
    is_final = tool.output_json_schema is not None or isinstance(value, str) or isinstance(text, list)
    if is_final or not is_programmatic(call):
        return text
    try:
        return _any_json(value)
    except Exception as error:  # whatever the value's own serializers raise
        raise UserError(
            f"tool {tool.qualified_name!r} was called by a program and returned {describe_type(value)} without JSON",
            "Return text, parts, or a value that pydantic can write as JSON.",
        ) from error


def failure_output(tool: LocalTool, call: object, text: object) -> str | list[Item]:
    """Convert a failure's text for the model; to an object for a program with a declared schema."""
    if tool.output_json_schema is None or not isinstance(text, str) or not is_programmatic(call):
        return tool_output(text)
    return text if isinstance(_parse_json(text), dict) else _json({"error": text})


def serialise_output(tool_name: str, adapter: OutputAdapter | None, value: object) -> str:
    """Return a value as the JSON object promised by a tool's output schema; raise UserError if it is not one."""
    try:
        if adapter is not None:
            checked = adapter.validate_json(value) if isinstance(value, str) else adapter.validate_python(value)
            value = adapter.dump_python(checked, mode="json", by_alias=True)
        elif isinstance(value, str):
            value = _parse_json(value)
        else:
            value = json.loads(_any_json(value))
    except Exception as error:  # pydantic's, or the value's own
        raise _not_declared(tool_name) from error
    if not isinstance(value, Mapping):
        raise _not_declared(tool_name)
    return _json(dict(value))


def _not_declared(tool_name: str) -> UserError:
    return UserError(
        f"the output of tool {tool_name!r} is not what its output schema declares",
        "Return an object of the declared type, or drop output_type and output_json_schema.",
    )


def _parse_json(text: str) -> JsonValue:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _any_json(value: object) -> str:
    from pydantic import TypeAdapter

    return TypeAdapter(Any).dump_json(value).decode("utf-8")
