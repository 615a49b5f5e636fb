"""Reader of the server-sent events of the `openai` client, over the client's own connection.

The client validates every event against a union of some fifty types, which costs ten times more than the rest of a
streamed run. Nearly all events are deltas with equal keys. So the client makes the first delta of each shape, and this
module makes the later deltas alike: equal objects with the same class. All remaining events are made by the client.

Requests, retries, headers, timeouts, authentication and hooks remain the client's. A patched, wrapped or unknown client
keeps its own reader (`events_of`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import suppress
from types import FunctionType
from typing import Any, NoReturn

import msgspec

SHAPES_MAX = 64
"""Learned shapes; a server with ever new keys must not fill the memory."""

_decode = msgspec.json.Decoder().decode
_DELTA = ".delta"
_DONE = b"[DONE]"
_NEWLINE = ord("\n")
DRAIN_S = 0.1
"""Time for the end of the HTTP message after `[DONE]`, by which the connection can be used again; as the client."""
_put = object.__setattr__


def events_of(stream: Any) -> AsyncIterator[Any]:
    """Return the events of a stream: by this module for the client's own `AsyncStream`, else by the stream itself."""
    if not _is_plain(stream):
        return aiter(stream)
    return _read(stream)


# --- patched and wrapped clients -------------------------------------------------------------------------------------

_STREAM = "openai._streaming"
_STREAM_METHODS = ("__init__", "__anext__", "__aiter__", "__stream__", "_iter_events")
_DECODER_METHODS = ("__init__", "_reset", "_decode_lines", "aiter_bytes", "decode")


def _is_plain(stream: Any) -> bool:
    """Return whether a stream has the library's own reader, without changes by an instrumentation or a test."""
    kind = type(stream)
    if kind.__name__ != "AsyncStream" or not all(_is_from(vars(kind).get(name), _STREAM) for name in _STREAM_METHODS):
        return False
    # An instrumentation may replace the iterator of a single stream.
    iterator: Any = getattr(stream, "_iterator", None)
    if getattr(iterator, "ag_code", None) is not vars(kind)["__stream__"].__code__:
        return False
    decoder = type(getattr(stream, "_decoder", None))
    if not all(_is_from(vars(decoder).get(name), _STREAM) for name in _DECODER_METHODS):
        return False
    client = getattr(stream, "_client", None)
    process = getattr(getattr(client, "_process_response_data", None), "__func__", None)
    if not _is_from(process, "openai._base_client") or getattr(client, "_strict_response_validation", True):
        return False
    response = stream.response
    if not hasattr(response, "aiter_bytes") or getattr(response, "is_stream_consumed", True):
        return False
    is_wrapping_events = getattr(getattr(stream, "_options", None), "synthesize_event_and_data", False)
    return not is_wrapping_events and hasattr(stream, "_cast_to")


def _is_from(function: object, module: str) -> bool:
    """Return whether a function is a plain one of that module."""
    return isinstance(function, FunctionType) and function.__module__ == module and not hasattr(function, "__wrapped__")


# --- reading ---------------------------------------------------------------------------------------------------------


async def _read(stream: Any) -> AsyncIterator[Any]:
    response, blocks = stream.response, Blocks()
    chunks = response.aiter_bytes()
    try:
        async for chunk in chunks:
            for data in blocks.feed(chunk):
                if data.startswith(_DONE):
                    await _discard(chunks)
                    return
                yield _make_event(stream, data)
    except Exception as error:
        _raise_as_client(error, response)
    finally:
        await response.aclose()


async def _discard(chunks: AsyncIterator[bytes]) -> None:
    with suppress(Exception):
        async with asyncio.timeout(DRAIN_S):
            async for _ in chunks:
                pass


def _make_event(stream: Any, data: bytes) -> Any:
    """Return the event of a data field: a copy of a learned delta, or the client's object."""
    try:
        value = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _make_by_client(stream, data)
    if type(value) is not dict or type(kind := value.get("type")) is not str or not kind.endswith(_DELTA):
        return _make_by_client(stream, data)
    shape = (kind, *value)
    make = _makers.get(shape)
    if make is not None and (event := make(value)) is not None:
        return event
    event = _make_by_client(stream, data)
    if make is None and len(_makers) < SHAPES_MAX and "error" not in value:
        _makers[shape] = _learn(value, event)
    return event


