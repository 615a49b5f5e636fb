"""What can name something: a run, a session, a writer."""

from __future__ import annotations

from typing import TypeGuard


def is_name(value: object) -> TypeGuard[str]:
    """Whether this can name something in every store: text that is not empty, and holds no half of a surrogate pair."""
    try:
        return isinstance(value, str) and value != "" and (value.isascii() or bool(value.encode()))
    except UnicodeEncodeError:
        return False
