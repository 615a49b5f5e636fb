"""Exact conversion of items to bytes and back.

`encode` returns bytes only if they decode to an equal value, so a stored item never reads back as a different one
(A17). `decode` reads everything that Python's own `json` reads, faster if possible. Bytes that Python's `json` cannot
read as an object are corrupt (A14) and raise `CorruptJSON`, never a wrong value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, TypeAlias, TypeVar, overload

import msgspec

from standfast._src.base.errors import ItemNotStorableError
from standfast._src.base.type_names import describe_type

Item = dict[str, Any]
"""One JSON object of history, in the Responses input format."""

JsonValue: TypeAlias = Any
"""Any JSON value, to be walked: dict, list, str, int, float, bool or None.

As a union of these types, code that walks a value would have to check at each step what its shape says already."""

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

DIGEST_BYTES = 16
# A digest tells two histories under one name apart; it is no signature. 128 bits make an accident impossible.

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_fast_encode = msgspec.json.Encoder().encode
_fast_decode = msgspec.json.Decoder().decode
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


class CorruptJSON(ValueError):
    """Stored bytes that are not a JSON object for Python's json."""


def encode(item: object) -> bytes:
    """Return bytes that decode to an equal item; raise ItemNotStorableError if impossible."""
    if not isinstance(item, dict):
        raise ItemNotStorableError(
            f"{describe_type(item)} is not a conversation item",
            "Give a dict with string keys, in the Responses input format.",
        )
    try:
        data = _fast_encode(item)
        if _fast_decode(data) == item:
            return data
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError):
        pass
    text = _encode_slowly(item)
    if text is None:
        raise ItemNotStorableError(
            f"the item is not JSON: {_first_fault(item, 'item')}",
            "Use only dict (string keys), list, str, int, finite float, bool and None; convert the rest first.",
        )
    return text


def encode_many(items: Iterable[Any]) -> list[bytes]:
    """`encode` each item; raise ItemNotStorableError for the first unstorable item.

    One loop and not `map` over the whole batch: a turn has few items, and for one it takes half the time.
    """
    found: list[bytes] = []
    for item in items:
        try:
            data = _fast_encode(item)
            if type(item) is dict and _fast_decode(data) == item:
                found.append(data)
                continue
        except (msgspec.MsgspecError, TypeError, ValueError, RecursionError, OverflowError):
            pass
        found.append(encode(item))
    return found


def decode(data: bytes) -> Item:
    """Decode a JSON object, like Python's json; raise CorruptJSON for any other bytes."""
    value = decode_value(data)
    if type(value) is not dict:
        raise CorruptJSON(type(value).__name__)
    return value


def encode_value(value: object) -> bytes:
    """The bytes of any JSON value. Text that UTF-8 cannot hold is escaped as Python's json does."""
    try:
        return _fast_encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return json.dumps(value, separators=(",", ":")).encode("ascii")


def decode_value(data: bytes) -> JsonValue:
    """Decode a JSON value; raise CorruptJSON for any other bytes."""
    try:
        return _fast_decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        try:  # NaN, lone surrogates and numbers out of range are JSON to Python and so to the SDK that wrote them
            return json.loads(data.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise CorruptJSON(type(error).__name__) from None


def decode_many(records: Sequence[bytes]) -> list[Item]:
    """`decode` each record, faster for a whole history; raise CorruptJSON if any record is corrupt."""
    try:
        found = list(map(_fast_decode, records))
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return [decode(data) for data in records]
    kinds = set(map(type, found))
    if kinds <= {dict}:
        return found
    raise CorruptJSON(", ".join(sorted(kind.__name__ for kind in kinds - {dict})))


def are_items(records: Sequence[bytes]) -> bool:
    """Return whether every record is an object. False may also mean that only `decode`, record by record, can tell.

    Quicker than `decode_many`, because no more than one of the objects is there at a time.
    """
    try:
        return set(map(type, map(_fast_decode, records))) <= {dict}
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return False


def digest(data: bytes) -> bytes:
    """Return a digest that identifies an encoded item: equal bytes, equal digest."""
    return digest_many((data,))[0]


def digest_many(records: Iterable[bytes]) -> list[bytes]:
    """`digest` of each."""
    found: list[bytes] = []
    for data in records:
        made = _no_data.copy()  # two thirds of the time of one with this size made anew
        made.update(data)
        found.append(made.digest())
    return found


_no_data = blake2b(digest_size=DIGEST_BYTES)


def in_ascii(data: bytes) -> bytes:
    """The same JSON in ASCII: only strings hold anything else, and there it can be escaped."""
    if data.isascii():
        return data
    return _NOT_ASCII.sub(lambda found: json.dumps(found[0])[1:-1], data.decode()).encode()


@overload
def copy_json(value: dict[K, V]) -> dict[K, V]: ...


@overload
def copy_json(value: Mapping[K, V]) -> dict[K, V]: ...


@overload
def copy_json(value: T) -> T: ...


def copy_json(value: JsonValue) -> JsonValue:
    """Deep-copy a JSON value. Objects other than JSON are passed through uncopied."""
    kind = type(value)
    if kind is str or kind is int or kind is bool or kind is float or value is None:
        return value
    if kind is dict:
        return {key: inner if type(inner) is str else copy_json(inner) for key, inner in value.items()}
    if kind is list:
        return [copy_json(inner) for inner in value]
    if isinstance(value, Mapping):
        return {key: copy_json(inner) for key, inner in value.items()}
    return value


def _encode_slowly(item: Item) -> bytes | None:
    """Encode with Python's json; return None if the bytes do not read back equal."""
    try:
        text = json.dumps(item, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        if json.loads(text) == item:
            return text.encode("ascii")
    except (TypeError, ValueError, RecursionError):
        pass
    return None


_FORMAT_KEYS = frozenset({
    *("type", "role", "id", "call_id", "name", "status", "caller"),
    *("content", "text", "refusal", "transcript", "summary", "encrypted_content", "annotations", "logprobs"),
    *("arguments", "input", "output", "outputs", "action", "queries", "results", "code"),
})  # fmt: skip
"""Keys of the Responses format. Any other key may be something that a person said."""


def _first_fault(value: object, path: str) -> str:
    """Describe the path of the first value without a JSON form. Content and keys may be private and are left out."""
    if isinstance(value, dict):
        for place, (key, inner) in enumerate(value.items()):
            if not isinstance(key, str):
                return f"{path} has a key that is {describe_type(key)}"
            if _PAIR.search(key):
                return f"{path} has a key that holds the two halves of a surrogate pair apart"
            try:
                fault = _first_fault(inner, f"{path}[{repr(key) if key in _FORMAT_KEYS else f'key {place}'}]")
            except RecursionError:
                return f"{path} is nested too deeply"
            if fault:
                return fault
        return ""
    if isinstance(value, list):
        for index, inner in enumerate(value):
            fault = _first_fault(inner, f"{path}[{index}]")
            if fault:
                return fault
        return ""
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f"{path} is {value}"
    if isinstance(value, str) and _PAIR.search(value):
        return f"{path} holds the two halves of a surrogate pair apart, which JSON reads as one character"
    if value is None or isinstance(value, str | bool | float):
        return ""
    if isinstance(value, int):
        try:
            str(value)
        except ValueError:
            return f"{path} is an integer with too many digits for Python's json"
        return ""
    return f"{path} is {describe_type(value)}"
