"""`standfast version`: this release, and the installed extras."""

from __future__ import annotations

import argparse
import platform

from standfast import __version__
from standfast._kits.cli.arguments import Commands, Parser, command
from standfast._kits.cli.output import Output
from standfast._kits.operators.exit_codes import DONE

LIBRARIES = ("redis", "psycopg", "sqlalchemy", "openai", "mcp", "websockets", "cryptography", "rich")


def add(commands: Commands[Parser]) -> None:
    """Add `version`."""
    command(commands, "version", version, "which release this is, and what it finds installed", store=False)


def version(args: argparse.Namespace, out: Output) -> int:
    """Show the versions that a report of a defect should name."""
    import sqlite3
    from importlib import metadata

    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    facts = {"standfast": __version__, "python": platform.python_version(), "sqlite": sqlite3.sqlite_version, **found}
    if out.as_json:
        out.record("standfast.version/1", facts)
    else:
        out.line(f"standfast {facts.pop('standfast')}")
        out.line("  ".join(f"{name} {number}" for name, number in facts.items()))
    return DONE
