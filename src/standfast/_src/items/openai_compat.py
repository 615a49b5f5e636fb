"""Small records that behave as classes of the `openai` package do, without needing it.

Programs written for the SDK compare usage details and reasoning settings with objects of `openai`, ask
`isinstance`, and call `model_dump`. Where that package is loaded, these values are made of its own classes; where it is
not, nobody can have asked, and a record of ours with the same attributes, `model_dump` and equality stands in. So
nothing here ever imports `openai`: a program with another provider does not pay for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any, cast, get_args


class _Shape:
    """What a record of ours shares with the pydantic model it stands in for."""

    __slots__ = ()

    def model_dump(self, **options: object) -> dict[str, Any]:
        """The fields as a dict; `exclude_none` and `exclude_unset` leave out what is None."""
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
    """How many of the input tokens were read from, or written to, the provider's prompt cache."""

    cached_tokens: int = 0
    cache_write_tokens: int = 0


@dataclass(slots=True, eq=False)
class OutputTokensDetails(_Shape):
    """How many of the output tokens were spent on reasoning."""

    reasoning_tokens: int = 0


@dataclass(slots=True, eq=False)
class Reasoning(_Shape):
    """How a reasoning model is to think: `effort`, and the summary to give."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


_USAGE = "openai.types.responses.response_usage"
_REASONING = "openai.types.shared.reasoning"


def input_details(cached_tokens: int = 0, cache_write_tokens: int = 0) -> InputTokensDetails:
    """Details of input tokens: of openai's class where that is loaded, else ours."""
    return input_details_class()(cached_tokens=cached_tokens, cache_write_tokens=cache_write_tokens)


def output_details(reasoning_tokens: int = 0) -> OutputTokensDetails:
    """Details of output tokens: of openai's class where that is loaded, else ours."""
    return output_details_class()(reasoning_tokens=reasoning_tokens)


def input_details_class() -> type[InputTokensDetails]:
    """The class of which `input_details` are made now."""
    return _class(_USAGE, "InputTokensDetails") or InputTokensDetails


def output_details_class() -> type[OutputTokensDetails]:
    """The class of which `output_details` are made now."""
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
    """openai's class for an item or event of this type, where that package is loaded; None for any other.

    `union` is its name for all of them: `ResponseOutputItem` or `ResponseStreamEvent`.
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
    """The models of a union, however it is annotated."""
    if hasattr(union, "model_fields"):
        if "type" in union.model_fields:
            yield union
        return
    for inner in get_args(union):
        yield from _members(inner)
