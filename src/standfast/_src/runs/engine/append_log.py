"""An append-only log as a value: a shared list and a length.

Appending to the newest value extends the shared list; appending to an older one copies (a fork). So a run that goes
forward pays for what is new, and two futures of one past never see each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Generic, TypeVar, get_args, overload

import msgspec

from standfast._src.base.json_values import encode_value

T = TypeVar("T")


class Log(Generic[T]):
    """An immutable sequence with cheap appends."""

    __slots__ = ("_length", "_shared")

    def __init__(self, values: Iterable[T] = ()) -> None:
        self._shared: list[T] = list(values)
        self._length = len(self._shared)

    def appended(self, values: Iterable[T]) -> Log[T]:
        """Return this log followed by `values`."""
        shared = self._shared
        if len(shared) != self._length:  # a later value exists: this is a fork
            shared = shared[: self._length]
        shared.extend(values)
        log: Log[T] = Log.__new__(Log)
        log._shared, log._length = shared, len(shared)
        return log

    def since(self, start: int) -> list[T]:
        """The values from number `start` on, in time proportional to how many they are."""
        return self._shared[start : self._length]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return iter(self._shared[: self._length])

    @overload
    def __getitem__(self, index: int) -> T: ...

    @overload
    def __getitem__(self, index: slice) -> list[T]: ...

    def __getitem__(self, index: int | slice) -> T | list[T]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            # At the cost of the slice: an append takes a short one off a long log.
            return self._shared[start:stop] if step == 1 else list(self)[index]
        if index < 0:
            index += self._length
        if not 0 <= index < self._length:
            raise IndexError(index)
        return self._shared[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Log) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # holds JSON items, which cannot be hashed

    def __repr__(self) -> str:
        return f"Log({list(self)!r})"


# --- records with logs as JSON ---------------------------------------------------------------------------------------

NOT_OF_THE_TYPE = (msgspec.ValidationError, RecursionError, TypeError, ValueError)
"""Errors of `convert` for data of another type."""


def plain(value: object) -> Any:
    """Convert a record, logs included, to JSON values."""
    return msgspec.to_builtins(value, enc_hook=_encode_hook)


def encode_record(value: object) -> bytes:
    """Encode a record to the bytes of its `plain` form, directly if possible: a save encodes whole turns."""
    try:
        return _encode(value)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return encode_value(plain(value))  # a text in it cannot be written as UTF-8


def convert(data: object, kind: type[T]) -> T:
    """Restore a record from the result of `plain`; raise one of NOT_OF_THE_TYPE for anything else."""
    return msgspec.convert(data, kind, dec_hook=_decode_hook)


def _encode_hook(value: object) -> Any:
    if isinstance(value, Log):
        return [plain(record) for record in value]
    raise NotImplementedError(type(value).__name__)


_encode = msgspec.json.Encoder(enc_hook=_encode_hook).encode


def _decode_hook(kind: Any, value: object) -> Any:
    if getattr(kind, "__origin__", kind) is Log:
        (record,) = get_args(kind)
        return Log(convert(value, list[record]))  # type: ignore[valid-type]
    raise NotImplementedError(str(kind))
