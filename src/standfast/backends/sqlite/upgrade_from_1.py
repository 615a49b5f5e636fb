"""How a file of release 0.1, layout 1, becomes layout 2."""

from __future__ import annotations

import sqlite3

VERSIONS_TABLE = "holdfast_schema"
LOCK_SUFFIX = "-holdfast-lock"


def rename(db: sqlite3.Connection, sessions: str, messages: str) -> None:
    raise NotImplementedError


def convert(db: sqlite3.Connection, sessions: str, messages: str) -> None:
    raise NotImplementedError
