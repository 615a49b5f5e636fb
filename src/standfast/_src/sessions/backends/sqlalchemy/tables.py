"""The OpenAI Agents SDK's two tables in SQLAlchemy's words, with nullable columns of ours, and tables beside them.

PostgreSQL gives ids in another order than transactions become visible, so a row's place in the history is a column
of its own, given under the session's lock. SQLite has one writer at a time and never gives an id twice: there the id is
the place. The SDK reads by `created_at`, then id. On SQLite its times are text in whole seconds, so ours are too: a
fraction would sort behind a row that came later in the same second.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.engine import Connection
from sqlalchemy.exc import NoSuchTableError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import CreateIndex, CreateSequence, CreateTable

from standfast._src.base.errors import NotADatabaseError, SchemaTooNewError, StoreTimeoutError, StoreUnavailableError
from standfast._src.sessions.backends.sqlalchemy.dialects import DIALECTS, ID_CHARS_MAX, MySQL
from standfast._src.sessions.client.sdk_tables import MAKING_LOCK, SQLALCHEMY_VERSION, own_stem

LOCK_WAIT_S = 1
# How long a server waits for a lock of another program's. SQLite does not wait at all: the question is asked again,
# and can be withdrawn meanwhile (A13).

LABELS = ("session", "conversation", "status")
"""What runs are looked for by: columns, beside all their labels as JSON."""


_MYSQL = ("mysql", "mariadb")


class _Exact(mysql.VARCHAR):
    """Text of which two are equal only if all their characters are, spaces at the end included (A18)."""


@compiles(_Exact, *_MYSQL)
def _exact(_: _Exact, compiler: Any, **__: object) -> str:
    collation = "utf8mb4_nopad_bin" if compiler.dialect.is_mariadb else "utf8mb4_0900_bin"
    return f"VARCHAR({ID_CHARS_MAX}) CHARACTER SET utf8mb4 COLLATE {collation}"


WORD = sa.String().with_variant(_Exact(ID_CHARS_MAX), *_MYSQL)
CELL_NAME = sa.LargeBinary().with_variant(mysql.VARBINARY(2000), *_MYSQL)
TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL)
ENGINE: dict[str, Any] = {f"{name}_engine": "InnoDB" for name in _MYSQL}
ENGINE |= {f"{name}_charset": "utf8mb4" for name in _MYSQL}


class Tables:
    """Tables of a pair of names in a dialect."""

    def __init__(self, sessions: str, messages: str, dialect: str) -> None:
        self.sessions, self.messages, self.is_sqlite = sessions, messages, dialect == "sqlite"
        self.dialect = DIALECTS[dialect]
        self.is_mysql = isinstance(self.dialect, MySQL)
        stem = own_stem(sessions, messages)
        meta = self.meta = sa.MetaData()
        text, blob, number, when = TEXT, BYTES, sa.BigInteger(), self.dialect.when
        now: dict[str, Any] = {"server_default": sa.text(self.dialect.default_time), "nullable": False}
        self.s = sa.Table(
            sessions, meta, sa.Column("session_id", WORD, primary_key=True),
            sa.Column("created_at", when, **now), sa.Column("updated_at", when, **now),
            sa.Column("standfast_epoch", text), **ENGINE,
        )  # fmt: skip
        seconds, c = self.dialect.seconds, self.s.c
        times = (seconds(c.created_at).label("born"), seconds(c.updated_at).label("moved"))
        self.theirs = (c.session_id, c.standfast_epoch, *times)  # what the SDK's table knows of a session
        owned = sa.ForeignKey(f"{sessions}.session_id", ondelete="CASCADE")
        self.m = sa.Table(
            messages, meta, sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
            sa.Column("session_id", WORD, owned, nullable=False),
            sa.Column("message_data", text, nullable=False), sa.Column("created_at", when, **now),
            sa.Column("standfast_place", number), sa.Column("standfast_writer", blob),
            sa.Column("standfast_ordinal", number), sa.Column("standfast_replaces", sa.Integer),
            sa.Index(f"idx_{messages[:46]}_session_time", "session_id", "created_at"), sqlite_autoincrement=True,
            **ENGINE,
        )  # fmt: skip
        self.place: Any = self.m.c.id if self.is_sqlite else self.m.c.standfast_place
        sa.Index(f"{stem}place", self.m.c.session_id, self.place)
        # `place`: the highest that was given. `next_epoch`: the incarnation of cells written before the session was.
        # `seq`: newest change first; NULL if never changed.
        self.n = sa.Table(
            f"{stem}sql_names", meta, sa.Column("kind", sa.String(8), primary_key=True),
            sa.Column("id", WORD, primary_key=True), sa.Column("edition", number, nullable=False),
            sa.Column("place", number, nullable=False), sa.Column("next_epoch", text), sa.Column("epoch", text),
            sa.Column("seq", number), sa.Column("created", sa.Double), sa.Column("updated", sa.Double),
            *(sa.Column(label, WORD) for label in LABELS), sa.Column("labels", text),
            sa.Index(f"{stem}sql_seq", "kind", "seq"), sa.Index(f"{stem}sql_runs", "session", "seq"),
            sa.Index(f"{stem}sql_talks", "conversation", "seq"), **ENGINE,
        )  # fmt: skip
        self.c = sa.Table(
            f"{stem}sql_cells", meta, sa.Column("kind", sa.String(8), primary_key=True),
            sa.Column("id", WORD, primary_key=True), sa.Column("name", CELL_NAME, primary_key=True),
            sa.Column("epoch", text, nullable=False), sa.Column("value", blob, nullable=False),
            **ENGINE,
        )  # fmt: skip
        self.b = sa.Table(
            f"{stem}sql_boxes", meta, sa.Column("session_id", WORD, primary_key=True),
            sa.Column("box", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("place", number, primary_key=True, autoincrement=False),
            sa.Column("message_data", text, nullable=False), sa.Column("writer", blob),
            sa.Column("ordinal", number), sa.Column("replaces", sa.Integer), **ENGINE,
        )  # fmt: skip
        # The order of changes: SQLite has one writer at a time, MySQL knows no sequence but a column that counts.
        self.seq = sa.Sequence(f"{stem}sql_seq_numbers", metadata=meta) if dialect == "postgresql" else None
        if self.is_mysql:
            self.numbers = sa.Table(
                f"{stem}sql_numbers", meta, sa.Column("number", number, primary_key=True, autoincrement=True), **ENGINE
            )
        self.versions = "standfast_schema" if self.is_sqlite else f"{stem}version"
        self.key = f"{sessions}/{messages}".lower()

    # --- making ------------------------------------------------------------------------------------------------------

    def install(self, connection: Connection, *, create: bool) -> None:
        """Create missing tables. The caller has begun a transaction, and no other process creates tables meanwhile.

        A look comes first: DDL that finds nothing to do still takes locks, and deadlocks with writers.
        """
        if self.version(connection) == SQLALCHEMY_VERSION:
            return
        if not create:
            raise StoreUnavailableError(
                f"the tables {self.sessions!r} and {self.messages!r} have no additions of standfast",
                "Open the session with create_tables=True once, as somebody who may create tables.",
            )
        with self._alone(connection):
            if self.version(connection) != SQLALCHEMY_VERSION:
                self._make(connection)

    @contextmanager
    def _alone(self, connection: Connection) -> Iterator[None]:
        """Lock out other processes of ours during the creation of tables."""
        if self.is_mysql:  # every DDL commits there, so the lock is the connection's and not the transaction's
            if not connection.scalar(sa.select(sa.func.get_lock(f"standfast {MAKING_LOCK}", LOCK_WAIT_S))):
                raise StoreTimeoutError("another process is making the tables", "Try again.")
            try:
                yield
            finally:
                connection.scalar(sa.select(sa.func.release_lock(f"standfast {MAKING_LOCK}")))
            return
        if not self.is_sqlite:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MAKING_LOCK)))
        yield

    def _make(self, connection: Connection) -> None:
        there = self._theirs(connection)
        quoted = connection.dialect.identifier_preparer.quote
        # Not `create_all`: it asks for each table first, and every statement here is one that a first write waits for.
        for table in self.meta.sorted_tables:
            connection.execute(CreateTable(table, if_not_exists=True))
        for table in (self.s, self.m):
            for column in [
                column for column in table.columns if column.name not in there.get(table.name, table.columns)
            ]:
                kind = column.type.compile(connection.dialect)
                connection.exec_driver_sql(f"ALTER TABLE {quoted(table.name)} ADD COLUMN {column.name} {kind}")
        for table in self.meta.sorted_tables:
            # MySQL has no CREATE INDEX IF NOT EXISTS.
            has = {index["name"] for index in sa.inspect(connection).get_indexes(table.name)} if self.is_mysql else ()
            for index in sorted(table.indexes, key=lambda index: str(index.name)):
                if index.name not in has:
                    connection.execute(CreateIndex(index, if_not_exists=not self.is_mysql))
        if self.seq is not None:
            connection.execute(CreateSequence(self.seq, if_not_exists=True))
        if self.is_sqlite:
            connection.exec_driver_sql(
                f"CREATE TABLE IF NOT EXISTS {self.versions} (tables TEXT PRIMARY KEY, version INTEGER NOT NULL)"
            )
            connection.exec_driver_sql(f"INSERT INTO {self.versions} VALUES ('{self.key}', {SQLALCHEMY_VERSION})")
        else:
            name = quoted(self.versions)
            connection.exec_driver_sql(f"CREATE TABLE IF NOT EXISTS {name} (version INTEGER PRIMARY KEY)")
            connection.exec_driver_sql(f"INSERT INTO {name} VALUES ({SQLALCHEMY_VERSION})")

    def _theirs(self, connection: Connection) -> dict[str, set[str]]:
        """Return the columns of the SDK's tables, as far as the tables exist.

        Refuses tables of these names that are something else, before anything is changed.
        """
        inspector, there = sa.inspect(connection), dict[str, set[str]]()
        for table in (self.s, self.m):
            try:
                columns = inspector.get_columns(table.name)
            except NoSuchTableError:
                continue
            there[table.name] = {column["name"] for column in columns}
            wanted = {column.name for column in table.columns if not column.name.startswith("standfast_")}
            if not wanted <= there[table.name]:
                raise NotADatabaseError(
                    f"the table {table.name!r} has other columns than the SDK's", "Choose other table names."
                )
            if self.is_mysql:
                _check_columns(table.name, {column["name"]: column["type"] for column in columns})
        found = connection.execute(
            sa.text("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = :name"), {"name": self.messages}
        ).scalar() if self.is_sqlite else None  # fmt: skip
        if found and "AUTOINCREMENT" not in found.upper():
            raise NotADatabaseError(
                f"the table {self.messages!r} lets SQLite use row ids again (it has no AUTOINCREMENT): a history that "
                "changed could look unchanged",
                "Give other table names or another file, and copy the conversations over.",
            )
        return there

    def version(self, connection: Connection) -> int:
        """Return the stored layout; 0 without any. Refuse a layout of another class of standfast."""
        if not sa.inspect(connection).has_table(self.versions):
            return 0
        where = f" WHERE tables = '{self.key}'" if self.is_sqlite else ""
        name = connection.dialect.identifier_preparer.quote(self.versions)
        found = connection.exec_driver_sql(f"SELECT max(version) FROM {name}{where}").scalar() or 0
        if found > SQLALCHEMY_VERSION:
            raise SchemaTooNewError(f"a newer standfast has changed {self.messages!r}", "Upgrade standfast here.")
        if 0 < found < SQLALCHEMY_VERSION:
            other = "SQLiteSession" if self.is_sqlite else "PostgresSession"
            made = StoreUnavailableError(
                f"{other} keeps its own records beside {self.messages!r}",
                f"Open these tables with {other}; open_store takes a URL without the name of a driver.",
            )
            made.is_lasting = True
            raise made
        return int(found)


def _check_columns(table: str, types: Mapping[str, Any]) -> None:
    """Refuse another program's table in MariaDB if two ids could be equal, or the SDK would lose our order."""
    collation = str(getattr(types["session_id"], "collation", ""))
    if not collation.endswith(("nopad_bin", "0900_bin")):
        raise NotADatabaseError(
            f"in the table {table!r} two ids that differ by case or by spaces at the end can be equal ({collation})",
            f"Let {table}.session_id be VARCHAR({ID_CHARS_MAX}) COLLATE utf8mb4_nopad_bin (MySQL: utf8mb4_0900_bin).",
        )
    if getattr(types["created_at"], "fsp", None) != 6:
        raise NotADatabaseError(
            f"the table {table!r} keeps times in whole seconds: the SDK could not read our order",
            f"Let {table}.created_at be DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6).",
        )
