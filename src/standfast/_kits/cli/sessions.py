"""`standfast sessions`: the group, and the modules of its commands."""

from __future__ import annotations

from standfast._kits.cli import sessions_change, sessions_show, sessions_transfer
from standfast._kits.cli.arguments import Commands, Parser, group

PARTS = (sessions_show, sessions_change, sessions_transfer)
"""Each has `add(commands)`, as a group has, and imports what is slow where it is used; the help has this order."""


def add(commands: Commands[Parser]) -> None:
    """Add `sessions` and all commands below it."""
    below = group(commands, "sessions", "conversations: look, search, fork, undo, move, remove")
    for part in PARTS:
        part.add(below)
