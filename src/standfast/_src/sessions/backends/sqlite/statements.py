"""Every SQL statement, written once per pair of table names.

Names are checked before they get here and quoted here; values are always bound: by place, or, where one is needed
more than once, by number (`:1`, given as `number_values(...)`). Statements that run for every turn take many rows at
once,
of many sessions: with one sync per group, the number of statements is what a turn costs.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache, lru_cache, partial
from typing import Any

from standfast._src.sessions.backends.sqlite.schema import WAITING, WAITS, Tables, label_value, quote
from standfast._src.sessions.storage import Kind

AT_ONCE_MAX = 64
"""Rows per statement. SQLite before 3.32 binds at most 999 values."""

WHOLE = "ORDER BY id"
AFTER = "AND id > ? ORDER BY id LIMIT ?"
LATEST = "AND id < ? ORDER BY id DESC LIMIT ?"
"""Which rows are read, and in which order."""

ROW_COLUMNS = "message_data, standfast_writer, standfast_ordinal, standfast_replaces"


def number_values(*values: object) -> dict[str, Any]:
    """Number a statement's values. (`?1` would do, but Python 3.12.0 to 3.12.3 warn about it.)"""
    return {str(place): value for place, value in enumerate(values, 1)}


@lru_cache(maxsize=1024)
def chunks(count: int) -> tuple[tuple[int, int], ...]:
    """Cut so many rows into (start, size) of few different sizes, so that few different statements are prepared."""
    found: list[tuple[int, int]] = []
    start = 0
    while start < count:
        found.append((start, min(AT_ONCE_MAX, 1 << (count - start).bit_length() - 1)))
        start += found[-1][1]
    return tuple(found)


def _build_insert(begin: str, width: int, end: str, count: int) -> str:
    """Build a statement to insert `count` rows of `width` values."""
    row = f"({', '.join('?' * width)})"
    return f"{begin} {', '.join([row] * count)} {end}"


def _among_these(begin: str, count: int) -> str:
    """Build a statement about the rows with a name among `count` names."""
    return f"{begin} IN ({', '.join('?' * count)})"


def _build_select(messages: str, columns: str, of_writer: bool, order: str) -> str:
    """Reads rows of a session, of a writer perhaps."""
    where = "session_id = ? AND standfast_writer = ?" if of_writer else "session_id = ?"
    return f"SELECT {columns} FROM {messages} WHERE {where} {order}"


def _among(names: str, select: str, count: int) -> str:
    """Build a statement to look up `count` things, each by its place and names."""
    values = f", {', '.join('?' * (names.count(',') + 1))})"
    return f"WITH n(place, {names}) AS (VALUES {', '.join(f'({place}{values}' for place in range(count))}) {select}"


