"""Values as they are in the tables: times as text, records as bytes."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

BEYOND = 2**63 - 1
"""Larger than any row id."""


def now_text(now: float) -> str:
    """A time as SQLite and the SDK write it, in UTC, with microseconds."""
    seconds, part = divmod(now, 1)
    return f"{_second_text(seconds)}.{int(part * 1e6):06d}"


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


def as_seconds(value: Any) -> float:
    """A stored time in seconds since 1970; the SDK writes UTC without saying so."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    try:
        return _as_time(text).timestamp()
    except ValueError:
        return 0.0  # somebody else's notion of a time; not worth failing a listing


def _as_time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def as_bytes(value: Any) -> bytes:
    """A stored record as it is; another program may have put a number where text belongs."""
    return value if isinstance(value, bytes) else str(value).encode()
