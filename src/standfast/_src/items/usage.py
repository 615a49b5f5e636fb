"""Cost of model calls: token counts of a request, and their sum over a run.

These are plain records with the SDK's attribute names; no provider library is needed to make one (`openai_compat` makes
their details instances of the SDK's classes where needed). A provider's usage (an object or a mapping, in the Responses
or the Chat Completions spelling) is read once by `Usage.from_provider`; from then on only these types are added up. A
run's usage changes only by `add`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field
from typing import Any, SupportsInt, TypeAlias

from standfast._src.items.openai_compat import (
    InputTokensDetails,
    OutputTokensDetails,
    input_details,
    input_details_class,
    output_details,
    output_details_class,
)


class _Counts(tuple[int, ...]):
    """Raw counts stored in place of details until first read, because openai's classes validate their arguments."""

    __slots__ = ()


_Details: TypeAlias = Any
"""Details, or the counts in their place: no annotation can say that reading the attribute makes one of the other."""

_NO_INPUT: _Details = _Counts((0, 0))
_NO_OUTPUT: _Details = _Counts((0,))


@dataclass(slots=True)
class RequestUsage:
    """Tokens of a single request. Never changed once part of a `Usage`."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails

    def to_json(self) -> dict[str, Any]:
        """The entry as plain JSON, in the shape `Usage.from_json` reads."""
        (cached, written), (reasoned,) = _counts_of(self)
        return {
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "total_tokens": self.total_tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "output_tokens_details": {"reasoning_tokens": reasoned},
        }


@dataclass(slots=True)
class Usage:
    """Tokens and requests of a reply, or of a whole run; `request_usage_entries` has an entry for each request."""

    requests: int = 0
    input_tokens: int = 0
    input_tokens_details: InputTokensDetails = _NO_INPUT
    output_tokens: int = 0
    output_tokens_details: OutputTokensDetails = _NO_OUTPUT
    total_tokens: int = 0
    request_usage_entries: list[RequestUsage] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Providers leave the details out, and older code passes its own objects: read both, once, here.
        of_input, of_output = _get_details(self)
        if of_input is not _NO_INPUT:
            self.input_tokens_details = _input_details(of_input)
        if of_output is not _NO_OUTPUT:
            self.output_tokens_details = _output_details(of_output)

    def add(self, other: Usage) -> None:
        """Add another usage: sum the counts, and append copies of its entries.

        A single request with tokens but without an entry becomes an entry.
        """
        (cached, written), (reasoned,) = _counts_of(other)
        tokens_in, tokens_out = other.input_tokens or 0, other.output_tokens or 0
        tokens = other.total_tokens or 0
        self.requests += other.requests or 0
        self.input_tokens += tokens_in
        self.output_tokens += tokens_out
        self.total_tokens += tokens
        # Only where there is something to add: a provider's own details may know more than we count.
        if cached or written or reasoned:
            (cached_before, written_before), (reasoned_before,) = _counts_of(self)
            if cached or written:
                self.input_tokens_details = _as_details((cached_before + cached, written_before + written))
            if reasoned:
                self.output_tokens_details = _as_details((reasoned_before + reasoned,))
        entries = other.request_usage_entries
        if entries:
            self.request_usage_entries.extend([_read_entry(entry) for entry in entries])
        elif other.requests == 1 and (tokens or tokens_in or tokens_out):
            self.request_usage_entries.append(_read_entry(other))

    def after_failed_attempts(self, count: int) -> Usage:
        """Return a copy that also counts failed requests: an entry for each request, without tokens for the failed."""
        counted = self.copy()
        counted.requests = max(self.requests, 1) + count
        failed = [RequestUsage(0, 0, 0, _NO_INPUT, _NO_OUTPUT) for _ in range(count)]
        # A server may report no tokens, or none while streaming: its request is an entry all the same.
        counted.request_usage_entries = [*failed, *(self.request_usage_entries or [_read_entry(self)])]
        return counted

    def copy(self) -> Usage:
        """Return an independent copy: later additions to either never show in the other."""
        of_input, of_output = _counts_of(self)
        return Usage(
            self.requests,
            self.input_tokens,
            _as_details(of_input),
            self.output_tokens,
            _as_details(of_output),
            self.total_tokens,
            list(self.request_usage_entries),
        )

    def to_json(self) -> dict[str, Any]:
        """The usage as plain JSON."""
        (cached, written), (reasoned,) = _counts_of(self)
        return {
            "requests": self.requests,
            "input_tokens": self.input_tokens,
            "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
            "output_tokens": self.output_tokens,
            "output_tokens_details": {"reasoning_tokens": reasoned},
            "total_tokens": self.total_tokens,
            "request_usage_entries": [entry.to_json() for entry in self.request_usage_entries],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Usage:
        """The usage that `to_json` gave; the SDK's own layout (details inside a list) is read too.

        Raises ValueError for a count that is not a finite number.
        """
        return cls(
            _count(data.get("requests")),
            _count(data.get("input_tokens")),
            _input_details(data.get("input_tokens_details")),
            _count(data.get("output_tokens")),
            _output_details(data.get("output_tokens_details")),
            _count(data.get("total_tokens")),
            [_read_entry(entry) for entry in data.get("request_usage_entries") or ()],
        )

    @classmethod
    def from_provider(cls, value: object, *, requests: int = 1) -> Usage:
        """Convert a provider's usage, in any spelling. A `Usage` is returned unchanged.

        None (a provider without usage reports) counts the request and no tokens.
        """
        if type(value) is Usage:
            return value
        if value is None:
            return cls(requests)
        read = _reader(value)
        tokens_in = _count(read("input_tokens")) or _count(read("prompt_tokens"))
        tokens_out = _count(read("output_tokens")) or _count(read("completion_tokens"))
        counted = read("requests")  # an agents.Usage counts its own requests; a provider's object has no such field
        return cls(
            requests if counted is None else _count(counted),
            tokens_in,
            _input_details(read("input_tokens_details") or read("prompt_tokens_details")),
            tokens_out,
            _output_details(read("output_tokens_details") or read("completion_tokens_details")),
            _count(read("total_tokens")) or tokens_in + tokens_out,
            [_read_entry(entry) for entry in read("request_usage_entries") or ()],
        )


def _reader(value: object) -> Callable[[str], Any]:
    """Return a function that reads a field of a mapping or an object by name, or gives None."""
    return value.get if isinstance(value, Mapping) else lambda name: getattr(value, name, None)


def _count(value: str | SupportsInt | None) -> int:
    try:
        return int(value) if value else 0
    except OverflowError:
        raise ValueError(f"{value!r} does not count anything") from None


def _first(value: object) -> object:
    # The SDK's saved states hold the details inside a list of one.
    return (value[0] if value else None) if isinstance(value, list | tuple) else value


def _input_details(value: object) -> _Details:
    """Read the counts of details of any form. Complete details of the current class are returned unchanged."""
    if type(value) is input_details_class() and None not in (value.cached_tokens, value.cache_write_tokens):
        return value
    return _counts(value, _NO_INPUT, "cached_tokens", "cache_write_tokens")


def _output_details(value: object) -> _Details:
    if type(value) is output_details_class() and value.reasoning_tokens is not None:
        return value
    return _counts(value, _NO_OUTPUT, "reasoning_tokens")


def _counts(value: object, none: _Counts, *names: str) -> _Counts:
    """Read the named counts from details of any form."""
    if type(value) is _Counts:
        return value
    value = _first(value)
    if value is None:
        return none
    read = _reader(value)
    return _Counts([_count(read(name)) for name in names])


def _as_details(counts: tuple[int, ...]) -> _Details:
    """Store counts in the place of details."""
    return _Counts(counts)


def _read_entry(entry: object) -> RequestUsage:
    read = _reader(entry)
    return RequestUsage(
        _count(read("input_tokens")), _count(read("output_tokens")), _count(read("total_tokens")), *_counts_of(entry)
    )


# --- details that are made when they are read ------------------------------------------------------------------------


def _make_lazy_field(
    kind: type[Usage] | type[RequestUsage], name: str, make: Callable[..., _Details]
) -> Callable[[object], _Details]:
    """Let a field of a slotted class hold counts until first read; return the raw getter."""
    slot = vars(kind)[name]

    def details(counted: Usage | RequestUsage) -> _Details:
        """Counts of cached tokens, or of reasoning tokens."""
        held = slot.__get__(counted)
        if type(held) is _Counts:
            held = make(*held)
            slot.__set__(counted, held)
        return held

    setattr(kind, name, property(details, slot.__set__))
    described = kind.__dataclass_fields__[name]
    if described.default is not MISSING:  # a reader of the fields, such as pydantic, cannot use raw counts
        described.default, described.default_factory = MISSING, make
    as_held: Callable[[object], _Details] = slot.__get__
    return as_held


_HELD: dict[type, tuple[Callable[[object], _Details], Callable[[object], _Details]]] = {
    kind: (
        _make_lazy_field(kind, "input_tokens_details", input_details),
        _make_lazy_field(kind, "output_tokens_details", output_details),
    )
    for kind in (Usage, RequestUsage)
}


def _get_details(counted: object) -> tuple[_Details, _Details]:
    """Return the details of any usage or entry in their stored form."""
    held = _HELD.get(type(counted))
    if held is not None:
        return held[0](counted), held[1](counted)
    read = _reader(counted)
    return read("input_tokens_details"), read("output_tokens_details")


def _counts_of(counted: object) -> tuple[_Details, _Details]:
    """Return the counts of both details of a usage or an entry."""
    of_input, of_output = _get_details(counted)
    if type(of_input) is not _Counts:
        of_input = _counts(of_input, _NO_INPUT, "cached_tokens", "cache_write_tokens")
    if type(of_output) is not _Counts:
        of_output = _counts(of_output, _NO_OUTPUT, "reasoning_tokens")
    return of_input, of_output


# --- the SDK's forms -------------------------------------------------------------------------------------------------


def serialize_usage(usage: Usage) -> dict[str, Any]:
    """Convert a usage to JSON in the SDK's layout, with each kind of details in a list of length 1."""
    entries = [_with_details(entry.to_json(), entry) for entry in usage.request_usage_entries]
    told = _with_details(usage.to_json(), usage)
    for name in ("input_tokens_details", "output_tokens_details"):
        told[name] = [told[name]]
    return {**told, "request_usage_entries": entries}


