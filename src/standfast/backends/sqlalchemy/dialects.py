"""What the databases differ in: how a transaction begins, what time it is, how a row takes another's place.

Everything else is written once, in SQL that all of them understand. MariaDB and MySQL are one dialect here, in the
words that both know.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection
from sqlalchemy.ext.compiler import compiles

from standfast.ground.errors import StoreUnavailableError

LOCK_WAIT_S = 1
# How long a server waits for a lock of another program's. SQLite does not wait at all: the question is asked again,
# and can be withdrawn meanwhile (A13).

ID_CHARS_MAX = 255
"""How long an id may be in MariaDB: an index holds 3,072 bytes, and one of ours holds an id and a cell's name."""

_MYSQL = ("mysql", "mariadb")
_CLOCK: Any = sa.literal_column("SYSDATE(6)", sa.DateTime())  # not NOW, which is when the statement began


class _Exact(mysql.VARCHAR):
    """Text of which two are equal only if all their characters are, spaces at the end included (A18)."""


@compiles(_Exact, *_MYSQL)
def _exact(_: _Exact, compiler: Any, **__: Any) -> str:
    collation = "utf8mb4_nopad_bin" if compiler.dialect.is_mariadb else "utf8mb4_0900_bin"
    return f"VARCHAR({ID_CHARS_MAX}) CHARACTER SET utf8mb4 COLLATE {collation}"


WORD = sa.String().with_variant(_Exact(ID_CHARS_MAX), *_MYSQL)
CELL_NAME = sa.LargeBinary().with_variant(mysql.VARBINARY(2000), *_MYSQL)
TEXT = sa.Text().with_variant(mysql.LONGTEXT(charset="utf8mb4", collation="utf8mb4_bin"), *_MYSQL)
BYTES = sa.LargeBinary().with_variant(mysql.LONGBLOB(), *_MYSQL)
ENGINE: dict[str, Any] = {f"{name}_engine": "InnoDB" for name in _MYSQL}
ENGINE |= {f"{name}_charset": "utf8mb4" for name in _MYSQL}


class PostgreSQL:
    """PostgreSQL, and what the others do like it."""

    when: Any = sa.TIMESTAMP(timezone=False)
    default_time = "CURRENT_TIMESTAMP"
    insert: Any = staticmethod(postgresql.insert)
    set_up: Sequence[str] = ()
    """What is said on each new connection of our own."""

    def begin(self, *, writing: bool) -> Sequence[str]:
        """Begin a transaction that nobody's change comes in between of, or (reading) one that sees one instant."""
        if not writing:
            return ("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY",)
        # Acknowledged means durable (A23).
        return (
            "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
            "SET LOCAL synchronous_commit = on",
            f"SET LOCAL lock_timeout = '{LOCK_WAIT_S}s'",
        )

    def check(self, connection: Connection) -> None:
        """Refuse a connection on which a promise could not be kept."""

    def put(self, table: sa.Table, values: Mapping[str, Any], keys: Sequence[str], changed: Mapping[str, Any]) -> Any:
        """Insert a row, or change the one that has these keys already."""
        made = self.insert(table).values(**values)
        if not changed:
            return made.on_conflict_do_nothing()
        return made.on_conflict_do_update(index_elements=list(keys), set_=dict(changed))

    def now(self) -> Any:
        """The database's clock, in seconds since 1970."""
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    def seconds(self, column: Any) -> Any:
        """A time of the SDK's as seconds since 1970."""
        return sa.cast(sa.extract("epoch", sa.cast(column, sa.TIMESTAMP(timezone=True))), sa.Double)

    def stamp(self, connection: Connection) -> Any:
        """Now, as the SDK's columns have it."""
        return connection.execute(sa.select(sa.cast(sa.func.clock_timestamp(), self.when))).scalar_one()

    def moments(self, connection: Connection, times: Sequence[float]) -> list[Any]:
        """Times in seconds since 1970 as the SDK's columns have them."""
        local = (
            "SELECT to_timestamp(t)::timestamp FROM unnest(CAST(:times AS float8[])) WITH ORDINALITY x(t, o) ORDER BY o"
        )
        return list(connection.execute(sa.text(local), {"times": times}).scalars())


