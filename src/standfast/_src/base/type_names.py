"""Naming the type of a value in an error."""

from __future__ import annotations


def describe_type(value: object) -> str:
    """Return the name of a value's type with its article: "a str", "an int"."""
    name = "None" if value is None else type(value).__name__
    if value is None:
        return name
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
