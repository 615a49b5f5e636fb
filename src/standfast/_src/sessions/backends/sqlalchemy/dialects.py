"""Differences in the databases' SQL: clocks, stored times, and inserts that replace a row.

Everything else is written once, in words that all of them understand. MariaDB and MySQL are one dialect here. What a
connection is set to is in `connections`, of which types a column is in `tables`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, TypeVar

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.engine import Connection

T = TypeVar("T")

SOME = 500
"""How many values one statement names at most: SQLite has a limit, and long statements are slow everywhere."""

ID_CHARS_MAX = 255
"""How long an id may be in MariaDB: an index holds 3,072 bytes, and one of ours holds an id and a cell's name."""

_CLOCK = sa.literal_column("SYSDATE(6)", sa.DateTime())  # not NOW, which is when the statement began


def parts(values: Sequence[T]) -> Iterator[Sequence[T]]:
    """The values, a few at a time."""
    return (values[start : start + SOME] for start in range(0, len(values), SOME))


class PostgreSQL:
    """PostgreSQL's dialect, and the base of the other dialects."""

    when: Any = sa.TIMESTAMP(timezone=False)
    default_time = "CURRENT_TIMESTAMP"
    insert: Any = staticmethod(postgresql.insert)

    def put(self, table: sa.Table, values: Mapping[str, Any], keys: Sequence[str], changed: Mapping[str, Any]) -> Any:
        """Insert a row, or update the row with the same keys."""
        made = self.insert(table).values(**values)
        if not changed:
            return made.on_conflict_do_nothing()
        return made.on_conflict_do_update(index_elements=list(keys), set_=dict(changed))

    def now(self) -> sa.ColumnElement[float]:
        """The database's clock, in seconds since 1970."""
        return sa.cast(sa.extract("epoch", sa.func.clock_timestamp()), sa.Double)

    def seconds(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
        """A time of the SDK's as seconds since 1970."""
        return sa.cast(sa.extract("epoch", sa.cast(column, sa.TIMESTAMP(timezone=True))), sa.Double)

    def stamp(self) -> sa.ColumnElement[Any]:
        """Return the database's clock, in the form of the SDK's columns."""
        return sa.cast(sa.func.clock_timestamp(), self.when)

    def later(self, time: datetime, ticks: float = 1) -> datetime:
        """A time of the SDK's, so many microseconds later."""
        return time + ticks * timedelta(microseconds=1)

    def moments(self, connection: Connection, times: Sequence[float]) -> list[Any]:
        """Convert seconds since 1970 into the form of the SDK's columns."""
        local = (
            "SELECT to_timestamp(t)::timestamp FROM unnest(CAST(:times AS float8[])) WITH ORDINALITY x(t, o) ORDER BY o"
        )
        return list(connection.execute(sa.text(local), {"times": times}).scalars())


def _in_seconds(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")


class SQLite(PostgreSQL):
    """SQLite's dialect: a single writer at a time, and times as text in whole seconds."""

    when = sa.Text()
    insert = staticmethod(sqlite.insert)

    def now(self) -> sa.ColumnElement[float]:
        """Return the machine's clock, which SQLite shares."""
        return sa.cast(sa.literal(time.time()), sa.Double)

    def seconds(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
        """A time of the SDK's as seconds since 1970."""
        return (sa.func.julianday(column) - 2440587.5) * 86400.0

    def stamp(self) -> sa.ColumnElement[Any]:
        """Return the present time in the form of the SDK's columns."""
        return sa.literal(_in_seconds(time.time()))

    def later(self, time: datetime, ticks: float = 1) -> datetime:
        """Return the time unchanged: in whole seconds the ids order the rows."""
        return time

    def moments(self, connection: Connection, times: Sequence[float]) -> list[Any]:
        """Convert seconds since 1970 into the form of the SDK's columns."""
        return [_in_seconds(at) for at in times]


class MySQL(PostgreSQL):
    """MariaDB and MySQL, with InnoDB."""

    when = mysql.DATETIME(fsp=6)
    default_time = "CURRENT_TIMESTAMP(6)"

    def put(self, table: sa.Table, values: Mapping[str, Any], keys: Sequence[str], changed: Mapping[str, Any]) -> Any:
        """Insert a row, or update the row with the same keys. Not IGNORE, which truncates long values."""
        same = {keys[0]: table.c[keys[0]]}
        return mysql.insert(table).values(**values).on_duplicate_key_update(dict(changed or same))

    def now(self) -> sa.ColumnElement[float]:
        """The server's clock, in seconds since 1970."""
        return self.seconds(_CLOCK)

    def seconds(self, column: sa.ColumnElement[Any]) -> sa.ColumnElement[float]:
        """A time of the SDK's as seconds since 1970; the addition makes it a floating point number."""
        return sa.type_coerce(sa.func.unix_timestamp(column).op("+")(sa.literal_column("0e0")), sa.Double)

    def stamp(self) -> sa.ColumnElement[Any]:
        """Return the server's clock, in the form of the SDK's columns."""
        return _CLOCK

    def moments(self, connection: Connection, times: Sequence[float]) -> list[Any]:
        """Convert seconds since 1970 into the form of the SDK's columns."""
        found: list[Any] = []
        for some in parts(times):
            wanted = (sa.func.from_unixtime(Decimal(f"{at:.6f}")) for at in some)
            found += connection.execute(sa.select(*wanted)).one()
        return found


DIALECTS: Mapping[str, PostgreSQL] = {
    "postgresql": PostgreSQL(), "sqlite": SQLite(), "mysql": MySQL(), "mariadb": MySQL(),
}  # fmt: skip
