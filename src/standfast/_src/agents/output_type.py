"""Output types of agents: the schema for the model, and the conversion from its text to a Python value.

Pydantic is imported when the first output type is used, never by `import standfast`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, Literal, get_args, get_origin

from standfast._src.base.errors import ModelBehaviorError, UserError
from standfast._src.tools.schema import TypeForm, validation_faults
from standfast._src.tools.strict_schema import ensure_strict_json_schema

WRAPPER_KEY = "response"
# Providers want an object at the root: any other type is put under this key, and taken out again.


class AgentOutputSchemaBase(ABC):
    """Description and reader of an agent's output. Subclass it for a custom format."""

    @abstractmethod
    def is_plain_text(self) -> bool:
        """Return whether the output is the model's text unchanged."""

    @abstractmethod
    def name(self) -> str:
        """The name of the output type."""

    @abstractmethod
    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of the output; asked only if it is not plain text."""

    @abstractmethod
    def is_strict_json_schema(self) -> bool:
        """Return whether the provider enforces the schema."""

    @abstractmethod
    def validate_json(self, json_str: str) -> Any:
        """Parse a text to a value; raise ModelBehaviorError if impossible."""


class AgentOutputSchema(AgentOutputSchemaBase):
    """The output schema of a Python type: anything pydantic understands."""

    def __init__(self, output_type: TypeForm, strict_json_schema: bool = True) -> None:
        self.output_type = output_type
        self._strict = strict_json_schema
        self._plain = output_type is None or output_type is str
        self._wrapped = not self._plain and not _is_object_type(output_type)
        if self._plain:
            self._schema: dict[str, Any] = {"type": "string"}
            return
        from pydantic import TypeAdapter

        self._adapter: TypeAdapter[Any] = TypeAdapter(_wrapper_of(output_type) if self._wrapped else output_type)
        self._schema = self._adapter.json_schema()
        if strict_json_schema:
            try:
                self._schema = ensure_strict_json_schema(self._schema)
            except UserError as error:
                raise UserError(
                    f"output type {self.name()} cannot have a strict schema: {error.what}",
                    "Wrap it: AgentOutputSchema(your_type, strict_json_schema=False).",
                ) from error

    def is_plain_text(self) -> bool:
        """Return whether the output is the model's text unchanged."""
        return self._plain

    def is_strict_json_schema(self) -> bool:
        """Return whether the provider enforces the schema."""
        return self._strict

    def json_schema(self) -> dict[str, Any]:
        """The JSON schema of the output."""
        if self._plain:
            raise UserError("a plain text output has no JSON schema", "Ask is_plain_text() first.")
        return self._schema

    def validate_json(self, json_str: str) -> Any:
        """Parse a text to a value; raise ModelBehaviorError, without the values, if impossible."""
        from pydantic import ValidationError

        try:
            # Where the provider holds the model to the schema, a value of another kind is the model's fault and not
            # made to fit; where it does not, what can be read as the type is.
            value = self._adapter.validate_json(json_str, strict=True if self._strict else None)
        except ValidationError as error:
            raise ModelBehaviorError(
                f"the final output is no {self.name()}: {validation_faults(error)}",
                "Handle it with error_handlers={'invalid_final_output': ...}, or make the type more forgiving.",
            ) from None  # the cause would carry the values
        return value[WRAPPER_KEY] if self._wrapped else value

    def dump_json(self, value: object) -> str:
        """Serialise a value to text; raise UserError for a value outside the output type."""
        from pydantic import ValidationError

        try:
            checked = self._adapter.validate_python({WRAPPER_KEY: value} if self._wrapped else value)
        except ValidationError as error:
            raise UserError(
                f"the value is no {self.name()}: {validation_faults(error)}", "Give a value of the agent's output_type."
            ) from None  # the cause would carry the values
        return self._adapter.dump_json(checked).decode("utf-8")

    def name(self) -> str:
        """Return the name of the output type, as Python writes it."""
        return _type_name(self.output_type)


def output_schema_of(output_type: object) -> AgentOutputSchemaBase | None:
    """The schema of an agent's `output_type`, made once for each type; None for plain text."""
    if output_type is None or output_type is str:
        return None
    if isinstance(output_type, AgentOutputSchemaBase):
        return output_type
    return _build_schema(output_type)


@lru_cache(maxsize=256)
def _build_schema(output_type: TypeForm) -> AgentOutputSchema:
    return AgentOutputSchema(output_type)


def _is_object_type(output_type: object) -> bool:
    kind = get_origin(output_type) or output_type
    if not isinstance(kind, type):
        return False
    from pydantic import BaseModel

    return issubclass(kind, BaseModel | dict)


def _wrapper_of(output_type: TypeForm) -> TypeForm:
    # pydantic wants typing_extensions' TypedDict below Python 3.12, and brings it with it.
    from typing_extensions import TypedDict

    return TypedDict("OutputType", {WRAPPER_KEY: output_type})  # type: ignore[operator]  # the key is a constant


def _type_name(kind: object) -> str:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is None:
        return getattr(kind, "__name__", None) or str(kind)
    # What a Literal holds are values, not types.
    inner = ", ".join(repr(one) if origin is Literal else _type_name(one) for one in arguments)
    return f"{getattr(origin, '__name__', str(origin))}[{inner}]"
