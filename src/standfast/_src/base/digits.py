"""Numbers that callers give as text, such as cursors."""

from __future__ import annotations


def whole_number(text: object, below: int) -> int | None:
    """Return the number that a text of ASCII digits is, if it is less than `below`; None for anything else.

    `int` raises ValueError for several thousand digits, and takes digits of every script.
    """
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > len(str(below)):
        return None
    number = int(text)
    return number if number < below else None
