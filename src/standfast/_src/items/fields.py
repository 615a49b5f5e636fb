"""Conversion of items from typed provider objects, mappings and plain dicts to JSON.

No provider library is imported here; typed objects are known by what they can do.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

from standfast._src.base.errors import StandfastError
from standfast._src.base.json_values import Item, JsonValue
from standfast._src.base.type_names import describe_type
from standfast._src.items.openai_compat import openai_class

RawItem: TypeAlias = Any
"""An item as a model or a program gives it: a provider's typed object, a mapping or a plain dict. `read` reads each."""

RawValue: TypeAlias = Any
"""A value inside such an item."""

_ATOMS = frozenset({str, int, float, bool, type(None)})


class ReadableItem(dict[str, Any]):
    """A plain item with fields readable as attributes, like a typed object of a provider.

    Programs read `item.raw_item.name` and `raw_item.content[0].text`; where a model gave plain dicts, or a run was
    resumed from its JSON, that must not be an error. What is read this way is a copy below the first level.
    """

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        try:
            value = self[name]
        except KeyError:
            if name == "id":
                return None  # every typed item has one; of an item that no provider made it is not known
            raise AttributeError(f"this item has no {name!r}") from None
        return _readable(value)

    def _apparent_class(self) -> type[Any]:
        return openai_class("ResponseOutputItem", self.get("type")) or ReadableItem

    # Programs ask `isinstance(item.raw_item, ResponseFunctionToolCall)`, and Python then asks the object for its class.
    # An item really made of that class would no longer be a dict for the rest of the program.
    __class__ = property(_apparent_class)

    def model_dump(self, **options: object) -> dict[str, Any]:
        """Return the item as plain JSON, like a typed item. Unset fields are absent, whatever the options."""
        return {name: to_plain(value) for name, value in self.items()}

    def __reduce__(self) -> tuple[Any, ...]:
        return ReadableItem, (dict(self),)


def readable(item: object) -> Any:
    """Wrap a plain dict in a `ReadableItem`; return any other object unchanged."""
    return ReadableItem(item) if type(item) is dict else item


def _readable(value: object) -> Any:
    return [_readable(inner) for inner in value] if isinstance(value, list) else readable(value)


def make_typed(module: str, name: str, values: Mapping[str, Any]) -> Any:
    """Build openai's object of a class, unchecked, if that package is loaded; else a `ReadableItem` of the values."""
    if "openai" not in sys.modules:
        return ReadableItem(values)
    return getattr(importlib.import_module(module), name).construct(**values)


# --- from whatever a model gives to JSON -----------------------------------------------------------------------------


def to_plain(value: RawValue) -> JsonValue:
    """Return the JSON value of any object of a provider library. Mutable parts are copied.

    Values without a JSON form are returned unchanged; the encoder reports them with their path.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict or kind is ReadableItem:
        return {key: inner if type(inner) in _ATOMS else to_plain(inner) for key, inner in value.items()}
    if kind is list or kind is tuple:
        return [inner if type(inner) in _ATOMS else to_plain(inner) for inner in value]
    return _plain_object(value)


def _plain_object(value: RawValue) -> JsonValue:
    if hasattr(value, "model_dump"):
        # Only what was set: a provider refuses the defaults of its own output types as input. Under the names of the
        # wire, where Python forced another one on the attribute (`async_`). A library that builds its objects without
        # validation would warn about each of them: it is what it gave that counts.
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    if isinstance(value, Mapping):
        return {key: to_plain(inner) for key, inner in value.items()}
    if isinstance(value, enum.Enum):
        return to_plain(value.value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, Iterable) and not isinstance(value, bytes | bytearray | memoryview):
        return [to_plain(inner) for inner in value]
    return value


def to_json_item(value: RawItem) -> Item:
    """Convert a dict, a mapping, a typed provider object or any record with a `type` to a plain JSON item."""
    if type(value) is dict or type(value) is ReadableItem:
        return {key: inner if type(inner) in _ATOMS else to_plain(inner) for key, inner in value.items()}
    plain = to_plain(value)
    if type(plain) is dict:
        return plain
    if getattr(value, "type", None) is not None and hasattr(value, "__dict__"):
        return {name: to_plain(inner) for name, inner in vars(value).items()}
    raise StandfastError(
        f"{describe_type(value)} is not a conversation item",
        "Give a dict in the Responses format, or the provider library's own object.",
    )


def to_input_json(value: RawItem) -> Item:
    """Return an item as JSON in the form that a provider accepts as input, without output-only fields."""
    item = to_json_item(value)
    item.pop("created_by", None)
    if item.get("type") == "shell_call_output":
        for name in ("status", "shell_output", "provider_data"):
            item.pop(name, None)
    return item


def read(item: object, name: str) -> Any:
    """Return a field of a mapping or an object, or None if the field is missing."""
    if type(item) is dict or isinstance(item, Mapping):
        return item.get(name)
    return getattr(item, name, None)
