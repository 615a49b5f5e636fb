"""Attributes of tools, handoffs and output types that a request uses.

They are recognised by attributes instead of classes, so that objects of other libraries work too.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard


class OfferedFunction(Protocol):
    """Function tool as used by every request."""

    name: str
    description: str
    params_json_schema: dict[str, Any]


class OfferedHandoff(Protocol):
    """Handoff as used by a request; a function for the model."""

    tool_name: str
    tool_description: str
    input_json_schema: dict[str, Any]


class OutputSchema(Protocol):
    """Output type as used by a request."""

    def is_plain_text(self) -> bool:
        """Return whether the answer is text instead of JSON."""
        ...

    def json_schema(self) -> dict[str, Any]:
        """Return the schema required of an answer."""
        ...

    def is_strict_json_schema(self) -> bool:
        """Return whether the provider enforces the schema."""
        ...


def is_function(tool: object) -> TypeGuard[OfferedFunction]:
    """Return whether a tool is a function tool, neither hosted nor free-form."""
    return hasattr(tool, "params_json_schema")
