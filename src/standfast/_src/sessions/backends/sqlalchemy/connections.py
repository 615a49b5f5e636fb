"""Transactions for questions: in a thread with a loop of its own, or over the caller's engine.

Each question is one transaction. An error before the commit means that nothing was done; only a commit whose answer is
lost leaves that open, and then the question is asked again: it carries what a repeat is known by.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, InterfaceError, SQLAlchemyError, TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry, StaticPool

from standfast._src.base.errors import (
    CallerError,
    InvalidSettingError,
    NotADatabaseError,
    OutcomeUnknownError,
    SettingTypeError,
    StandfastError,
    StoreError,
    StoreFullError,
    StoreReadOnlyError,
    StoreTimeoutError,
    StoreUnavailableError,
)
from standfast._src.sessions.backends.sqlalchemy.sqlalchemy_storage import Transaction
from standfast._src.sessions.backends.sqlalchemy.tables import LOCK_WAIT_S, Tables
from standfast._src.sessions.storage import Answer, Ask, Count, ReadRequest, Refused, ask
from standfast._src.sessions.storage_helpers import Answering

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection

ANSWER_S_MAX = 20.0
"""How long one transaction may take before its connection is given up."""

_LATER = ("40001", "40P01", "55P03", "57014", "23505", "42P07")
# Serialisation, deadlock, a lock that is not to be had, cancelled; and a table or its type that another program, which
# does not know of our lock, has made at the same moment.

_FILE = "standfast: the file"
"""Where a connection keeps which file it has open."""

_NUMBERS = {
    1205: "55P03", 3572: "55P03", 1213: "40001", 1020: "40001", 1317: "57014", 1969: "57014",
    1050: "42P07", 1060: "42P07", 1061: "42P07", 1062: "23505", 1054: "42703", 1146: "42P01", 1406: "22001",
    1366: "22021", 1021: "53100", 1040: "53300", 1114: "53100", 1203: "53300", 1290: "25006", 1792: "25006",
    1044: "42501", 1142: "42501", 1045: "28000", 1049: "3D000", 1053: "57P01", 1927: "57P01", 1152: "08006",
}  # fmt: skip
"""MariaDB's and MySQL's numbers, as the SQLSTATE that PostgreSQL has for the same."""


class Manner(NamedTuple):
    """Statements that begin transactions and set up connections, for a kind of database."""

    writing: Sequence[str]
    """Begin a transaction that keeps others from changing what it has read."""
    reading: Sequence[str]
    """Begin one that sees a single instant."""
    set_up: Sequence[str] = ()
    """Are executed on each new connection of our own."""


_POSTGRESQL = Manner(
    writing=(
        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
        "SET LOCAL synchronous_commit = on",  # acknowledged means durable (A23)
        f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'",
    ),
    reading=("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",),
)
_SQLITE = Manner(
    writing=("BEGIN IMMEDIATE",),
    reading=("BEGIN",),
    set_up=("PRAGMA busy_timeout = 0", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"),
)
_MYSQL = Manner(
    # Locking reads of rows that are not there lock nothing at this level, so first writers do not deadlock.
    writing=("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION"),
    reading=(
        "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
        "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
    ),
    # A value that does not fit is an error, never cut off. It is set where the connection is ours; `_check` looks at it
    # on those that were handed in.
    set_up=(
        f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
    ),
)
_MANNERS = {"postgresql": _POSTGRESQL, "sqlite": _SQLITE, "mysql": _MYSQL, "mariadb": _MYSQL}


class Link:
    """Tables in a database, and the transaction for each question."""

    def __init__(self, dialect: str, sessions: str, messages: str, *, create: bool, ascii: bool) -> None:
        if dialect not in _MANNERS:
            raise CallerError(
                f"SQLAlchemySession has not been tried on {dialect}",
                f"Use one of {', '.join(_MANNERS)}, or write a store: docs/how-to/write-a-backend.md.",
            )
        self._tables, self._create, self._ascii = Tables(sessions, messages, dialect), create, ascii
        self._manner = _MANNERS[dialect]
        self._is_ready = False

    def answered(self, connection: sa.Connection, question: Ask) -> Answer:
        """Begin a transaction and answer a question; create the tables before the first. The caller commits."""
        _keep_together(connection)
        if not self._is_ready:
            if self._tables.is_mysql:
                _check(connection)
            connection.rollback()
            self._begin(connection, self._manner.writing)
            self._tables.install(connection, create=self._create)
            connection.commit()
            self._is_ready = True
        self._begin(connection, self._manner.reading if _is_read(question) else self._manner.writing)
        return ask(Transaction(self._tables, connection, ensure_ascii=self._ascii), question)

    @staticmethod
    def _begin(connection: sa.Connection, statements: Sequence[str]) -> None:
        if connection.dialect.name == "sqlite":
            _end_what_began_by_itself(connection)
        for statement in statements:
            connection.exec_driver_sql(statement)


def _end_what_began_by_itself(connection: sa.Connection) -> None:
    """Roll back a transaction begun by the engine on an SQLite connection: its kind is wrong for us.

    SQLAlchemy's recipe for SQLite begins one in a listener, and a driver with `autocommit=False` always has one. It is
    empty, unless other tasks use the connection at the same time, as in a `StaticPool`: then it is left alone.
    """
    if not connection.in_transaction():
        connection.begin()
    raw: Any = connection.connection.driver_connection
    if raw.in_transaction and not isinstance(connection.engine.pool, StaticPool):
        connection.exec_driver_sql("ROLLBACK")


def _keep_together(connection: sa.Connection) -> None:
    """Override, for a connection, engine options that would split a transaction.

    With AUTOCOMMIT every statement of ours would be a transaction of its own: a batch could be seen and left in part,
    and no lock would hold. (SQLite, MariaDB and MySQL begin a transaction on request, whatever the engine's setting.)
    With `stream_results` an INSERT runs as a cursor, and is not executed before a fetch from it.
    """
    wanted: dict[str, Any] = {}
    if connection.dialect.name == "postgresql":
        raw: Any = connection.connection.dbapi_connection
        if raw.autocommit is True:
            wanted["isolation_level"] = "READ COMMITTED"
    given = connection.get_execution_options()
    if given.get("stream_results") or given.get("yield_per"):
        wanted |= {"stream_results": False, "yield_per": None}
    if wanted:
        connection.execution_options(**wanted)


def _check(connection: sa.Connection) -> None:
    """Refuse a connection to MariaDB or MySQL that truncates long values, or does not support all of Unicode."""
    mode, charset = connection.exec_driver_sql("SELECT @@sql_mode, @@character_set_client").one()
    if "STRICT_" in mode and charset == "utf8mb4":
        return
    made = StoreUnavailableError(
        f"the connection has sql_mode {mode!r} and character set {charset!r}: values could be cut off or changed",
        "Set STRICT_TRANS_TABLES in the sql_mode, and give charset=utf8mb4 in the URL.",
    )
    made.is_lasting = True
    raise made


class SameFile:
    """Detector of an SQLite file deleted or replaced while connections have it open.

    The connections continue with the old file, and everything acknowledged there is lost with the last of them; a
    connection that is opened later sees another history. All connections to a file share one detector.
    """

    def __init__(self, path: str | None = None) -> None:
        self._path = path
        self._known: tuple[int, int] | None = None

    @property
    def is_known(self) -> bool:
        """True after the file was seen once."""
        return self._known is not None

    def is_gone(self) -> bool:
        """Return whether the path now names a different file or no file."""
        if self._path is None:
            return False
        try:
            stat = os.stat(self._path)
            found = (stat.st_dev, stat.st_ino)
        except (OSError, ValueError):  # whatever else is wrong with the path, SQLite says when it opens it
            found = None
        self._known = self._known or found
        return found != self._known

    def check(self) -> None:
        """Raise StoreUnavailableError if the path now names a different file or no file."""
        if self.is_gone():
            made = StoreUnavailableError(
                f"{self._path!r} was deleted or replaced while it was open; nothing more is written to what it was",
                "Put the file back or accept the new one; then close these sessions, dispose your engine (if you gave "
                "one) and open new ones.",
            )
            made.is_lasting = True
            raise made


class AwaitedLink(Link):
    """Engine of SQLAlchemy's asyncio, awaited in its own event loop."""

    def __init__(self, engine: AsyncEngine, sessions: str, messages: str, **given: bool) -> None:
        super().__init__(engine.dialect.name, sessions, messages, **given)
        self._engine, self._same = engine, SameFile()
        url = engine.url
        self.label = f"{url.get_backend_name()} at {url.host}:{url.port}/{url.database}, table {messages!r}"

    def is_gone(self) -> bool:
        """Return whether the file was deleted or replaced since the first connection."""
        return self._same.is_gone()

    async def ask(self, question: Ask) -> Answer:
        """Run a question's transaction."""
        is_committing = False
        self._same.check()  # before a connection is opened: it would make a file that is not there
        try:
            async with asyncio.timeout(ANSWER_S_MAX), self._engine.connect() as connection:
                answer = await connection.run_sync(self._answered_by_the_same, question)
                if not _is_read(question) and not isinstance(answer, Refused):
                    self._same.check()
                    is_committing = True
                    await connection.commit()
                return answer
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise translate_error(error, is_committing=is_committing) from error

    def _answered_by_the_same(self, connection: sa.Connection, question: Ask) -> Answer:
        """Answer a question if the connection still has the same file as the path and the first connection.

        The engine is its owner's: it may have been made in another folder, or with a `creator`. So each connection is
        asked which file it has, when it is first used here, and keeps the answer for as long as it lives.
        """
        if connection.dialect.name == "sqlite":
            file: SameFile | None = connection.info.get(_FILE)
            if file is None:
                (_, _, path), *_ = connection.exec_driver_sql("PRAGMA database_list").all()  # main comes first
                file = connection.info[_FILE] = SameFile(path or None)
            file.check()
            self._same = self._same if self._same.is_known else file
            self._same.check()
        return self.answered(connection, question)

    async def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Ask each question by itself: a failed question must not undo its neighbours."""
        found: list[Answer | Exception] = []
        for question in questions:
            try:
                found.append(await self.ask(question))
            except Exception as error:  # also an error of an engine's listener: earlier answers are kept
                found.append(error)
        return found


class ThreadStore(Answering):
    """Database as a store (see `_src.sessions.storage`), on connections of our own in one of our threads.

    The drivers are asynchronous: they get a private event loop of the thread. SQLite's driver is a thread around the
    standard library's `sqlite3`, so `sqlite3` itself is used here.
    """

    def __init__(
        self,
        url: str,
        options: Mapping[str, Any],
        sessions: str,
        messages: str,
        *,
        same: SameFile | None = None,
        **given: bool,
    ) -> None:
        self._same = same or SameFile()
        self.loses_answers = not url.startswith("sqlite")
        engine = self._engine = build_engine(url, options)
        self._link = AwaitedLink(engine, sessions, messages, **given)
        self._runner: asyncio.Runner | None = None
        self._file: sa.Engine | None = None
        if self.loses_answers:
            self._runner = asyncio.Runner()
            self._runner.get_loop()  # now, so that a process without descriptors gets the error here
        else:
            self._file = sa.create_engine(engine.url.set(drivername="sqlite"), **options)
            _set_up(self._file)

    def answer(self, question: Ask) -> Answer:
        """Run a question's transaction."""
        if self._runner is not None:
            return self._runner.run(self._link.ask(question))
        assert self._file is not None
        is_committing = False
        self._same.check()  # before a connection is opened: it would make a file that is not there
        try:
            with self._file.connect() as connection:
                self._same.check()
                answer = self._link.answered(connection, question)
                if not _is_read(question) and not isinstance(answer, Refused):
                    self._same.check()
                    is_committing = True
                    connection.commit()
                return answer
        except (SQLAlchemyError, OSError, sqlite3.Error) as error:  # the last: while a connection is set up
            raise translate_error(error, is_committing=is_committing) from error

    def close(self) -> None:
        """Close the connections."""
        if self._file is not None:
            self._file.dispose()
        if self._runner is not None:
            self._runner.run(self._engine.dispose())
            self._runner.close()


def _is_read(question: Ask) -> bool:
    return isinstance(question, ReadRequest | Count)  # a listing also notes what other programs have written


def build_engine(url: str, options: Mapping[str, Any]) -> AsyncEngine:
    """An engine for a URL; on SQLite as the SDK sets one up, and with every commit on the disk."""
    try:
        engine = create_async_engine(url, **options)
    except (SQLAlchemyError, ImportError) as error:
        raise CallerError(
            f"SQLAlchemy cannot use this URL: {error}",
            "Give one with an asynchronous driver that is installed: sqlite+aiosqlite:///talks.db, "
            "postgresql+psycopg://user@host/database or mysql+aiomysql://user@host/database.",
        ) from error
    except TypeError as error:
        raise SettingTypeError(f"SQLAlchemy takes no such option: {error}", "Correct engine_kwargs.") from error
    _set_up(engine.sync_engine)
    return engine


def _set_up(engine: sa.Engine) -> None:
    """Execute the database's set-up statements on each new connection of an engine."""
    wanted = _MANNERS[engine.dialect.name].set_up if engine.dialect.name in _MANNERS else ()

    def said(connection: DBAPIConnection, _: ConnectionPoolEntry) -> None:
        cursor = connection.cursor()
        for statement in wanted:
            cursor.execute(statement)
        cursor.close()

    if wanted:
        sa.event.listen(engine, "connect", said)


def translate_error(error: Exception, *, is_committing: bool) -> StandfastError:
    """Translate an error of SQLAlchemy: was anything done, and what can the caller do?"""
    said = " ".join(str(getattr(error, "orig", None) or error).split()) or type(error).__name__
    code = _code(error)
    answered = code and code[:2] != "08" and code[:3] != "57P"
    if code in ("22001", "22021", "22P05") or "NUL" in said:
        return InvalidSettingError(
            f"the database cannot store this: {said}",
            "Use ids and names of valid Unicode, without NUL, and (MariaDB, MySQL) of 255 characters at most.",
        )
    if "is locked" in said or "busy" in said or code in _LATER or isinstance(error, PoolTimeoutError):
        return StoreTimeoutError(f"the database is busy: {said}", "Try again.")
    if is_committing and not answered:
        return OutcomeUnknownError(
            f"the database did not answer a commit: {said}",
            "It was done whole or not at all. Repeating an append under the same writer and number is safe.",
        )
    kinds: list[tuple[bool, type[StoreError], str]] = [
        ("full" in said or code[:2] == "53", StoreFullError, "Make room on the database's disk."),
        ("readonly" in said or code == "25006", StoreReadOnlyError, "Let this program write to the database."),
        (
            "not a database" in said or code in ("42703", "42804"),
            NotADatabaseError,
            "Name another file or other tables.",
        ),
    ]
    for holds, kind, remedy in kinds:
        if holds:
            return kind(f"the database refused: {said}", remedy)
    made = StoreUnavailableError(
        f"the database cannot be used: {said}",
        "Is it there, and are user, password, database and rights as they should be?",
    )
    refused = (
        isinstance(error, DBAPIError) and not isinstance(error, InterfaceError) and not error.connection_invalidated
    )
    made.is_lasting = bool(answered) and refused and code[:2] not in ("40", "55", "57")
    made.is_lasting = made.is_lasting or any(text in said for text in ("does not exist", "authentication failed"))
    return made


def _code(error: Exception) -> str:
    """Return the error's SQLSTATE, under any driver's name, or ""."""
    found: Any = getattr(error, "orig", None)
    while found is not None:
        code = getattr(found, "sqlstate", None) or getattr(found, "pgcode", None)
        number = found.args[0] if found.args else None
        if isinstance(number, int) and number >= 1000:  # MariaDB and MySQL, whose SQLSTATEs say less
            return "08006" if 2000 <= number < 3000 else _NUMBERS.get(number, "HY000")
        if isinstance(code, str):
            return code
        found = found.__cause__
    return ""
