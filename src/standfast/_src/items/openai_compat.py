"""Records that behave like classes of the `openai` package, without requiring the package.

Programs written for the SDK compare usage details and reasoning settings with objects of `openai`, ask `isinstance`,
and call `model_dump`. If that package is loaded, the values are instances of its classes. If not, no program can have
asked, and a record with the same attributes, `model_dump` and equality stands in. Nothing here imports `openai`: a
program with another provider does not pay for the import.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast, get_args


class _Shape:
    """Behaviour shared by the stand-ins for pydantic models of `openai`."""

    __slots__ = ()

    def model_dump(self, **options: object) -> dict[str, Any]:
        """Return the fields as a dict. `exclude_none` and `exclude_unset` leave out fields of value None."""
        values = {field.name: getattr(self, field.name) for field in fields(cast(Any, self))}
        sparse = options.get("exclude_none") or options.get("exclude_unset")
        return {name: value for name, value in values.items() if value is not None} if sparse else values

    def __eq__(self, other: object) -> bool:
        if type(other).__name__ != type(self).__name__:
            return NotImplemented
        return all(getattr(other, name, None) == value for name, value in self.model_dump().items())

    __hash__ = None  # type: ignore[assignment]  # as theirs: they can be changed


@dataclass(slots=True, eq=False)
class InputTokensDetails(_Shape):
    """Counts of input tokens read from, or written to, the provider's prompt cache."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(slots=True, eq=False)
class OutputTokensDetails(_Shape):
    """Count of output tokens spent on reasoning."""

    reasoning_tokens: int = 0


@dataclass(slots=True, eq=False)
class Reasoning(_Shape):
    """Settings of a reasoning model: `effort`, and the summary to give."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


_USAGE = "openai.types.responses.response_usage"
_REASONING = "openai.types.shared.reasoning"


def input_details(cached_tokens: int = 0, cache_write_tokens: int = 0) -> InputTokensDetails:
    """Build details of input tokens, of openai's class if loaded, else of the class here."""
    return input_details_class()(cached_tokens=cached_tokens, cache_write_tokens=cache_write_tokens)


def output_details(reasoning_tokens: int = 0) -> OutputTokensDetails:
    """Build details of output tokens, of openai's class if loaded, else of the class here."""
    return output_details_class()(reasoning_tokens=reasoning_tokens)


def input_details_class() -> type[InputTokensDetails]:
    """Return the class that `input_details` uses at present."""
    return _class(_USAGE, "InputTokensDetails") or InputTokensDetails


def output_details_class() -> type[OutputTokensDetails]:
    """Return the class that `output_details` uses at present."""
    return _class(_USAGE, "OutputTokensDetails") or OutputTokensDetails


def reasoning_of(value: object) -> Any:
    """A setting given as a dict as `openai.types.shared.Reasoning` would read it; anything else is kept.

    A dict with keys that our stand-in does not know is kept as it is where `openai` is not loaded.
    """
    if not isinstance(value, Mapping):
        return value
    theirs = _class(_REASONING, "Reasoning")
    if theirs is not None:
        return theirs(**value)
    return Reasoning(**value) if value.keys() <= _REASONING_FIELDS else value


_REASONING_FIELDS = {field.name for field in fields(Reasoning)}


def _class(module: str, name: str) -> type[Any] | None:
    # Loaded, not importable: what is not loaded cannot be compared with.
    return getattr(sys.modules.get(module), name, None)


# --- items and events ------------------------------------------------------------------------------------------------

_classes: dict[str, dict[str, type[Any]]] = {}


def openai_class(union: str, kind: object) -> type[Any] | None:
    """Return openai's class for an item or event of a type, or None if unknown or not loaded.

    `union` names openai's union of all such classes: `ResponseOutputItem` or `ResponseStreamEvent`.
    """
    module = sys.modules.get("openai.types.responses")
    if module is None or not isinstance(kind, str):
        return None
    if union not in _classes:
        found = {}
        for member in _members(getattr(module, union, None)):
            for name in get_args(member.model_fields["type"].annotation):
                found[name] = member
        _classes[union] = found
    return _classes[union].get(kind)


def _members(union: object) -> Iterator[Any]:
    """Yield the models of a union, annotated or not."""
    if hasattr(union, "model_fields"):
        if "type" in union.model_fields:
            yield union
        return
    for inner in get_args(union):
        yield from _members(inner)
