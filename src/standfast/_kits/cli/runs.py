"""`standfast runs`: the group, and the modules of its commands."""

from __future__ import annotations

from standfast._kits.cli import runs_decide, runs_resume, runs_show
from standfast._kits.cli.arguments import Commands, Parser, group

PARTS = (runs_show, runs_decide, runs_resume)


def add(commands: Commands[Parser]) -> None:
    """Add `runs` and all commands below it."""
    below = group(commands, "runs", "saved runs: look, decide, resume, give up, forget")
    for part in PARTS:
        part.add(below)
