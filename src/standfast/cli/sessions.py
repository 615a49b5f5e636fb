"""`standfast sessions`: the word, and the modules whose commands hang below it."""

from __future__ import annotations

from importlib import import_module

from standfast.cli.arguments import Commands, Parser, group

PARTS = (
    "standfast.cli.sessions_reading",
    "standfast.cli.sessions_changing",
    "standfast.cli.moving",
)
"""Each has `add(commands)`, as a group has, and imports what is slow where it is used; the help has this order."""


def add(commands: Commands[Parser]) -> None:
    """Add `sessions` and everything below it."""
    below = group(commands, "sessions", "conversations: look, search, fork, undo, move, remove")
    for part in PARTS:
        import_module(part).add(below)