def _with_details(told: dict[str, Any], counted: Usage | RequestUsage) -> dict[str, Any]:
    """Add all fields of the details: a provider's own class may know more than is counted here."""
    told["input_tokens_details"] = counted.input_tokens_details.model_dump()
    told["output_tokens_details"] = counted.output_tokens_details.model_dump()
    return told


def deserialize_usage(usage_data: Mapping[str, Any]) -> Usage:
    """Restore a usage from the result of `serialize_usage`."""
    return Usage.from_json(usage_data)


def model_usage_to_span_usage(usage: Usage) -> dict[str, Any]:
    """Return the token counts for the span of a request."""
    told = usage.to_json()
    del told["request_usage_entries"]
    return told


def turn_usage_to_span_data(usage: Usage) -> dict[str, int]:
    """Return the token counts for the span of a turn."""
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cached_input_tokens": usage.input_tokens_details.cached_tokens,
        "cache_write_input_tokens": usage.input_tokens_details.cache_write_tokens,
    }


def task_usage_to_span_data(usage: Usage) -> dict[str, int]:
    """Return the token counts for the span of a whole run."""
    return {**turn_usage_to_span_data(usage), "requests": usage.requests, "total_tokens": usage.total_tokens}


def total_usage_to_span_metadata(usage: Usage) -> dict[str, int]:
    """The tokens of a whole run as metadata of a trace."""
    return task_usage_to_span_data(usage)