class Statements:
    """SQL statements of a pair of tables."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.messages = m = quote(tables.messages)
        a = quote(tables.own("archive"))
        self.cells = c = quote(tables.own("cells"))
        s, r = quote(tables.sessions), quote(tables.own("runs"))
        self._naming: dict[Kind, tuple[str, str, str]] = {
            "session": (s, "session_id", "standfast_"),
            "run": (r, "run_id", ""),
        }
        self._history(m)
        self._build_arrangement(m, a)
        self._cells(c)
        self.order = (
            f"SELECT standfast_changed, standfast_seen, (SELECT max(id) FROM {m}) FROM {s} "
            "WHERE standfast_changed IS NOT NULL ORDER BY standfast_changed DESC LIMIT 1"
        )
        self.newest_id = f"SELECT max(id) FROM {m}"
        self.newest_run = f"SELECT max(changed) FROM {r}"
        self.see = (
            f"UPDATE {s} SET standfast_seen = ? WHERE standfast_changed = (SELECT max(standfast_changed) FROM {s})"
        )
        self.foreign = (
            f"SELECT session_id, max(id) FROM {m} NOT INDEXED WHERE id > ? AND standfast_writer IS NULL "
            "GROUP BY session_id ORDER BY max(id)"
        )
        self.set_edition = (
            f"INSERT INTO {s} (session_id, standfast_edition) VALUES (?, ?) "
            "ON CONFLICT (session_id) DO UPDATE SET standfast_edition = excluded.standfast_edition"
        )
        self.session_times = f"SELECT created_at, updated_at, standfast_labels FROM {s} WHERE session_id = ?"
        # By the row and not by the id that was read: another program may have stored an id that is not a text.
        self.adopt = (
            f"UPDATE {s} SET standfast_changed = ?, standfast_seen = ? "
            f"WHERE session_id = (SELECT session_id FROM {m} WHERE id = ?)"
        )
        session_states = (
            "SELECT n.place, s.created_at, s.updated_at, s.standfast_labels, s.standfast_epoch, s.standfast_edition, "
            f"(SELECT id FROM {m} WHERE session_id = n.id ORDER BY id LIMIT 1), "
            f"(SELECT id FROM {m} WHERE session_id = n.id ORDER BY id DESC LIMIT 1) "
            f"FROM n LEFT JOIN {s} s ON s.session_id = n.id"
        )
        run_states = (
            f"SELECT n.place, created_at, updated_at, labels, epoch, 0, 0, 0 FROM n LEFT JOIN {r} r ON r.run_id = n.id"
        )
        self.still_first: dict[Kind, Callable[[int], str]] = {
            "session": cache(
                partial(_among_these, f"UPDATE {s} SET updated_at = ?, standfast_seen = ? WHERE session_id")
            ),
            "run": cache(partial(_among_these, f"UPDATE {r} SET updated_at = ? WHERE run_id")),
        }
        self._of_many(m, c, session_states, run_states)

    def _of_many(self, m: str, c: str, session_states: str, run_states: str) -> None:
        """Build the statements for a variable number of rows."""
        self.states: dict[Kind, Callable[[int], str]] = {
            "session": cache(partial(_among, "id", session_states)),
            "run": cache(partial(_among, "id", run_states)),
        }
        self.cells_of = cache(
            partial(
                _among,
                "owner, name",
                f"SELECT n.place, c.epoch, c.value FROM n CROSS JOIN {c} c ON c.owner = n.owner AND c.name = n.name",
            )
        )
        rows = f"INSERT INTO {m} (session_id, message_data, standfast_writer, standfast_ordinal) VALUES"
        self.insert_rows = cache(partial(_build_insert, rows, 4, ""))
        self.put_cells = cache(
            partial(
                _build_insert, f"INSERT INTO {c} (owner, name, epoch, value) VALUES", 4,
                "ON CONFLICT (owner, name) DO UPDATE SET epoch = excluded.epoch, value = excluded.value",
            )
        )  # fmt: skip
        self.touch: dict[Kind, Callable[[int], str]] = {
            "session": cache(partial(_build_insert, *self._build_touch("session", "standfast_seen"))),
            "run": cache(partial(_build_insert, *self._build_touch("run"))),
        }

    def _history(self, m: str) -> None:
        self.newest_of = f"SELECT id FROM {m} WHERE session_id = ? ORDER BY id DESC LIMIT 1"
        self.ends = f"SELECT (SELECT id FROM {m} WHERE session_id = ? ORDER BY id LIMIT 1), ({self.newest_of})"
        before = f"SELECT id FROM {m} AS b WHERE b.session_id = m.session_id AND b.id < m.id ORDER BY id DESC LIMIT 1"
        self.newest_row = (
            f"SELECT id, {ROW_COLUMNS}, ({before}) FROM {m} AS m WHERE session_id = ? ORDER BY id DESC LIMIT 1"
        )
        self.reading = cache(partial(_build_select, m))
        self.count_rows = f"SELECT count(*) FROM {m} WHERE session_id = ?"
        self.row_here = f"SELECT 1 FROM {m} WHERE id = ? AND session_id = ?"
        self.delete_row = f"DELETE FROM {m} WHERE id = ? AND session_id = ?"
        self.delete_rows = f"DELETE FROM {m} WHERE session_id = ? AND id > ? AND id <= ?"
        self.insert_loaded = (
            f"INSERT INTO {m} (session_id, created_at, {ROW_COLUMNS}) VALUES (?, ?, CAST(? AS TEXT), ?, ?, ?)"
        )
        self.insert_bytes = f"INSERT INTO {m} (id, session_id, {ROW_COLUMNS}) VALUES (?, ?, CAST(? AS TEXT), ?, ?, ?)"

    def _build_arrangement(self, m: str, a: str) -> None:
        self.box_rows = (
            f"SELECT position, {ROW_COLUMNS} FROM {a} WHERE session_id = ? AND generation = ? AND position < ? "
            "AND (? IS NULL OR standfast_writer = ?) ORDER BY position DESC LIMIT ?"
        )
        # :6 is what `replaces` becomes, NULL to leave it; a row without a tag then gets a tag with an empty writer.
        moved = (
            "message_data, created_at, CASE WHEN :6 IS NULL THEN standfast_writer ELSE coalesce(standfast_writer, '') "
            "END, standfast_ordinal, coalesce(:6, standfast_replaces)"
        )
        into = "message_data, created_at, standfast_writer, standfast_ordinal, standfast_replaces"
        self.live_to_live = (
            f"INSERT INTO {m} (session_id, {into}) SELECT :5, {moved} FROM {m} "
            "WHERE session_id = :1 AND id > :3 AND id <= :4 ORDER BY id"
        )
        self.box_to_live = (
            f"INSERT INTO {m} (session_id, {into}) SELECT :5, {moved} FROM {a} "
            "WHERE session_id = :1 AND generation = :2 AND position > :3 AND position <= :4 ORDER BY position"
        )
        # :8 is where the box ends. Asked beforehand: a statement that reads what it writes makes a copy first.
        self.box_end = f"SELECT max(position) FROM {a} WHERE session_id = ? AND generation = ?"
        into = f"session_id, generation, position, {into}"
        self.live_to_box = (
            f"INSERT INTO {a} ({into}) SELECT :5, :7, :8 + id, {moved} FROM {m} "
            "WHERE session_id = :1 AND id > :3 AND id <= :4 ORDER BY id"
        )
        self.box_to_box = (
            f"INSERT INTO {a} ({into}) SELECT :5, :7, :8 + position, {moved} FROM {a} "
            "WHERE session_id = :1 AND generation = :2 AND position > :3 AND position <= :4 ORDER BY position"
        )
        self.insert_boxed = (
            f"INSERT INTO {a} (session_id, generation, position, {ROW_COLUMNS}) "
            "VALUES (?, ?, ?, CAST(? AS TEXT), ?, ?, ?)"
        )
        self.delete_box = f"DELETE FROM {a} WHERE session_id = ? AND generation = ?"
        self.delete_boxes = f"DELETE FROM {a} WHERE session_id = ?"

    def _cells(self, c: str) -> None:
        self.cells_between = f"SELECT name, epoch, value FROM {c} WHERE owner = ? AND name >= ? AND name < ?"
        self.delete_cell = f"DELETE FROM {c} WHERE owner = ? AND name = ?"
        self.delete_cells_between = f"DELETE FROM {c} WHERE owner = ? AND name >= ? AND name < ?"
        self.delete_cells = f"DELETE FROM {c} WHERE owner = ?"
        self.rename_epoch = f"UPDATE {c} SET epoch = ? WHERE owner = ? AND epoch = ?"

    def delete_cells_but(self, prefix_count: int) -> str:
        """Build the removal of a name's cells, except names with any of `prefix_count` prefixes."""
        kept = "".join(" AND substr(name, 1, length(?)) <> ?" for _ in range(prefix_count))
        return f"DELETE FROM {self.cells} WHERE owner = ?{kept}"

    def _build_touch(self, kind: Kind, *more: str) -> tuple[str, int, str]:
        """Moves names on, each of: id, created, updated, epoch, change number, labels (NULL: as they were), `more`."""
        table, key, own = self._naming[kind]
        moved = ["updated_at", f"{own}epoch", f"{own}changed", *more]
        columns = [key, "created_at", *moved[:3], f"{own}labels", *more]
        changes = ", ".join(f"{column} = excluded.{column}" for column in moved)
        return (
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES",
            len(columns),
            f"ON CONFLICT ({key}) DO UPDATE SET {changes}, {own}labels = coalesce(excluded.{own}labels, {own}labels)",
        )

    def set_labels(self, kind: Kind) -> str:
        """Build the update of a name's labels alone."""
        table, key, own = self._naming[kind]
        return f"UPDATE {table} SET {own}labels = ? WHERE {key} = ?"

    def delete_name(self, kind: Kind) -> str:
        """Build the removal of a name from the listing."""
        table, key, _ = self._naming[kind]
        return f"DELETE FROM {table} WHERE {key} = ?"

    def count(self, kind: Kind) -> str:
        """Build the count of names."""
        return f"SELECT count(*) FROM {self._naming[kind][0]}"

    def build_listing(self, kind: Kind, labels: Mapping[str, str], *, numbered: bool) -> str:
        """Build the query for a page of names below a change number, newest first, or of unnumbered
        names behind an id.
        """
        table, key, own = self._naming[kind]
        where = f"{own}changed < ?" if numbered else f"{own}changed IS NULL AND {key} > ?"
        for label in labels:
            value = label_value(own, label)
            # Not null goes without saying, but an index over those that are not null is used only where it is said.
            where += f" AND {value} = ? AND {value} IS NOT NULL"
        if kind == "run" and labels.get("status") in WAITING:
            where += f" AND {WAITS}"
        order = f"{own}changed DESC" if numbered else key
        return (
            f"SELECT {key}, created_at, updated_at, {own}labels, {own}changed FROM {table} WHERE {where} "
            f"ORDER BY {order} LIMIT ?"
        )


@lru_cache(maxsize=64)
def statements(tables: Tables) -> Statements:
    """Return the statements of a pair of tables, built once."""
    return Statements(tables)
