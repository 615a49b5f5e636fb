"""What tests of the SQLite engine need besides a session: plans that wait or break, and a look at its connections."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from standfast._src.sessions.backends.sqlite import database_file
from standfast._src.sessions.backends.sqlite.file_engine import FileExecutor
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.storage import KeyUpdate, Name, Plan, ReadRequest


@contextmanager
def carrier_to(path: Path) -> Iterator[FileExecutor]:
    """The way plans take to a file, beside every session on it."""
    found = FileExecutor(os.path.realpath(path), Tables.of("agent_sessions", "agent_messages"))
    try:
        yield found
    finally:
        found.close()


class Gate:
    """A plan that waits inside its transaction, so that a test decides what happens before the commit."""

    def __init__(self) -> None:
        self.entered, self.go_on = threading.Event(), threading.Event()

    def __call__(self) -> Plan[None]:
        """The plan."""
        yield ReadRequest(Name("session", "gate"), mark=False)
        self.entered.set()
        self.go_on.wait(30)


def broken() -> Plan[None]:
    """A plan with a bug: it changes something and then breaks."""
    yield [KeyUpdate(Name("session", "s"), wipe=())]
    raise ZeroDivisionError("a bug of ours")


@pytest.fixture
def connections(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """Every connection that is opened from now on, the writer's first."""
    opened: list[sqlite3.Connection] = []
    connect = database_file.connect

    def remembered(path: str) -> sqlite3.Connection:
        opened.append(connect(path))
        return opened[-1]

    monkeypatch.setattr(database_file, "connect", remembered)
    return opened


def value(db: sqlite3.Connection, pragma: str) -> Any:
    """What a setting of a connection is."""
    return db.execute(f"PRAGMA {pragma}").fetchone()[0]
