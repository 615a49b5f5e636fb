"""Cleanup of trial tables: finding and dropping tables by prefix, under the lock shared by writers."""

# ruff: noqa: S608 — a table name cannot be bound; these come from the file itself and are quoted
from __future__ import annotations

import contextlib
import sqlite3
import time

from standfast._src.base.errors import StoreTimeoutError
from standfast._src.sessions.backends.sqlite import database_file, schema, sqlite_errors

PAUSE_S = 0.02


def tables_beginning(db: sqlite3.Connection, begins: str) -> list[str]:
    """Return the names of the tables with a prefix, without indexes and SQLite's own tables."""
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    names = [row[0].decode(errors="replace") if isinstance(row[0], bytes) else row[0] for row in rows]
    return [name for name in names if name.startswith(begins)]


def drop_tables(path: str, begins: str, timeout_s: float) -> None:
    """Drop every table with a prefix, and its entries in the file's table of layouts, in a single transaction."""
    deadline = time.monotonic() + timeout_s
    lock = database_file.CheckpointLock(path)
    with contextlib.closing(database_file.connect(path)) as db, contextlib.closing(lock):
        db.execute("PRAGMA wal_autocheckpoint=0")  # a checkpoint of ours needs the lock alone
        while not _drop_tables(db, lock, begins):
            if time.monotonic() >= deadline:
                raise StoreTimeoutError(
                    f"{path!r} was locked for {timeout_s} s", "Ask again when the program that writes has finished."
                )
            time.sleep(PAUSE_S)


def _drop_tables(db: sqlite3.Connection, lock: database_file.CheckpointLock, begins: str) -> bool:
    try:
        db.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError as error:
        if sqlite_errors.is_busy(error):
            return False
        raise
    try:
        if not lock.share():
            db.execute("ROLLBACK")
            return False
        # Messages before sessions: they refer to them.
        for name in sorted(tables_beginning(db, begins), key=len, reverse=True):
            db.execute(f"DROP TABLE {schema.quote(name)}")
        versions = schema.VERSIONS_TABLE
        if versions in tables_beginning(db, versions):
            db.execute(f"DELETE FROM {versions} WHERE substr(tables, 1, ?) = ?", (len(begins), begins.lower()))
            if db.execute(f"SELECT count(*) FROM {versions}").fetchone()[0] == 0:
                db.execute(f"DROP TABLE {versions}")  # it was made for these
        db.execute("COMMIT")
        return True
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")
        lock.unshare()
