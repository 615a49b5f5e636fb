"""Values as they are in the tables: times as text, records as bytes."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache

BEYOND = 2**63 - 1
"""Larger than any row id."""


_NOW_BYTES = len("2026-01-31 12:00:00.000000")


def now_text(now: float) -> str:
    """A time as SQLite and the SDK write it, in UTC, with microseconds."""
    seconds, part = divmod(now, 1)
    digits = str(1_000_000 + int(part * 1e6))  # a third less than a format with leading zeros
    return f"{_second_text(seconds)}.{digits[1:]}"


def time_text(at: float | None) -> str | None:
    """A time that was read elsewhere, to the microsecond; whole seconds as the SDK writes them."""
    if at is None:
        return None
    seconds, part = divmod(round(at * 1e6), 1_000_000)
    return f"{_second_text(seconds)}.{part:06d}" if part else _second_text(seconds)


@lru_cache(maxsize=2)
def _second_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def after_text(stored: bytes) -> str:
    """A moment after a stored time: for a change where the clock is not past the one before it (A16)."""
    try:
        later = _as_time(stored.decode(errors="replace")) + timedelta(milliseconds=1)
        return later.strftime("%Y-%m-%d %H:%M:%S.%f")
    except ValueError:
        return now_text(time.time())  # somebody else's notion of a time


@lru_cache(maxsize=256)
def as_seconds(value: object) -> float:
    """A stored time in seconds since 1970; the SDK writes UTC without saying so."""
    try:
        if type(value) is bytes and len(value) == _NOW_BYTES and value[19:20] == b"." and value[20:].isdigit():
            return (_whole_seconds(value[:19]) * 1e6 + int(value[20:])) / 1e6  # as `now_text` writes: nearly always
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return _as_time(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0  # somebody else's notion of a time; not worth failing a listing


@lru_cache(maxsize=4)
def _whole_seconds(second: bytes) -> float:
    return _as_time(second.decode(errors="replace")).timestamp()


def _as_time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def labels_text(labels: Mapping[str, str]) -> str:
    """Labels as they are stored: JSON whose values SQLite's own functions can read."""
    return json.dumps({label: label_text(value) for label, value in labels.items()})


def labels_in(stored: str | bytes | None) -> dict[str, str]:
    """What `labels_text` was given."""
    if not stored:
        return {}
    try:
        found = json.loads(stored)
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {}  # another program's: whoever needs a label says that it is missing
    return {
        label: value.replace("\x1b0", "\0").replace("\x1b1", "\x1b")
        for label, value in found.items()
        if isinstance(value, str)
    }


def label_text(value: str) -> str:
    """A label's value without NUL: SQLite's `json_extract` ends a text there, and another one would be found.

    Half of a surrogate pair, which only a question can hold, becomes what no stored value is.
    """
    escaped = value.replace("\x1b", "\x1b1").replace("\0", "\x1b0")
    return escaped if escaped.isascii() else escaped.encode(errors="backslashreplace").decode()


def as_text(value: object) -> str:
    """A stored name for people to read; another program's may be no text, and is shown as well as it can be."""
    return value if isinstance(value, str) else as_bytes(value).decode(errors="backslashreplace")


def as_number(value: object) -> int:
    """A stored number; 0 where there is none, or another program has put something else."""
    return value if type(value) is int else 0


def as_bytes(value: object) -> bytes:
    """A stored record as it is; another program may have put a number where text belongs."""
    return value if isinstance(value, bytes) else str(value).encode()