def _make_by_client(stream: Any, data: bytes) -> Any:
    """Return the client's object for an event; raise the client's error for an event with an error, or without JSON."""
    value = json.loads(data.decode())
    if isinstance(value, Mapping) and (fault := value.get("error")):
        from openai import APIError

        said = fault.get("message") if isinstance(fault, Mapping) else None
        message = said if said and isinstance(said, str) else "An error occurred during streaming"
        raise APIError(message=message, request=stream.response.request, body=fault)
    return stream._client._process_response_data(data=value, cast_to=stream._cast_to, response=stream.response)


def _raise_as_client(error: Exception, response: Any) -> NoReturn:
    """Raise an error of the network as the client does, and any other error unchanged."""
    names = {kind.__name__ for kind in type(error).__mro__ if kind.__module__.partition(".")[0].startswith("httpx")}
    if "TimeoutException" in names or "RequestError" in names:
        from openai import APIConnectionError, APITimeoutError

        if "TimeoutException" in names:
            raise APITimeoutError(request=response.request) from error
        raise APIConnectionError(request=response.request) from error
    raise error


# --- deltas ----------------------------------------------------------------------------------------------------------

Maker = Callable[[dict[str, Any]], Any]


def _cannot(value: dict[str, Any]) -> None:
    """Leave every delta of a shape to the client."""


def _learn(value: dict[str, Any], event: Any) -> Maker:
    """Return a function for the deltas of a shape, after the example of the client's object.

    Only strings, integers and empty lists: their objects are the values themselves. A twin of the example is compared
    in full, so that a version of the libraries with other objects keeps the client's reader.
    """
    types = [type(one) for one in value.values()]
    try:
        own, extra, given = event.__dict__, event.__pydantic_extra__, event.__pydantic_fields_set__
        is_simple = all(
            one in (str, int) or (one is list and not value[name]) for name, one in zip(value, types, strict=True)
        )
        if not is_simple or event.__pydantic_private__ is not None or own.keys() | (extra or {}).keys() != value.keys():
            return _cannot
        make = _maker_of(type(event), tuple(own), None if extra is None else tuple(extra), frozenset(given), types)
        twin = make(value)
        is_equal = twin == event and repr(twin) == repr(event) and _dump(twin) == _dump(event)
        is_equal = is_equal and set(vars(twin)) == set(own) and twin.__pydantic_fields_set__ == given
    except Exception:
        return _cannot
    return make if is_equal else _cannot


def _dump(event: Any) -> tuple[str, dict[str, Any]]:
    return event.model_dump_json(), event.model_dump(exclude_unset=True)


def _maker_of(
    model: type[Any], names: tuple[str, ...], extras: tuple[str, ...] | None, given: frozenset[str], types: list[type]
) -> Maker:
    new: Any = model.__new__

    def make(value: dict[str, Any]) -> Any:
        for one, kind in zip(value.values(), types, strict=True):
            if type(one) is not kind or (kind is list and one):
                return None
        event = new(model)
        _put(event, "__dict__", {name: value[name] for name in names})
        _put(event, "__pydantic_fields_set__", set(given))
        _put(event, "__pydantic_extra__", None if extras is None else {name: value[name] for name in extras})
        _put(event, "__pydantic_private__", None)
        return event

    return make


_makers: dict[tuple[str, ...], Maker] = {}
"""A function for each learned shape: the type and the keys of an event in their order."""


# --- blocks ----------------------------------------------------------------------------------------------------------


class Blocks:
    """Incremental decoder of server-sent events into the bytes of their data fields."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._ends_in_return = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Yield the data of every event completed by this chunk. An event without its blank line is incomplete."""
        if self._ends_in_return and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        if not chunk:
            return
        self._ends_in_return = chunk.endswith(b"\r")
        if b"\r" in chunk:
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        parts = self._parts
        parts.append(chunk)
        is_cut_between = len(parts) > 1 and chunk[0] == _NEWLINE and parts[-2][-1] == _NEWLINE
        if not is_cut_between and b"\n\n" not in chunk:
            return  # a large event in many chunks is joined once
        *blocks, rest = b"".join(parts).split(b"\n\n")
        self._parts = [rest] if rest else []
        for block in blocks:
            data = _data_of(block)
            if data is not None:
                yield data


def _data_of(block: bytes) -> bytes | None:
    """Return the joined data lines of an event; None for an event without data."""
    found = []
    for line in block.split(b"\n"):
        name, _, value = line.partition(b":")
        if name == b"data":
            found.append(value.removeprefix(b" "))
    return b"\n".join(found) if found else None
