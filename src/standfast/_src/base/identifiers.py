"""Validation of the names of runs, sessions and writers."""

from __future__ import annotations

from typing import TypeGuard


def is_name(value: object) -> TypeGuard[str]:
    """Return whether every store can hold `value` as a name: non-empty text without lone surrogates."""
    try:
        return isinstance(value, str) and value != "" and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False
