"""Sessions that keep no runs: the saved run is in another store, and never in one step with its turn."""

from __future__ import annotations

import copy
from typing import Any

from standfast import InMemorySession, SQLiteSession
from standfast._src.sessions.protocol import abilities


class KeepsNoRuns(InMemorySession):
    """A session with every ability but saved runs, as an application may write one."""

    declared_abilities = abilities(InMemorySession("-")) - {"runs"}


class FileWithoutRuns(SQLiteSession):
    """The same in a file."""

    declared_abilities = abilities(SQLiteSession("-")) - {"runs"}


def without_runs(session: Any) -> Any:
    """Return another object for the same conversation, which keeps no runs."""
    made = copy.copy(session)
    made.__class__ = type("Apart", (type(session),), {"declared_abilities": abilities(session) - {"runs"}})
    return made
