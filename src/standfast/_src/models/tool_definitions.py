"""What a request says of the tools, handoffs and output types that a model is offered.

They are known by their attributes, not by their classes, so that anybody's may be used.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeGuard


class OfferedFunction(Protocol):
    """As much of a function tool as every request says of it."""

    name: str
    description: str
    params_json_schema: dict[str, Any]


class OfferedHandoff(Protocol):
    """As much of a handoff as a request says of it; to the model it is a function."""

    tool_name: str
    tool_description: str
    input_json_schema: dict[str, Any]


class OutputSchema(Protocol):
    """As much of an output type as a request says of it."""

    def is_plain_text(self) -> bool:
        """Whether the answer is text, and no JSON."""
        ...

    def json_schema(self) -> dict[str, Any]:
        """The schema that an answer must have."""
        ...

    def is_strict_json_schema(self) -> bool:
        """Whether the provider is to hold the model to the schema."""
        ...


def is_function(tool: object) -> TypeGuard[OfferedFunction]:
    """Whether this is a function tool; the others are hosted or free-form."""
    return hasattr(tool, "params_json_schema")
