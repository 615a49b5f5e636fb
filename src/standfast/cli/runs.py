"""`standfast runs`: the word, and the modules whose commands hang below it."""

from __future__ import annotations

from importlib import import_module

from standfast.cli.arguments import Commands, Parser, group

PARTS = (
    "standfast.cli.runs_reading",
    "standfast.cli.runs_deciding",
    "standfast.cli.runs_resuming",
)


def add(commands: Commands[Parser]) -> None:
    """Add `runs` and everything below it."""
    below = group(commands, "runs", "saved runs: look, decide, resume, give up, forget")
    for part in PARTS:
        import_module(part).add(below)
