"""Parsing of numbers given as text, such as cursors."""

from __future__ import annotations


def whole_number(text: object, below: int) -> int | None:
    """Parse a text of ASCII digits to a number less than `below`; return None for any other value.

    `int` raises ValueError for several thousand digits, and takes digits of every script.
    """
    if not isinstance(text, str) or not text.isascii() or not text.isdigit() or len(text) > len(str(below)):
        return None
    number = int(text)
    return number if number < below else None
