"""Declared output of a function tool: a type or a schema, explicit or from the return annotation.

Providers show the schema to programs that call the tool, which read an object by it. So a declared type is an object,
and a value of another type is a failure of the tool, reported to the model like any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import deepcopy
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Protocol, get_args, get_origin, get_type_hints

from standfast._src.base.errors import UserError
from standfast._src.base.type_names import describe_type
from standfast._src.tools.schema import TypeForm
from standfast._src.tools.strict_schema import ensure_strict_json_schema

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_HOW = "Use a pydantic model, TypedDict or dataclass; str or Any for a result without a type; or output_json_schema."


class OutputAdapter(Protocol):
    """Methods of a pydantic `TypeAdapter` to read and write an output; pydantic is imported only where used."""

    def validate_json(self, data: str, /) -> Any:
        """Return the value of a JSON text."""
        ...

    def validate_python(self, object: Any, /) -> Any:
        """Return a value of the declared type."""
        ...

    def dump_python(self, instance: Any, /, *, mode: Literal["json", "python"], by_alias: bool) -> Any:
        """Return the value as plain data."""
        ...


class DeclaredOutput(NamedTuple):
    """Schema of a tool's output, and the validator of a declared type."""

    schema: dict[str, Any] | None = None
    adapter: OutputAdapter | None = None


def declared_output(
    function: Callable[..., Any],
    *,
    callers: list[Any] | None,
    output_type: TypeForm | None,
    output_json_schema: dict[str, Any] | None,
) -> DeclaredOutput:
    """Return the output declared by these arguments of `function_tool`; for programmatic callers the return annotation
    is the fallback.
    """
    if output_json_schema is not None:
        try:
            return DeclaredOutput(deepcopy(output_json_schema))
        except RecursionError:
            raise UserError("output_json_schema is nested too deeply to be read", "Make it flatter.") from None
    if output_type is None and "programmatic" in (callers or ()):
        output_type = _returned_type(function)
    return DeclaredOutput() if output_type is None else _of_type(output_type)


def _returned_type(function: Callable[..., Any]) -> TypeForm | None:
    """Return the annotated return type; None if a schema could not express anything about it."""
    try:
        annotated = get_type_hints(
            function if inspect.isroutine(function) else type(function).__call__, include_extras=True
        ).get("return")
    except (NameError, TypeError):  # a name that exists for type checkers only
        return None
    plain = annotated
    while get_origin(plain) is Annotated:
        plain = get_args(plain)[0]
    return None if plain in (None, Any, str, type(None)) else annotated


def _of_type(output_type: TypeForm) -> DeclaredOutput:
    from pydantic import TypeAdapter

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(output_type)
        schema = adapter.json_schema(mode="serialization")
        if not _is_object(schema):
            raise ValueError("no object")
        return DeclaredOutput(ensure_strict_json_schema(deepcopy(schema)), adapter)
    except Exception as error:  # pydantic's own, of many kinds
        raise UserError(f"{output_type!r} as the output of a tool is no strict JSON object", _HOW) from error


def _is_object(schema: dict[str, Any]) -> bool:
    """Return whether the root of the schema is an object, references resolved."""
    found: Any = schema
    for _ in range(len(schema.get("$defs", ())) + 1):
        if not isinstance(found, dict) or found.get("type") in ("object", ["object"]):
            break
        found = schema.get("$defs", {}).get(str(found.get("$ref", "")).removeprefix("#/$defs/"))
    return isinstance(found, dict) and found.get("type") in ("object", ["object"])


def checked_output(tool_name: str, adapter: OutputAdapter, value: object) -> Any:
    """Validate a value against the declared type; raise UserError if invalid."""
    try:
        return adapter.validate_python(value)
    except ValueError as error:
        # Not with pydantic's words, which repeat the value: this text goes to the model and into logs.
        raise UserError(
            f"tool {tool_name!r} returned {describe_type(value)} that is not of its declared output type",
            "Return a value of that type.",
        ) from error
