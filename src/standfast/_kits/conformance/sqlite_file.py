"""Faults for stores that are an SQLite file with the OpenAI Agents SDK's tables, staged from outside the store.

A backend on such a file mixes this in and says where the file is; the kit then has corrupt records, a stalled
writer, clocks that are off and raw records without any help from the store itself.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are the description's own
from __future__ import annotations

import functools
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from standfast._kits.conformance.backend import Backend
from standfast._kits.operators.open_store import open_store

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store

__all__ = ["FULL", "SQLiteFile"]

FULL = 2
# PRAGMA synchronous: at FULL and above a commit returns when the disk has it; below, a power cut can take it back.


class SQLiteFile(Backend):
    """A backend whose store is the file `path`, with the tables `tables`."""

    persistent = True
    files = True

    @property
    def tables(self) -> tuple[str, str]:
        """The tables of sessions and of messages."""
        return "agent_sessions", "agent_messages"

    @property
    def path(self) -> Path:
        """The database file."""
        return self.folder / "conversations.db"

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=30)) as connection, connection:
            yield connection

    def inject_record(self, session_id: str, data: bytes) -> None:
        """Put raw bytes behind the newest message, as text: SQLite does not look whether it is UTF-8."""
        with self._connection() as connection:
            connection.execute(
                f"INSERT INTO {self.tables[1]} (session_id, message_data) VALUES (?, CAST(? AS TEXT))",
                (session_id, data),
            )

    def raw_records(self, session_id: str) -> list[bytes]:
        """Every message row of the session, in the order of its ids."""
        with self._connection() as connection:
            rows = connection.execute(
                f"SELECT CAST(message_data AS BLOB) FROM {self.tables[1]} WHERE session_id = ? ORDER BY id",
                (session_id,),
            )
            return [bytes(row[0]) for row in rows]

    @contextmanager
    def stall(self) -> Iterator[None]:
        """Hold the file's write lock, as another process in a long transaction would."""
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            # In a thread of its own: a connection belongs to the thread that made it, and the test's must go on.
            with closing(sqlite3.connect(self.path, timeout=30, isolation_level=None)) as connection:
                connection.execute("BEGIN IMMEDIATE")
                held.set()
                release.wait()
                connection.execute("ROLLBACK")

        thread = threading.Thread(target=hold, daemon=True)
        thread.start()
        held.wait(30)
        try:
            yield
        finally:
            release.set()
            thread.join()

    def whole_store(self, *, read_only: bool = False) -> Store:
        """Open the whole store at the file's path."""
        return open_store(self.path, read_only=read_only)

    def damage_newest(self, session_id: str, data: bytes) -> None:
        """Overwrite the newest row's contents."""
        with self._connection() as connection:
            connection.execute(
                f"UPDATE {self.tables[1]} SET message_data = CAST(? AS TEXT) WHERE id = "
                f"(SELECT max(id) FROM {self.tables[1]} WHERE session_id = ?)",
                (data, session_id),
            )

    @contextmanager
    def watch_durability(self) -> Iterator[list[str]]:
        """Check for every commit that its connection waits for the disk."""
        complaints: list[str] = []
        commits = 0

        class Watched(sqlite3.Connection):
            def look(self) -> None:
                nonlocal commits
                commits += 1
                if self.in_transaction and super().execute("PRAGMA synchronous").fetchone()[0] < FULL:
                    complaints.append("a commit with PRAGMA synchronous below FULL")

            def execute(self, sql: str, *parameters: Any) -> sqlite3.Cursor:
                if sql.lstrip()[:6].upper() == "COMMIT":
                    self.look()
                return super().execute(sql, *parameters)

            def commit(self) -> None:
                self.look()
                super().commit()

        connect = sqlite3.connect
        sqlite3.connect = functools.partial(connect, factory=Watched)  # type: ignore[assignment]
        try:
            yield complaints
        finally:
            sqlite3.connect = connect
        if not commits:
            complaints.append("no commit was seen at all")

    def shift_times(self, session_id: str, seconds: float) -> None:
        """Move every time of the session in the SDK's tables."""
        by = {"by": f"{seconds:+} seconds", "id": session_id}
        with self._connection() as connection:
            connection.execute(
                f"UPDATE {self.tables[1]} SET created_at = strftime('%Y-%m-%d %H:%M:%f', created_at, :by) "
                "WHERE session_id = :id",
                by,
            )
            connection.execute(
                f"UPDATE {self.tables[0]} SET created_at = strftime('%Y-%m-%d %H:%M:%f', created_at, :by), "
                "updated_at = strftime('%Y-%m-%d %H:%M:%f', updated_at, :by) WHERE session_id = :id",
                by,
            )

    def stored_times(self, session_id: str) -> tuple[datetime, datetime] | None:
        """The times in the SDK's table of sessions."""
        with self._connection() as connection:
            row = connection.execute(
                f"SELECT created_at, updated_at FROM {self.tables[0]} WHERE session_id = ?", (session_id,)
            ).fetchone()
        return None if row is None else (_utc(row[0]), _utc(row[1]))


def _utc(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)
