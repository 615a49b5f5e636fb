"""Every SQL statement, written once per pair of table names.

Names are checked before they get here and quoted here; values are always bound: by place, or, where one is needed
more than once, by number (`:1`, given as `numbered(...)`). Statements that run for every turn take many rows at once,
of many sessions: with one sync per group, the number of statements is what a turn costs.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from standfast.backends.sqlite.schema import Tables, label_value, quoted
from standfast.sessions.port import Kind

AT_ONCE_MAX = 64
"""Rows per statement. SQLite before 3.32 binds at most 999 values."""

ROW_COLUMNS = "message_data, standfast_writer, standfast_ordinal, standfast_replaces"


def numbered(*values: Any) -> dict[str, Any]:
    """Values for a statement that names them by number. (`?1` would do, but Python 3.12.0 to 3.12.3 warn of it.)"""
    return {str(place): value for place, value in enumerate(values, 1)}


def chunks(count: int) -> Iterator[tuple[int, int]]:
    """Cut so many rows into (start, size) of few different sizes, so that few different statements are prepared."""
    start = 0
    while start < count:
        size = min(AT_ONCE_MAX, 1 << (count - start).bit_length() - 1)
        yield start, size
        start += size


class Statements:
    """The statements of one pair of tables."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.messages = m = quoted(tables.messages)
        self.archive = a = quoted(tables.own("archive"))
        self.cells = c = quoted(tables.own("cells"))
        s, r = quoted(tables.sessions), quoted(tables.own("runs"))
        self._naming: dict[Kind, tuple[str, str, str]] = {
            "session": (s, "session_id", "standfast_"),
            "run": (r, "run_id", ""),
        }
        self._history(m)
        self._arranging(m, a)
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
            f"SELECT session_id, max(id) FROM {m} NOT INDEXED WHERE id > ? GROUP BY session_id ORDER BY max(id)"
        )
        self.set_edition = (
            f"INSERT INTO {s} (session_id, standfast_edition) VALUES (?, ?) "
            "ON CONFLICT (session_id) DO UPDATE SET standfast_edition = excluded.standfast_edition"
        )
        self.session_times = f"SELECT created_at, updated_at, standfast_labels FROM {s} WHERE session_id = ?"
        # By the row and not by the id that was read: another program may have stored one that is no text.
        self.adopt = (
            f"UPDATE {s} SET standfast_changed = ?, standfast_seen = ? "
            f"WHERE session_id = (SELECT session_id FROM {m} WHERE id = ?)"
        )
        self._session_states = (
            "SELECT n.place, s.created_at, s.updated_at, s.standfast_labels, s.standfast_epoch, s.standfast_edition, "
            f"(SELECT id FROM {m} WHERE session_id = n.id ORDER BY id LIMIT 1), "
            f"(SELECT id FROM {m} WHERE session_id = n.id ORDER BY id DESC LIMIT 1) "
            f"FROM n LEFT JOIN {s} s ON s.session_id = n.id"
        )
        self._run_states = (
            f"SELECT n.place, created_at, updated_at, labels, epoch, 0, 0, 0 FROM n LEFT JOIN {r} r ON r.run_id = n.id"
        )
        self._append_rows = f"INSERT INTO {m} (session_id, message_data, standfast_writer, standfast_ordinal) VALUES"
        self.still_newest: dict[Kind, str] = {
            "session": f"UPDATE {s} SET updated_at = :1, standfast_seen = :3 WHERE session_id = :2",
            "run": f"UPDATE {r} SET updated_at = :1 WHERE run_id = :2",
        }
        self._made: dict[tuple[str, int], str] = {}

    def _history(self, m: str) -> None:
        self.ends = (
            f"SELECT (SELECT id FROM {m} WHERE session_id = :1 ORDER BY id LIMIT 1), "
            f"(SELECT id FROM {m} WHERE session_id = :1 ORDER BY id DESC LIMIT 1)"
        )
        self.data = f"SELECT message_data FROM {m} WHERE session_id = ? ORDER BY id"
        self.newest_data = f"SELECT message_data FROM {m} WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
        self.untagged_rows = (
            f"SELECT id, message_data, NULL FROM {m} WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
        )
        self.rows = f"SELECT id, {ROW_COLUMNS} FROM {m} WHERE session_id = ? ORDER BY id"
        self.newest_rows = f"SELECT id, {ROW_COLUMNS} FROM {m} WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
        self.rows_after = f"SELECT id, {ROW_COLUMNS} FROM {m} WHERE session_id = ? AND id > ? ORDER BY id LIMIT ?"
        self.times_after = f"SELECT created_at FROM {m} WHERE session_id = ? AND id > ? ORDER BY id LIMIT ?"
        self.newest_times = f"SELECT created_at FROM {m} WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
        self.count_rows = f"SELECT count(*) FROM {m} WHERE session_id = ?"
        self.rows_of_writer = (
            f"SELECT id, message_data, standfast_ordinal, standfast_replaces FROM {m} "
            "WHERE session_id = ? AND id < ? AND standfast_writer = ? ORDER BY id DESC LIMIT ?"
        )
        self.row_here = f"SELECT 1 FROM {m} WHERE id = ? AND session_id = ?"
        self.delete_row = f"DELETE FROM {m} WHERE id = ? AND session_id = ?"
        self.delete_rows = f"DELETE FROM {m} WHERE session_id = ? AND id > ? AND id <= ?"
        self.insert_bytes = f"INSERT INTO {m} (id, session_id, {ROW_COLUMNS}) VALUES (?, ?, CAST(? AS TEXT), ?, ?, ?)"

    def _arranging(self, m: str, a: str) -> None:
        self.box_rows = (
            f"SELECT position, {ROW_COLUMNS} FROM {a} WHERE session_id = ? AND generation = ? AND position < ? "
            "AND (? IS NULL OR standfast_writer = ?) ORDER BY position DESC LIMIT ?"
        )
        # :6 is what `replaces` becomes, NULL to leave it; a row without a tag then becomes one of nobody in particular.
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
        self.delete_box = f"DELETE FROM {a} WHERE session_id = ? AND generation = ?"
        self.delete_boxes = f"DELETE FROM {a} WHERE session_id = ?"

    def _cells(self, c: str) -> None:
        self.cells_between = f"SELECT name, epoch, value FROM {c} WHERE owner = ? AND name >= ? AND name < ?"
        self.delete_cell = f"DELETE FROM {c} WHERE owner = ? AND name = ?"
        self.delete_cells_between = f"DELETE FROM {c} WHERE owner = ? AND name >= ? AND name < ?"
        self.delete_cells = f"DELETE FROM {c} WHERE owner = ?"
        self.rename_epoch = f"UPDATE {c} SET epoch = ? WHERE owner = ? AND epoch = ?"

    def delete_cells_but(self, prefix_count: int) -> str:
        """Remove a name's cells but for those that begin with one of so many prefixes."""
        kept = "".join(" AND substr(name, 1, length(?)) <> ?" for _ in range(prefix_count))
        return f"DELETE FROM {self.cells} WHERE owner = ?{kept}"

    def states(self, kind: Kind, count: int) -> str:
        """What is known of so many names: times, incarnation, edition, first and newest row."""
        key = (kind, count)
        found = self._made.get(key)
        if found is None:
            values = ", ".join(f"({place}, ?)" for place in range(count))
            select = self._session_states if kind == "session" else self._run_states
            found = self._made[key] = f"WITH n(place, id) AS (VALUES {values}) {select}"
        return found

    def cells_of(self, count: int) -> str:
        """So many cells, each given as owner and name."""
        key = ("cells", count)
        found = self._made.get(key)
        if found is None:
            values = ", ".join(f"({place}, ?, ?)" for place in range(count))
            found = self._made[key] = (
                f"WITH n(place, owner, name) AS (VALUES {values}) SELECT n.place, c.epoch, c.value FROM n "
                f"CROSS JOIN {self.cells} c ON c.owner = n.owner AND c.name = n.name"
            )
        return found

    def insert_rows(self, count: int) -> str:
        """Insert so many rows that were appended, each of: session, item, writer, ordinal."""
        return self._inserting(self._append_rows, 4, count, "")

    def put_cells(self, count: int) -> str:
        """Write so many cells, each of: owner, name, epoch, value."""
        return self._inserting(
            f"INSERT INTO {self.cells} (owner, name, epoch, value) VALUES", 4, count,
            "ON CONFLICT (owner, name) DO UPDATE SET epoch = excluded.epoch, value = excluded.value",
        )  # fmt: skip

    def touch(self, kind: Kind, count: int) -> str:
        """Move so many names on, each of: id, created, updated, epoch, change number, labels (NULL: as they were) and,
        for a session, the newest row there is."""
        known = self._made.get((f"touch {kind}", count))
        if known is not None:
            return known
        table, key, own = self._naming[kind]
        moved = ["updated_at", f"{own}epoch", f"{own}changed"]
        moved += ["standfast_seen"] if kind == "session" else []
        columns = [key, "created_at", "updated_at", f"{own}epoch", f"{own}changed", f"{own}labels", *moved[3:]]
        changes = ", ".join(f"{column} = excluded.{column}" for column in moved)
        made = self._made[f"touch {kind}", count] = self._inserting(
            f"INSERT INTO {table} ({', '.join(columns)}) VALUES",
            len(columns),
            count,
            f"ON CONFLICT ({key}) DO UPDATE SET {changes}, {own}labels = coalesce(excluded.{own}labels, {own}labels)",
        )
        return made

    def set_labels(self, kind: Kind) -> str:
        """Change what a listing shows of a name and nothing else."""
        table, key, own = self._naming[kind]
        return f"UPDATE {table} SET {own}labels = ? WHERE {key} = ?"

    def delete_name(self, kind: Kind) -> str:
        """Remove what a listing knows of a name."""
        table, key, _ = self._naming[kind]
        return f"DELETE FROM {table} WHERE {key} = ?"

    def count(self, kind: Kind) -> str:
        """How many names there are."""
        return f"SELECT count(*) FROM {self._naming[kind][0]}"

    def listing(self, kind: Kind, labels: Iterable[str], *, numbered: bool) -> str:
        """A page of names behind a change number, newest first, or of those without one behind an id."""
        table, key, own = self._naming[kind]
        where = f"{own}changed < ?" if numbered else f"{own}changed IS NULL AND {key} > ?"
        for label in labels:
            value = label_value(own, label)
            # Not null goes without saying, but an index over those that are not null is used only where it is said.
            where += f" AND {value} = ? AND {value} IS NOT NULL"
        order = f"{own}changed DESC" if numbered else key
        return (
            f"SELECT {key}, created_at, updated_at, {own}labels, {own}changed FROM {table} WHERE {where} "
            f"ORDER BY {order} LIMIT ?"
        )

    def _inserting(self, begin: str, width: int, count: int, end: str) -> str:
        key = (begin, count)
        found = self._made.get(key)
        if found is None:
            row = f"({', '.join('?' * width)})"
            found = self._made[key] = f"{begin} {', '.join([row] * count)} {end}"
        return found


@lru_cache(maxsize=64)
def statements(tables: Tables) -> Statements:
    """The statements of this pair of tables, written once."""
    return Statements(tables)
