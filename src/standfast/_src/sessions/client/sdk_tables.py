"""Names of the OpenAI Agents SDK's two tables, and of standfast's own tables next to them."""

from __future__ import annotations

import hashlib
import re

from standfast._src.base.errors import InvalidNameError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}\Z")

MAKING_LOCK = 7_236_514_022
"""PostgreSQL's advisory lock under which tables are made: any number that only standfast uses."""

SQLALCHEMY_VERSION = 1000
"""From here on the numbers in a table of versions are those of SQLAlchemySession's layouts.

Smaller ones are SQLiteSession's and PostgresSession's: what one class has written to, another does not mistake for its
own, but says so.
"""


def check_table_names(*names: object) -> None:
    """Refuse a value that is not a table name (A15)."""
    for name in names:
        if not isinstance(name, str) or not _NAME.match(name) or name.lower().startswith("sqlite_"):
            raise InvalidNameError(
                f"{name!r} is not a table name",
                "Use letters, digits and underscores, at most 63, not beginning with a digit or with sqlite_.",
            )


def check_two_tables(sessions: str, messages: str) -> None:
    """Refuse a pair that does not name two tables."""
    check_table_names(sessions, messages)
    if sessions.lower() == messages.lower():
        raise InvalidNameError(f"sessions and messages cannot both be in {sessions!r}", "Name two tables.")


def own_stem(sessions: str, messages: str) -> str:
    """Return the common prefix of the names of standfast's own tables for this pair.

    A name may have 63 characters: a long one is cut, and its hash keeps it distinct.
    """
    known = hashlib.sha256(f"{sessions}/{messages}".encode()).hexdigest()[:8]
    return f"{messages[:28]}_{known}_standfast_"
