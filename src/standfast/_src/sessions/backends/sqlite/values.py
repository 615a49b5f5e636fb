"""Stored form of values: times as text, records as bytes."""

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
    """Format a time as SQLite and the SDK do, in UTC, with microseconds."""
    seconds, part = divmod(now, 1)
    digits = str(1_000_000 + int(part * 1e6))  # a third less than a format with leading zeros
    return f"{_second_text(seconds)}.{digits[1:]}"


def time_text(at: float | None) -> str | None:
    """Format a loaded time to the microsecond; whole seconds in the SDK's form."""
    if at is None:
        return None
    seconds, part = divmod(round(at * 1e6), 1_000_000)
    return f"{_second_text(seconds)}.{part:06d}" if part else _second_text(seconds)


@lru_cache(maxsize=2)
def _second_text(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(seconds))


def after_text(stored: bytes) -> str:
    """Return a moment after a stored time, for a change at which the clock has not advanced (A16)."""
    try:
        later = _as_time(stored.decode(errors="replace")) + timedelta(milliseconds=1)
        return later.strftime("%Y-%m-%d %H:%M:%S.%f")
    except ValueError:
        return now_text(time.time())  # a time in another program's format


@lru_cache(maxsize=256)
def as_seconds(value: object) -> float:
    """A stored time in seconds since 1970; the SDK writes UTC without saying so."""
    try:
        if type(value) is bytes and len(value) == _NOW_BYTES and value[19:20] == b"." and value[20:].isdigit():
            return (_whole_seconds(value[:19]) * 1e6 + int(value[20:])) / 1e6  # as `now_text` writes: nearly always
        text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
        return _as_time(text).timestamp()
    except (ValueError, OverflowError):
        return 0.0  # a time in another program's format; not worth failing a listing


@lru_cache(maxsize=4)
def _whole_seconds(second: bytes) -> float:
    return _as_time(second.decode(errors="replace")).timestamp()


def _as_time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def labels_text(labels: Mapping[str, str]) -> str:
    """Encode labels for storage: JSON with values readable by SQLite's own functions."""
    return json.dumps({label: label_text(value) for label, value in labels.items()})


def labels_in(stored: str | bytes | None) -> dict[str, str]:
    """Decode labels encoded by `labels_text`."""
    if not stored:
        return {}
    try:
        found = json.loads(stored)
    except (ValueError, TypeError, RecursionError):
        found = None
    if not isinstance(found, dict):
        return {}  # another program's: the code that needs a label reports it as missing
    return {
        label: value.replace("\x1b0", "\0").replace("\x1b1", "\x1b")
        for label, value in found.items()
        if isinstance(value, str)
    }


def label_text(value: str) -> str:
    """Encode a label's value without NUL: SQLite's `json_extract` ends a text there, and would match other values.

    Half of a surrogate pair, which only a question can hold, becomes what no stored value is.
    """
    escaped = value.replace("\x1b", "\x1b1").replace("\0", "\x1b0")
    return escaped if escaped.isascii() else escaped.encode(errors="backslashreplace").decode()


def as_text(value: object) -> str:
    """Decode a stored name for people; invalid text of another program is shown with escapes."""
    return value if isinstance(value, str) else as_bytes(value).decode(errors="backslashreplace")


def as_number(value: object) -> int:
    """Return a stored number; 0 for NULL or another program's value."""
    return value if type(value) is int else 0


def as_bytes(value: object) -> bytes:
    """Return a stored record as bytes; another program may have stored a number."""
    return value if isinstance(value, bytes) else str(value).encode()
