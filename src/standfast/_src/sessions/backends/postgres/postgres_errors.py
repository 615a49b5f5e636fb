"""Translation of PostgreSQL errors: was anything done, and what can the caller do?"""

from __future__ import annotations

import psycopg

from standfast._src.base.errors import (
    InvalidSettingError,
    NotADatabaseError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from standfast._src.sessions.storage_helpers import build_no_answer_error

BUSY = ("55P03", "57014")
"""A lock that was not to be had in time; told to stop, by us or by statement_timeout. Nothing was done."""

WARNING = "01000"
"""What is told beside an answer. Behind a statement that was told to stop: its commit no longer waits for a standby."""


class OnlyHere(psycopg.OperationalError):
    """A cancelled wait for a standby: the commit is stored on the primary, and maybe on no standby."""


_BUSY = (StoreTimeoutError, "Look for what keeps the tables locked or the server busy: pg_stat_activity, pg_locks.")
_BY_CODE: dict[str, tuple[type[StoreError], str]] = {
    "53": (StoreFullError, "Look at the server's disk, memory and max_connections."),
    **dict.fromkeys(BUSY, _BUSY),
    "25006": (StoreReadOnlyError, "Connect to the primary; this server is read-only."),
    "25001": (
        StoreUnavailableError,
        "Let this role begin its transactions so: ALTER ROLE … SET default_transaction_isolation = 'read committed'.",
    ),
    "3F000": (StoreUnavailableError, "Give `schema`, or let this role's search_path name a schema that is there."),
    "42501": (StoreUnavailableError, "Let this role create and use the tables, or create them by hand beforehand."),
    "42804": (NotADatabaseError, "A table of another kind has this name: choose another table or schema name."),
    "42P07": (NotADatabaseError, "Something of another kind has this name: choose another table or schema name."),
    "42809": (NotADatabaseError, "Something of another kind has this name: choose another table or schema name."),
    "42703": (NotADatabaseError, "The table has other columns than the SDK's: choose another table or schema name."),
    "42830": (NotADatabaseError, "The table has other columns than the SDK's: choose another table or schema name."),
}


def refused_error(error: psycopg.Error) -> StoreError:
    """Build the error for a refusal by the server: nothing was done."""
    code = error.sqlstate or ""
    kind, remedy = _BY_CODE.get(code) or _BY_CODE.get(code[:2]) or (StoreUnavailableError, "Look at the server's log.")
    made = kind(f"PostgreSQL refused: {format_error(error)}", remedy)
    made.is_lasting = code[:2] not in ("40", "55", "57")  # deadlocks, locks, a server that is shutting down
    return made


def unsendable(error: Exception) -> InvalidSettingError:
    """Something of the question cannot be said to PostgreSQL at all: nothing was sent."""
    return InvalidSettingError(
        f"PostgreSQL cannot store this: {' '.join(str(error).split())}",
        "Use ids and names of valid Unicode, without NUL.",
    )


def is_unsendable(error: Exception) -> bool:
    """Return whether an error concerns the question's own text: a NUL, or half of a surrogate pair."""
    if isinstance(error, UnicodeEncodeError):
        return True
    is_ours = isinstance(error, psycopg.DataError) and error.sqlstate is None
    return is_ours or getattr(error, "sqlstate", None) in ("22021", "22P05", "22P02")


def find_server_error(error: psycopg.Error) -> psycopg.Error:
    """Return the server's error from behind the error of psycopg's pipeline.

    A server that refuses at the commit answers with one result more than psycopg expects. psycopg then fails to leave
    pipeline mode, and its error hides the server's.
    """
    before = error.__context__
    return before if error.sqlstate is None and isinstance(before, psycopg.Error) and before.sqlstate else error


def is_lost(error: psycopg.Error) -> bool:
    """Return whether a connection broke. With any other code the server has answered: nothing was done."""
    return error.sqlstate is None or error.sqlstate[:3] in ("080", "57P")


def lost(error: psycopg.Error, *, reading: bool) -> StoreError:
    """Build the error for a missing answer, or for an answer that promises less than the caller asked for (A23)."""
    made = build_no_answer_error("PostgreSQL", format_error(error), reading=reading)
    made.is_lasting = isinstance(error, OnlyHere)  # asked again it would find its write, and say that all is well
    return made


def unreachable(error: psycopg.Error) -> StoreUnavailableError:
    """No connection was made, so nothing was sent."""
    if isinstance(error, psycopg.ProgrammingError):  # an option of the connection that libpq does not have
        made = StoreUnavailableError(f"PostgreSQL's library refuses: {format_error(error)}", "Correct connect_options.")
        made.is_lasting = True
        return made
    # A refused login has no code here, only a text. A server that translates the text is asked until the deadline.
    is_full = any(text in str(error) for text in ("too many c", "connection slots are reserved"))
    made = StoreUnavailableError(
        f"PostgreSQL cannot be reached: {format_error(error)}",
        "Each process uses three connections: raise the limit of the server, database or role, or use a pooler."
        if is_full
        else "Is the server running there, and are user, password and database of the URL right?",
    )
    lasting = ("authentication failed", "does not exist", "no password", "certificate verify failed")
    made.is_lasting = any(text in str(error) for text in lasting)
    return made


def format_error(error: psycopg.Error) -> str:
    """Format an error in one line."""
    return " ".join(str(error).split()) or type(error).__name__
