"""Methods of pydantic models, for classes with a pydantic model as counterpart in the SDK.

The methods import pydantic at the first call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, Self, get_type_hints

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import CoreSchema


def _adapter(cls: Any) -> TypeAdapter[Any]:
    return _build_adapter(cls)


@cache
def _build_adapter(cls: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(cls)


class PydanticMethods:
    """Methods that programs call on the SDK's models. The class itself is a dataclass, or has a schema for pydantic."""

    def model_dump(self, **options: Any) -> dict[str, Any]:
        """Return the fields as a dict, with pydantic's options."""
        dumped: dict[str, Any] = _adapter(type(self)).dump_python(self, **options)
        return dumped

    def model_dump_json(self, **options: Any) -> str:
        """Return the fields as JSON text, with pydantic's options."""
        return _adapter(type(self)).dump_json(self, **options).decode()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**{**vars(self), **(update or {})})

    @classmethod
    def model_validate(cls, value: Any, **options: Any) -> Self:
        """Build an object from a dict; raise pydantic's ValidationError if it does not fit."""
        made: Self = _adapter(cls).validate_python(value, **options)
        return made

    @classmethod
    def model_validate_json(cls, text: str | bytes, **options: Any) -> Self:
        """Build an object from JSON text; raise pydantic's ValidationError if it does not fit."""
        made: Self = _adapter(cls).validate_json(text, **options)
        return made

    @classmethod
    def model_json_schema(cls, **options: Any) -> dict[str, Any]:
        """Return the JSON schema of the class."""
        return _adapter(cls).json_schema(**options)


def build_schema(
    cls: type[Any], defaults: Mapping[str, Any], dump: Callable[[Any], dict[str, Any]], handler: Any
) -> CoreSchema:
    """Build the pydantic schema of a class with typed fields and room for unknown fields.

    pydantic reads and checks the fields with a model of the same fields, and the values make the object.
    """
    from pydantic import ConfigDict, create_model
    from pydantic_core import core_schema

    hints = {name: kind for name, kind in get_type_hints(cls).items() if not name.startswith("_")}
    fields: dict[str, Any] = {name: (kind, defaults.get(name, ...)) for name, kind in hints.items()}
    model = create_model(cls.__name__, __config__=ConfigDict(extra="allow"), **fields)

    def validate(value: Any, read: Callable[[Any], Any]) -> Any:
        if isinstance(value, cls):
            return value
        made = read(value)
        return cls(**{name: getattr(made, name) for name in hints}, **(made.model_extra or {}))

    return core_schema.no_info_wrap_validator_function(
        validate, handler.generate_schema(model), serialization=core_schema.plain_serializer_function_ser_schema(dump)
    )
