"""`standfast runs`: the word, and the modules whose commands hang below it."""

from __future__ import annotations

from standfast.cli import runs_deciding, runs_reading, runs_resuming
from standfast.cli.arguments import Commands, Parser, group

PARTS = (runs_reading, runs_deciding, runs_resuming)


def add(commands: Commands[Parser]) -> None:
    """Add `runs` and everything below it."""
    below = group(commands, "runs", "saved runs: look, decide, resume, give up, forget")
    for part in PARTS:
        part.add(below)
