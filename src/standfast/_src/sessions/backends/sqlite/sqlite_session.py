"""Sessions in an SQLite file: the OpenAI Agents SDK's tables, with every ability of part B on top.

What a session does is in `StoredSession`, what it promises in the rules of `sessions/`; this says which file, which
tables and which process. Constructing one does no I/O; the first operation opens the file. All session objects on a
file share its engine. `:memory:` is a private database per object.
"""

from __future__ import annotations

import os
from collections.abc import Coroutine, Hashable
from pathlib import Path
from typing import Any, Self

from standfast._src.base.errors import CallerError, InvalidSessionIdError, InvalidSettingError, SettingTypeError
from standfast._src.base.identifiers import is_name
from standfast._src.base.type_names import describe_type
from standfast._src.sessions.backends.sqlite import database_file, process_liveness
from standfast._src.sessions.backends.sqlite.file_engine import FileExecutor, end_lingering, registry_lock
from standfast._src.sessions.backends.sqlite.in_memory import MemoryExecutor
from standfast._src.sessions.backends.sqlite.schema import Tables
from standfast._src.sessions.client.executor import Executor
from standfast._src.sessions.client.lingering import LINGER_S, checked_linger
from standfast._src.sessions.client.stored_session import StoredSession
from standfast._src.sessions.protocol import SessionSettings, check_session_id

__all__ = ["SQLiteSession"]


class SQLiteSession(StoredSession):
    """A conversation in an SQLite file, or in memory. Any number of objects, threads, loops and processes may share it.

    Files beside the database get its owner and mode.

    Args:
        session_id: The name of the conversation; the same id in the same file is the same conversation.
        db_path: The file; `:memory:` (the default) ends with the last object.
        sessions_table: The table of sessions, as the OpenAI Agents SDK names it.
        messages_table: The table of items, as the OpenAI Agents SDK names it.
        session_settings: Settings such as the default limit of reads.
        timeout_s: The deadline of each operation, waiting for locks included.
        file_mode: The permissions of a new file; by default only its owner may read it.
        linger_s: The seconds that threads and connections stay open after the last session object on the file, for the
            next one; 0: they end with the last.

    Example:
        session = SQLiteSession("guest-42", "conversations.db")
        await Runner.run(agent, "My name is Ada.", session=session)
    """

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = database_file.MEMORY,
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        *,
        timeout_s: float = 30.0,
        file_mode: int | None = None,
        linger_s: float = LINGER_S,
    ) -> None:
        super().__init__(session_id, session_settings=session_settings, timeout_s=timeout_s)
        self.linger_s = checked_linger(linger_s)
        self.db_path = db_path
        self.sessions_table, self.messages_table = sessions_table, messages_table
        self.file_mode = _checked_mode(file_mode)
        self._tables = Tables.of(sessions_table, messages_table)
        # A relative path is resolved now, as with the SDK, so that a later `chdir` does not matter.
        self._path = None if _checked_path(db_path) == database_file.MEMORY else os.path.abspath(db_path)
        self._found: FileExecutor | MemoryExecutor | None = None

    def close(self) -> Coroutine[Any, Any, None]:
        """Close the session object at once; awaiting the result is allowed and not needed."""
        done = super().close()
        with registry_lock:
            found, self._found = self._found, None
        if isinstance(found, FileExecutor):  # a store in memory ends with the last session that refers to it
            found.close()
        return done

    def _carrier(self) -> Executor:
        return self._found or self._engine()

    def _engine(self) -> FileExecutor | MemoryExecutor:
        """Return the executor of the file's engine, or of the private database."""
        with registry_lock:
            self._check_open()
            if self._found is None:
                if self._path is None:
                    self._found = MemoryExecutor(self._tables)
                else:
                    self._found = FileExecutor(
                        os.path.realpath(self._path), self._tables, self.file_mode, self.linger_s
                    )
            return self._found

    def _another(self, new_id: str) -> Self:
        made = type(self)(
            new_id,
            self.db_path if self._path is None else self._path,
            self.sessions_table,
            self.messages_table,
            self._copied_settings(),
            timeout_s=self.timeout_s,
            file_mode=self.file_mode,
            linger_s=self.linger_s,
        )
        self._share_with(made)
        return made

    def _end_lingering(self) -> None:
        if self._path is not None:
            end_lingering(os.path.realpath(self._path))

    def _share_with(self, made: SQLiteSession) -> None:
        """Share a private database with another session object of the same store."""
        if self._path is None:
            made._found = self._engine()

    def _store_key(self) -> Hashable:
        if self._path is None:
            return (id(self._engine()), self._tables)
        found = self._found
        path = found.engine.path if isinstance(found, FileExecutor) else os.path.realpath(self._path)
        return (path, self._tables)

    def _check_id(self, session_id: str) -> str:
        """Return the id if SQLite can store the exact text (A18)."""
        found = check_session_id(session_id)
        if not is_name(found):
            raise InvalidSessionIdError(
                f"{session_id!r} holds half of a surrogate pair, which SQLite cannot store",
                "Use an id that is valid Unicode.",
            )
        return found

    def _process(self) -> str:
        return process_liveness.this_process() or ""

    def _is_gone(self, process: str) -> bool:
        return process_liveness.is_gone(process)


def _checked_path(path: object) -> str:
    """Return the path as text; refuse unusable paths with a remedy."""
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise SettingTypeError(f"db_path is {describe_type(path)}", "Give a str or a pathlib.Path.")
    text = os.fspath(path)
    if not text or "\0" in text or not _is_path(text):
        raise InvalidSettingError(
            f"db_path {text!r} names no file", "Give the path of a file, or ':memory:' for a store of its own."
        )
    if "://" in text and isinstance(path, str):  # its folder would be called "redis:"; and a URL may hold a password
        raise InvalidSettingError(
            f"db_path is a URL ({text.partition('://')[0]}://…), not the path of a file",
            "For a store by its URL use open_store(url).session(session_id); for Redis and PostgreSQL there are"
            " RedisSession.from_url and PostgresSession. A file with such a name: give a pathlib.Path.",
        )
    return text


def _is_path(text: str) -> bool:
    """Return whether the system can name a file so."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def _checked_mode(mode: object) -> int | None:
    if mode is None or (isinstance(mode, int) and not isinstance(mode, bool) and 0 <= mode <= 0o777 and mode & 0o600):
        return mode
    raise CallerError(f"a file_mode of {mode!r} is no permission", "Give one like 0o660: bits that the owner has too.")