class SQLite(PostgreSQL):
    """SQLite: one writer at a time, and times as text in whole seconds."""

    when = sa.Text()
    insert = staticmethod(sqlite.insert)
    set_up = ("PRAGMA busy_timeout = 0", "PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL")

    def begin(self, *, writing: bool) -> Sequence[str]:
        """SQLite's own words for it."""
        return ("BEGIN IMMEDIATE" if writing else "BEGIN",)

    def now(self) -> Any:
        """This machine's clock: it is the database's."""
        return sa.cast(sa.literal(time.time()), sa.Double)

    def seconds(self, column: Any) -> Any:
        """A time of the SDK's as seconds since 1970."""
        return (sa.func.julianday(column) - 2440587.5) * 86400.0

    def stamp(self, connection: Connection) -> Any:
        """Now, as the SDK's columns have it."""
        return self.moments(connection, [time.time()])[0]

    def moments(self, connection: Connection, times: Sequence[float]) -> list[Any]:
        """Times in seconds since 1970 as the SDK's columns have them."""
        return [datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S") for at in times]


class MySQL(PostgreSQL):
    """MariaDB and MySQL, with InnoDB."""

    when = mysql.DATETIME(fsp=6)
    default_time = "CURRENT_TIMESTAMP(6)"
    # A value that does not fit is an error, never cut off. It is set where the connection is ours; `check` looks at it
    # on those that were handed in.
    set_up = (
        f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}, sql_mode = CONCAT(@@sql_mode, ',STRICT_ALL_TABLES')",
    )

    def begin(self, *, writing: bool) -> Sequence[str]:
        """Locking reads of rows that are not there lock nothing at this level, so first writers do not deadlock."""
        if writing:
            return ("SET TRANSACTION ISOLATION LEVEL READ COMMITTED", "START TRANSACTION")
        return (
            "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
            "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY",
        )

    def check(self, connection: Connection) -> None:
        """Refuse a connection that cuts off what does not fit, or does not speak all of Unicode."""
        mode, charset = connection.exec_driver_sql("SELECT @@sql_mode, @@character_set_client").one()
        if "STRICT_" in mode and charset == "utf8mb4":
            return
        made = StoreUnavailableError(
            f"the connection has sql_mode {mode!r} and character set {charset!r}: values could be cut off or changed",
            "Set STRICT_TRANS_TABLES in the sql_mode, and give charset=utf8mb4 in the URL.",
        )
        made.is_lasting = True
        raise made

    def put(self, table: sa.Table, values: Mapping[str, Any], keys: Sequence[str], changed: Mapping[str, Any]) -> Any:
        """Insert a row, or change the one that has these keys already. Not IGNORE: that cuts off what does not fit."""
        same = {keys[0]: table.c[keys[0]]}
        return mysql.insert(table).values(**values).on_duplicate_key_update(dict(changed or same))

    def now(self) -> Any:
        """The server's clock, in seconds since 1970."""
        return self.seconds(_CLOCK)

    def seconds(self, column: Any) -> Any:
        """A time of the SDK's as seconds since 1970; the addition makes it a floating point number."""
        return sa.type_coerce(sa.func.unix_timestamp(column).op("+")(sa.literal_column("0e0")), sa.Double)

    def stamp(self, connection: Connection) -> Any:
        """Now, as the SDK's columns have it."""
        return connection.execute(sa.select(_CLOCK)).scalar_one()

    def moments(self, connection: Connection, times: Sequence[float]) -> list[Any]:
        """Times in seconds since 1970 as the SDK's columns have them."""
        found: list[Any] = []
        for start in range(0, len(times), 500):
            some = [Decimal(f"{at:.6f}") for at in times[start : start + 500]]
            found += connection.execute(sa.select(*(sa.func.from_unixtime(at) for at in some))).one()
        return found


DIALECTS: Mapping[str, PostgreSQL] = {
    "postgresql": PostgreSQL(), "sqlite": SQLite(), "mysql": MySQL(), "mariadb": MySQL(),
}  # fmt: skip
