"""`SQLiteSession` for the kit: a file of its own for each check, or tables of their own in a given file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from standfast._kits.conformance.sqlite_file import SQLiteFile
from standfast._kits.operators.open_store import open_store
from standfast._src.sessions.backends.sqlite.scratch_tables import drop_tables
from standfast._src.sessions.backends.sqlite.sqlite_session import SQLiteSession

if TYPE_CHECKING:
    from standfast._kits.operators.store import Store

TABLES: Mapping[str, Any] = {"sessions_table": "conversations", "messages_table": "turns"}
BAD_TABLES: tuple[Mapping[str, Any], ...] = (
    {"sessions_table": "no; DROP TABLE agent_messages"},
    {"messages_table": ""},
    {"messages_table": "1st"},
    {"messages_table": 'quo"ted'},
    {"messages_table": "x" * 64},
    {"sessions_table": "same", "messages_table": "same"},
    {"sessions_table": "same", "messages_table": "SAME"},
)
NO_EXPIRY: Mapping[str, str] = {"A20": "no expiry can be configured"}

_IN_SCRATCH = {"agent_sessions": "s", "agent_messages": "m", "conversations": "cs", "turns": "cm"}
# Endings of table names below a scratch name: short, because a name has at most 63 characters.


class SQLiteBackend(SQLiteFile):
    """`SQLiteSession`: without `file` in the folder of each check, else in tables of each check in that file."""

    name = "SQLiteSession"
    closes_when_called = True
    names: Mapping[str, Any] = TABLES
    bad_names = BAD_TABLES
    not_applicable: Mapping[str, str] = NO_EXPIRY

    file = ""
    scratch = ""
    """Beginning of the table names in `file`."""
    drops_tables = False
    """Whether the tables of a check are dropped at its end."""

    def use_file(self, file: str) -> None:
        """Make the checks in tables of this file."""
        self.file, self.files = file, False  # the folder of a check holds no files then

    @property
    def path(self) -> Path:
        """The database file."""
        return Path(self.file) if self.file else super().path

    @property
    def tables(self) -> tuple[str, str]:
        """The tables of the present check."""
        return self._table("agent_sessions"), self._table("agent_messages")

    def _table(self, name: str) -> str:
        """Return the name of a table, below the scratch name in a given file."""
        if not self.scratch or name not in _IN_SCRATCH:
            return name
        return f"{self.scratch}_{self.unique}_{_IN_SCRATCH[name]}"

    def chosen_tables(self, options: dict[str, Any]) -> tuple[str, str]:
        """Take the tables out of the options of a session, and put them below the scratch name."""
        sessions = options.pop("sessions_table", "agent_sessions")
        return self._table(sessions), self._table(options.pop("messages_table", "agent_messages"))

    def open(self, session_id: str, **options: Any) -> Any:
        """Return a session in the tables of the check, or in the tables of the options."""
        sessions, messages = self.chosen_tables(options)
        return SQLiteSession(session_id, self.path, sessions, messages, **options)

    def whole_store(self, *, read_only: bool = False) -> Store:
        """Open the tables of the check."""
        sessions, messages = self.tables
        url = f"sqlite:///{quote(str(self.path))}?sessions_table={sessions}&messages_table={messages}"
        return open_store(url, read_only=read_only)

    def teardown(self) -> None:
        """Drop the tables of the check, if the file outlives it."""
        if self.drops_tables and self.scratch:
            drop_tables(self.file, f"{self.scratch}_{self.unique}_", self.patience_s)
