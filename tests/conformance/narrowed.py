"""Leaving tests of a suite out where they would only repeat what another suite has shown."""

from __future__ import annotations


def without(begins: tuple[str, ...], tests: type) -> type:
    """The same tests without those of a clause ("A9") or of one check ("A17_any_json")."""
    left_out = tuple(f"test_{begin}" if "_" in begin else f"test_{begin}_" for begin in begins)
    for name in [name for name in vars(tests) if name.startswith(left_out)]:
        delattr(tests, name)
    return tests
