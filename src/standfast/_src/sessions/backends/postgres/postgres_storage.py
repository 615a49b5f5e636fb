"""PostgreSQL store: a look and a step are one function call each, in a transaction of its own.

So nothing is left open on a connection between two calls, which is what a pooler in transaction mode asks for.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from struct import Struct
from typing import Any, TypeVar

import psycopg
from psycopg.adapt import Dumper
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Format
from psycopg.pq.abc import PGresult
from psycopg.types.json import Jsonb

from standfast._src.base.errors import StandfastError
from standfast._src.sessions.backends.postgres.connection import LimitedConnection, read_result
from standfast._src.sessions.backends.postgres.postgres_errors import (
    BUSY,
    find_server_error,
    is_lost,
    is_unsendable,
    lost,
    refused_error,
    unreachable,
    unsendable,
)
from standfast._src.sessions.backends.postgres.schema import Tables, install
from standfast._src.sessions.storage import (
    NOBODY,
    Answer,
    Ask,
    Cell,
    CommitRequest,
    Count,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Listing,
    Load,
    Name,
    NewRows,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
    Tag,
    only_appends,
)
from standfast._src.sessions.storage_helpers import NUMBER_MAX, Description, asked_alone, read_cursor

T = TypeVar("T")

NewRow = tuple[bytes, Tag | None]

CONNECT_S_MAX = 5
# A pooler that gives each transaction another server connection does not know a statement prepared on the last one.
# Such a statement was never executed; from then on none is prepared.
_NOT_PREPARED = ("26000", "42P05", "08P01")
# Our functions wait for locks and then look at what is there, which another level would not show them.
_READ_COMMITTED = "-c default_transaction_isolation=read\\ committed"
_OTHER_LEVEL = "25001"
_BYTEA, _INT8, _INT4, _TEXT = 17, 20, 23, 25  # what PostgreSQL numbers its types with
_HEAD, _INT, _LONG = Struct("!iiiii").pack, Struct("!i").pack, Struct("!q").pack
_NULL, _ZERO = _INT(-1), _LONG(0)
_ALL_BINARY = [Format.BINARY] * 9


class Packed(bytes):
    """Array in PostgreSQL's binary form. The statement names the type.

    psycopg makes arrays of lists element by element, those of strings with regular expressions: it was a third of the
    client's time for an append. What we store is bytes already, and goes out as it is.
    """


class _PackedDumper(Dumper):
    format = Format.BINARY

    def dump(self, obj: Packed) -> Packed:
        return obj


def pack_array(element: int, values: Sequence[bytes | None]) -> Packed:
    """An array of values that are in their binary form; `element` is the number of their type."""
    parts = [_HEAD(1, None in values, element, len(values), 1)]
    for value in values:
        parts += (_NULL,) if value is None else (_INT(len(value)), value)
    return Packed(b"".join(parts))


def pack_repeated(element: int, value: bytes, count: int) -> Packed:
    """Pack an array of `count` equal values."""
    return Packed(_HEAD(1, 0, element, count, 1) + (_INT(len(value)) + value) * count)


def packed_rows(rows: Sequence[NewRow]) -> tuple[Packed, ...]:
    """Pack rows into the four arrays of a function: contents, writers, ordinals, generations."""
    if type(rows) is NewRows:  # nearly always; a tag for each of them took longer than the arrays
        writer, start, count = rows.writer, rows.start, len(rows.data)
        return (
            pack_array(_TEXT, rows.data),
            pack_repeated(_BYTEA, writer.encode(), count),
            pack_array(_INT8, list(map(_LONG, range(start, start + count))))
            if writer
            else pack_repeated(_INT8, _ZERO, count),
            pack_repeated(_INT4, _INT(0), count),
        )
    tags = [tag or NOBODY for _, tag in rows]
    return (
        pack_array(_TEXT, [data for data, _ in rows]),
        pack_array(_BYTEA, [None if tag is None else tag.writer.encode() for _, tag in rows]),
        pack_array(_INT8, [_LONG(tag.ordinal) for tag in tags]),
        pack_array(_INT4, [_INT(tag.replaces) for tag in tags]),
    )


def packed_cells(cells: Mapping[str, bytes | None]) -> tuple[Packed, Packed]:
    """Cells as two arrays: names and values."""
    return _packed_names(tuple(cells)), pack_array(_BYTEA, list(cells.values()))


@lru_cache(256)  # a writer's lane and count, the lease: the same for each append of a session
def _packed_names(cells: tuple[str, ...]) -> Packed:
    return pack_array(_BYTEA, [cell.encode() for cell in cells])


class PostgresStore:
    """Store in the tables of a PostgreSQL database (see `_src.sessions.storage`): one connection, for one thread at a
    time.
    """

    loses_answers = True

    def __init__(self, dsn: str, tables: Tables, *, options: Mapping[str, Any], create_tables: bool) -> None:
        self._dsn, self._tables, self._options, self._create = dsn, tables, dict(options), create_tables
        self._connection: LimitedConnection | None = None
        self._prepares, self._sets_level = True, False
        self._share, self._has_lost_a_group = 1, False
        own = tables.own
        self._look_sql = f'SELECT * FROM {own}look"($1, $2, $3::bytea[], $4::bytea[], $5, $6::bytea[], $7, $8, $9)'
        self._commit_sql = (
            f'SELECT * FROM {own}commit"($1, $2, $3::bytea[], $4::text[], $5::bytea[], $6::bigint[], $7::integer[])'
        )
        self._append_sql = (
            f'SELECT {own}append"($1::text, $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::text[], '
            "$7::bytea[], $8::bigint[], $9::integer[])"
        )
        # Behind a pooler another process may have prepared something under this name: then it is the same statement.
        self._append_name = b"standfast_" + hashlib.sha256(self._append_sql.encode()).hexdigest()[:16].encode()
        self._is_prepared = False
        order = f"FROM {tables.m} WHERE session_id = $1 ORDER BY standfast_place"
        self._data_sql = f"SELECT message_data {order} NULLS LAST, id"
        self._latest_sql = f"SELECT message_data {order} DESC NULLS FIRST, id DESC LIMIT $2"

    @property
    def label(self) -> str:
        """Store's name for a log: its address without user and password."""
        given = conninfo_to_dict(self._dsn, **self._options)
        place = f"{given.get('host', '')}:{given.get('port', '')}/{given.get('dbname', '')}"
        return f"PostgreSQL at {place}, table {self._tables.m}"

    def reach(self) -> None:
        """Connect if necessary, and create missing tables and functions."""
        self._ensure_open()

    # --- looking

    def look(self, look: ReadRequest) -> ReadAnswer:
        """Read by one SELECT for the history's contents alone, otherwise by one function call."""
        wanted = look.rows[0] if look.rows else Rows()
        is_plain = wanted.before is None and wanted.after is None and wanted.writer is None
        if look.only_data and not wanted.box and is_plain:
            if wanted.limit is None:
                data = self._ask(self._data_sql, (look.name.id,), reading=True)
            else:
                data = self._ask(self._latest_sql, (look.name.id, wanted.limit), reading=True)[::-1]
            return ReadAnswer(data=[text.encode() for (text,) in data])
        arguments = (
            look.name.kind,
            look.name.id,
            pack_array(_BYTEA, [cell.encode() for cell in look.cells]) if look.cells else None,
            pack_array(_BYTEA, [prefix.encode() for prefix in look.prefixes]) if look.prefixes else None,
            Jsonb([_describe_rows(rows) for rows in look.rows]),
            pack_array(_BYTEA, [None if rows.writer is None else rows.writer.encode() for rows in look.rows]),
            look.upto,
            look.mark,
            look.count,
        )
        ((mark, epoch, created, updated, now, labels, upto, names, epochs, values, *columns, ats, live),) = self._ask(
            self._look_sql, arguments, reading=True
        )
        rows = _lists(*columns)
        return ReadAnswer(
            mark=mark or "", now=now, epoch=epoch, created=created, updated=updated, labels=labels or {},
            cells=_cells(names, epochs, values, epoch), rows=rows, upto=upto,
            data=[row.data for row in rows[0]] if look.only_data else (),
            count=live or 0, times=_times(look, rows, ats or ()),
        )  # fmt: skip

    # --- changing

    def commit(self, step: CommitRequest) -> Done | Refused:
        """Commit by one function call: the small function for a plain append."""
        if only_appends(step):
            mark = self._run_on_connection(lambda connection: self._append(connection, step[0]), reading=False)
            if mark is not None:
                return Done((mark,))
        return _outcome(self._ask(self._commit_sql, self._arguments(step), reading=False)[0])

    def _append(self, connection: LimitedConnection, change: KeyUpdate) -> str | None:
        """Call the small function past psycopg's cursors, whose own work takes longer than the rest of the client's."""
        if not self._prepares:
            ((mark,),) = connection.execute(self._append_sql, _append_arguments(change), prepare=False).fetchall()
            return None if mark is None else str(mark)
        if not self._is_prepared:
            connection.pgconn.send_prepare(self._append_name, self._append_sql.encode())
            read_result(connection)
            self._is_prepared = True
        arguments = _append_arguments(change)
        connection.pgconn.send_query_prepared(self._append_name, arguments, _ALL_BINARY, Format.BINARY)
        return _mark(read_result(connection))

    @staticmethod
    def _arguments(step: CommitRequest) -> tuple[Any, ...]:
        arguments: list[bytes] = []
        rows: list[NewRow] = []
        described = [_Numbered(change, arguments, rows).made() for change in step]
        return (Jsonb(described), secrets.token_hex(8), pack_array(_BYTEA, arguments), *packed_rows(rows))

    def ask_many(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Commit the waiting steps in one transaction, sent in one message and synced once.

        If the server refuses a step, at its statement or at the commit, the transaction is rolled back, and each step
        is then sent by itself. If the connection is lost, one step may be the cause: the next round sends each by
        itself (A10).
        """
        is_group = len(questions) > 1 and not any(
            isinstance(question, ReadRequest | Listing | Count) for question in questions
        )
        if is_group and not self._has_lost_a_group:
            done = self._together(questions)
            if done is not None:
                return done
        elif is_group:  # an unanswered step must not keep the other steps waiting as long
            self._share = len(questions)
        self._has_lost_a_group = False
        try:
            return self._one_by_one(questions)
        finally:
            self._share = 1

    def _one_by_one(self, questions: Sequence[Ask]) -> list[Answer | Exception]:
        """Ask each question by itself; reconnect after a lost connection."""
        answers: list[Answer | Exception] = []
        for question in questions:
            try:
                self.reach()
            except StandfastError as error:  # the rest is not sent: a connect timeout for each would add up
                return answers + [error] * (len(questions) - len(answers))
            answers.append(asked_alone(self, question))
        return answers

    def _together(self, steps: Sequence[Any]) -> list[Answer | Exception] | None:
        # Everybody locks in one order, whatever else they lock.
        order = sorted(range(len(steps)), key=lambda place: min(change.name for change in steps[place]))
        connection = self._ensure_open()
        try:
            with connection.pipeline():
                prepare = None if self._prepares else False
                cursors = [connection.execute(*self._call(steps[at]), prepare=prepare, binary=True) for at in order]
            answers = {place: cursor.fetchall()[0] for place, cursor in zip(order, cursors, strict=True)}
        except (psycopg.Error, UnicodeEncodeError) as raised:
            if isinstance(raised, UnicodeEncodeError) or is_unsendable(raised):
                self.close()  # the statements already sent are rolled back with the connection
                return None
            error = find_server_error(raised)
            if error is not raised or is_lost(error):
                self.close()
            if not is_lost(error):
                if error.sqlstate in BUSY:  # a wait for a lock must not delay each other step as long
                    self._share = len(steps)
                return None  # undone, all of it
            self._has_lost_a_group = True
            return [lost(error, reading=False)] * len(steps)
        # What the small function leaves alone was not done, nor what came behind it and relied on it.
        return [
            asked_alone(self, step) if answers[place] == (None,) else _outcome(answers[place])
            for place, step in enumerate(steps)
        ]

    def _call(self, step: CommitRequest) -> tuple[str, tuple[Any, ...]]:
        if only_appends(step):
            return self._append_sql, _append_arguments(step[0])
        return self._commit_sql, self._arguments(step)

    # --- listing

    def listing(self, kind: Kind, *, after: str | None, limit: int, labels: Mapping[str, str]) -> Sequence[Listed]:
        """A page by the order of changes, from an index."""
        s, own = self._tables.s, self._tables.own
        if after is None and kind == "session":
            self._ask(f'SELECT {own}adopt_sessions"()', (), reading=True)
        below = NUMBER_MAX if after is None else read_cursor(after)
        if kind == "session":
            sql = (
                "SELECT n.id, extract(epoch FROM CASE WHEN s.standfast_epoch IS NULL OR n.created IS NULL "
                "THEN s.created_at::timestamptz ELSE n.created END)::float8, "
                "extract(epoch FROM greatest(n.updated, s.updated_at::timestamptz))::float8, '{}'::jsonb, n.seq "
                f'FROM {own}names" n JOIN {s} s ON s.session_id = n.id WHERE n.kind = $1 AND n.seq < $2'
            )
        else:
            sql = (
                "SELECT n.id, extract(epoch FROM n.created)::float8, extract(epoch FROM n.updated)::float8, n.labels, "
                f'n.seq FROM {own}names" n WHERE n.kind = $1 AND n.seq < $2 AND n.epoch IS NOT NULL'
            )
        arguments: list[Any] = [kind, below]
        for label, value in labels.items():
            arguments.append(value)
            sql += f" AND n.labels ->> '{_label(label)}' = ${len(arguments)}"
        arguments.append(limit)
        found = self._ask(f"{sql} ORDER BY n.seq DESC LIMIT ${len(arguments)}", arguments, reading=True)
        return [Listed(id_, created, updated, has or {}, str(seq)) for id_, created, updated, has, seq in found]

    def count(self, kind: Kind) -> int:
        """Count the names of a kind."""
        s, own = self._tables.s, self._tables.own
        runs = f"SELECT count(*) FROM {own}names\" WHERE kind = 'run' AND epoch IS NOT NULL"
        ((count,),) = self._ask(f"SELECT count(*) FROM {s}" if kind == "session" else runs, (), reading=True)
        return int(count)

    # --- the connection

    def _ask(self, sql: str, arguments: Sequence[Any], *, reading: bool) -> list[Any]:
        def call(connection: LimitedConnection) -> list[Any]:
            return connection.execute(sql, arguments, prepare=None if self._prepares else False, binary=True).fetchall()

        return self._run_on_connection(call, reading=reading)

    def _run_on_connection(self, call: Callable[[LimitedConnection], T], *, reading: bool) -> T:
        """Return the result of a call on the connection, with psycopg's errors translated."""
        connection = self._ensure_open()
        try:
            return call(connection)
        except UnicodeEncodeError as error:
            raise unsendable(error) from error
        except psycopg.Error as error:
            if is_unsendable(error):
                raise unsendable(error) from error
            if error.sqlstate in _NOT_PREPARED and self._prepares:
                self._prepares = False
                self.close()
                return self._run_on_connection(call, reading=reading)
            if error.sqlstate == _OTHER_LEVEL and not self._sets_level:  # nothing was done: the function says so first
                self._sets_level = True
                self.close()
                return self._run_on_connection(call, reading=reading)
            if connection.closed or connection.broken or error.sqlstate is None:
                self.close()
            if is_lost(error):
                raise lost(error, reading=reading) from error
            raise refused_error(error) from error

    def _ensure_open(self) -> LimitedConnection:
        if self._connection is None:
            options = {"connect_timeout": CONNECT_S_MAX, "application_name": "standfast", **self._options}
            options["client_encoding"] = "utf8"  # contents go out as they are stored: see Packed
            if self._sets_level:  # as the connection begins: a later SET would reach other clients behind a pooler
                given = options.get("options") or conninfo_to_dict(self._dsn).get("options") or ""
                options["options"] = f"{given} {_READ_COMMITTED}".strip()
            connection: LimitedConnection | None = None
            try:
                connection = LimitedConnection.connect(
                    self._dsn, autocommit=True, cursor_factory=psycopg.RawCursor, **options
                )
                install(connection, self._tables, create=self._create)
            except BaseException as error:
                if connection is not None:
                    connection.close()
                if not isinstance(error, psycopg.Error):
                    raise
                raise (unreachable(error) if connection is None or is_lost(error) else refused_error(error)) from error
            connection.adapters.register_dumper(Packed, _PackedDumper)
            self._connection = connection
        self._connection.share = self._share
        return self._connection

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection, self._is_prepared = None, False


def _mark(found: PGresult) -> str | None:
    """Return the small function's mark; None if the function declined the step."""
    mark = found.get_value(0, 0)
    return None if mark is None else mark.decode()


def _append_arguments(change: KeyUpdate) -> tuple[Packed, ...]:
    return (
        Packed(change.name.id.encode()),
        *packed_cells(change.cells),
        *packed_cells(change.put),
        *packed_rows(change.push),
    )


def _outcome(answer: Sequence[Any]) -> Done | Refused:
    """Decode a function's answer to a step."""
    if len(answer) == 1:
        return Done((answer[0],))
    place, why, marks, _, epoch, names, epochs, values = answer
    if place is None:
        return Done(tuple(marks))
    cells = _cells(names, epochs, values, epoch or "")
    return Refused(place, "cell" if why == "cell" else "mark", (marks or [""])[0], cells)


class _Numbered(Description):
    """Description of a change for the step function: contents become rows, and other strings become arguments."""

    def __init__(self, change: KeyUpdate, arguments: list[bytes], rows: list[NewRow]) -> None:
        super().__init__(change)
        self._arguments, self._rows = arguments, rows

    def argument(self, value: bytes) -> int:
        self._arguments.append(value)
        return len(self._arguments)

    def rows(self, rows: Sequence[NewRow]) -> tuple[int, int]:
        self._rows.extend(rows)
        return len(self._rows) - len(rows) + 1, len(self._rows)

    def put_back(self, row: Row) -> int:
        return self.rows([(row.data, row.tag)])[1]

    def of(self, name: Name) -> int:
        return self.text(name.id)

    def loaded(self, load: Load) -> dict[str, Any]:
        return {
            "live": self.rows(load.live),
            "times": [at / 1e6 for at in load.rising_us(time.time_ns() // 1000)],
            "boxes": [(box, *self.rows(some)) for box, some in load.boxes.items()],
            "created": load.created,
        }

    def made(self) -> dict[str, Any]:
        return {"kind": self.change.name.kind, **super().made()}


def _describe_rows(rows: Rows) -> dict[str, Any]:
    return {name: getattr(rows, name) for name in ("box", "before", "limit", "after", "times")}


def _times(
    look: ReadRequest, rows: Sequence[Sequence[Row]], ats: Sequence[float]
) -> tuple[Sequence[float | None], ...]:
    """Divide the one array of times among the lists of rows."""
    left = iter(ats)
    return tuple(
        list(islice(left, len(some))) if wanted.times else () for wanted, some in zip(look.rows, rows, strict=True)
    )


def _cells(
    names: Sequence[bytes] | None, epochs: Sequence[str] | None, values: Sequence[bytes] | None, epoch: str
) -> dict[str, Cell]:
    return {
        bytes(name).decode(): Cell(bytes(value), bool(epoch) and born == epoch)
        for name, born, value in zip(names or (), epochs or (), values or (), strict=True)
    }


def _lists(counts: Sequence[int] | None, *columns: Sequence[Any] | None) -> tuple[list[Row], ...]:
    rows = map(_row, *(column or () for column in columns))
    return tuple(list(islice(rows, count)) for count in counts or ())


def _row(ref: int, text: str, writer: bytes | None, ordinal: int | None, replaces: int | None) -> Row:
    tag = None if writer is None else Tag(bytes(writer).decode(), ordinal or 0, replaces or 0)
    return Row(ref, text.encode(), tag)


def _label(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r} is no label")
    return name
