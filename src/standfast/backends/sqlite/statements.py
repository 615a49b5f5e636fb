"""Every SQL statement, written once per pair of table names.

Names are checked before they get here and quoted here; values are always bound: by place, or, where one is needed
more than once, by number (`:1`, given as `numbered(...)`). Statements that run for every turn take many rows at once:
with one sync per group, the number of statements is what a turn costs.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

from functools import lru_cache
from typing import Any

from standfast.backends.sqlite.schema import Tables, quoted

ROWS_PER_INSERT = 64


def numbered(*values: Any) -> dict[str, Any]:
    """Values for a statement that names them by number. (`?1` would do, but Python 3.12.0 to 3.12.3 warn of it.)"""
    return {str(place): value for place, value in enumerate(values, 1)}


class Statements:
    """The statements of one pair of tables."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self._inserts: dict[int, str] = {}
        self._owned_inserts: dict[int, str] = {}
        self._messages = m = quoted(tables.messages)
        self._history(m)
        self._session(quoted(tables.sessions), m)
        self._writers(m, quoted(tables.own("writers")), quoted(tables.own("batches")))
        self._generations(m, quoted(tables.own("generations")), quoted(tables.own("archive")))
        self._forks(m, quoted(tables.own("archive")))
        self._leases(quoted(tables.own("leases")))
        self._runs(quoted(tables.own("runs")), quoted(tables.own("run_log")))

    def insert_rows(self, row_count: int) -> str:
        """Insert that many rows of nobody in particular, each of: session, item."""
        found = self._inserts.get(row_count)
        if found is None:
            values = ", ".join(["(?, ?)"] * row_count)
            found = f"INSERT INTO {self._messages} (session_id, message_data) VALUES {values}"
            self._inserts[row_count] = found
        return found

    def insert_owned_rows(self, row_count: int) -> str:
        """Insert that many rows of a writer, each of: session, item, writer, ordinal."""
        found = self._owned_inserts.get(row_count)
        if found is None:
            values = ", ".join(["(?, ?, ?, ?)"] * row_count)
            columns = "session_id, message_data, standfast_writer, standfast_ordinal"
            found = f"INSERT INTO {self._messages} ({columns}) VALUES {values}"
            self._owned_inserts[row_count] = found
        return found

    def _history(self, m: str) -> None:
        self.all_items = f"SELECT message_data FROM {m} WHERE session_id = ? ORDER BY id"
        self.newest_items = f"SELECT message_data FROM {m} WHERE session_id = ? ORDER BY id DESC LIMIT ?"
        self.all_rows = f"SELECT id, message_data FROM {m} WHERE session_id = ? ORDER BY id"
        self.rows_before = f"SELECT id, message_data FROM {m} WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
        self.rows_upto = f"SELECT id, message_data FROM {m} WHERE session_id = ? AND id <= ? ORDER BY id"
        self.ends = (
            f"SELECT id, message_data, (SELECT id FROM {m} WHERE session_id = ? ORDER BY id LIMIT 1) "
            f"FROM {m} WHERE session_id = ? ORDER BY id DESC LIMIT 1"
        )
        self.first_id = f"SELECT id FROM {m} WHERE session_id = ? ORDER BY id LIMIT 1"
        self.newest_id = f"SELECT id FROM {m} WHERE session_id = ? ORDER BY id DESC LIMIT 1"
        self.row_here = f"SELECT 1 FROM {m} WHERE id = ? AND session_id = ?"
        self.whole_row = (
            "SELECT id, message_data, typeof(message_data), created_at, standfast_writer, standfast_ordinal, "
            f"standfast_replaces FROM {m} WHERE id = ?"
        )
        self.delete_row = f"DELETE FROM {m} WHERE id = ?"
        self.delete_all = f"DELETE FROM {m} WHERE session_id = ?"
        self.tail_rows = (
            f"SELECT id, message_data, standfast_writer, standfast_ordinal FROM {m} "
            "WHERE session_id = ? AND id < ? ORDER BY id DESC LIMIT ?"
        )
        self.delete_from = f"DELETE FROM {m} WHERE session_id = ? AND id >= ?"

    def _session(self, s: str, m: str) -> None:
        # Time moves on with every change, also where the clock did not: by a millisecond, SQLite's resolution. The
        # epoch need only differ from those of earlier incarnations of the same session; the time it began would do if
        # no clock were ever set back or stood still.
        later = "strftime('%Y-%m-%d %H:%M:%f', updated_at, '+0.001 seconds')"
        self.touch = (
            f"INSERT INTO {s} (session_id, created_at, updated_at, standfast_epoch) "
            "VALUES (?, ?, ?, ? || '-' || hex(randomblob(4))) ON CONFLICT (session_id) DO UPDATE SET updated_at = CASE "
            "WHEN excluded.updated_at > updated_at THEN excluded.updated_at "
            f"ELSE coalesce({later}, excluded.updated_at) END, "
            "standfast_epoch = coalesce(standfast_epoch, excluded.standfast_epoch)"
        )
        self.epoch = f"SELECT standfast_epoch FROM {s} WHERE session_id = ?"
        self.times = f"SELECT session_id, created_at, updated_at FROM {s} WHERE session_id = ?"
        self.delete_session = f"DELETE FROM {s} WHERE session_id = ?"
        self.count_sessions = f"SELECT count(*) FROM {s}"
        self.list_sessions = (
            f"SELECT session_id, created_at, updated_at FROM {s} ORDER BY updated_at DESC, session_id DESC LIMIT ?"
        )
        self.list_sessions_after = (
            f"SELECT session_id, created_at, updated_at FROM {s} WHERE (updated_at, session_id) < (?, ?) "
            "ORDER BY updated_at DESC, session_id DESC LIMIT ?"
        )
        self.put_row_back = (
            f"INSERT INTO {m} (id, session_id, message_data, created_at, standfast_writer, standfast_ordinal, "
            "standfast_replaces) SELECT :1, :2, CASE :4 WHEN 'text' THEN CAST(:3 AS TEXT) ELSE :3 END, :5, :6, :7, :8 "
            f"WHERE EXISTS (SELECT 1 FROM {s} WHERE session_id = :2 AND standfast_epoch = :9)"
        )

    def _writers(self, m: str, w: str, b: str) -> None:
        known = "id, count, digests, last_batch, first_id"
        self.writer = (
            f"SELECT {known}, (SELECT id FROM {m} WHERE session_id = ? ORDER BY id LIMIT 1) "
            f"FROM {w} WHERE session_id = ? AND writer = ?"
        )
        self.writers = f"SELECT writer, {known} FROM {w} WHERE session_id = ?"
        self.add_writer = (
            f"INSERT INTO {w} (session_id, writer, count, digests, last_batch, first_id) VALUES (?, ?, ?, ?, ?, ?)"
        )
        self.move_writer = f"UPDATE {w} SET count = ?, digests = ?, last_batch = ? WHERE id = ?"
        self.drop_writer = f"DELETE FROM {w} WHERE session_id = ? AND writer = ?"
        self.forget_digests = f"UPDATE {w} SET digests = x'', last_batch = NULL WHERE session_id = ?"
        self.batch = f"SELECT previous, start, digests FROM {b} WHERE id = ?"
        self.add_batch = f"INSERT INTO {b} (previous, start, digests) VALUES (?, ?, ?)"
        self.drop_batch = f"DELETE FROM {b} WHERE id = ?"
        # The lower bound is where this writer began: row ids only ever grow, also when rows are put in again.
        self.written = (
            f"SELECT standfast_ordinal, message_data FROM {m} "
            "WHERE session_id = :1 AND id >= :3 AND standfast_writer = :2"
        )
        self.written_from = (
            f"SELECT id FROM {m} WHERE session_id = :1 AND id >= :3 AND standfast_writer = :2 "
            "AND standfast_ordinal >= :4 AND id < :5 LIMIT 1"
        )

    def _generations(self, m: str, g: str, a: str) -> None:
        own = "message_data, created_at, standfast_writer, standfast_ordinal"
        carried = f"{own}, standfast_replaces"
        excepted = "(SELECT value FROM json_each(:4))"
        self.generations = (
            f"SELECT number, created_at, item_count FROM {g} WHERE session_id = ? AND epoch = ? ORDER BY number"
        )
        self.add_generation = (
            f"INSERT INTO {g} (session_id, number, epoch, created_at, item_count) VALUES (?, ?, ?, ?, ?)"
        )
        self.last_generation = f"SELECT max(number) FROM {g} WHERE session_id = ?"
        self.drop_generations_upto = f"DELETE FROM {g} WHERE session_id = ? AND number <= ?"
        self.drop_archive_upto = f"DELETE FROM {a} WHERE session_id = ? AND generation <= ?"
        self.drop_generations_except = f"DELETE FROM {g} WHERE session_id = ? AND epoch <> ?"
        self.drop_archive_except = (
            f"DELETE FROM {a} WHERE session_id = :1 AND generation NOT IN "
            f"(SELECT number FROM {g} WHERE session_id = :1)"
        )
        self.drop_generations = f"DELETE FROM {g} WHERE session_id = ?"
        self.drop_archive = f"DELETE FROM {a} WHERE session_id = ?"
        into = f"INSERT INTO {a} (session_id, generation, position, {carried}) SELECT session_id, :2, id, {carried}"
        upto = f"FROM {m} WHERE session_id = :1 AND id <= :3 AND id NOT IN {excepted}"
        displaced = f"FROM {m} WHERE session_id = :1 AND standfast_replaces >= :3 AND id NOT IN {excepted}"
        self.archive_upto, self.delete_upto = f"{into} {upto}", f"DELETE {upto}"
        self.archive_displaced, self.delete_displaced = f"{into} {displaced}", f"DELETE {displaced}"
        self.displaced_rows = (
            f"SELECT id, message_data FROM {m} WHERE session_id = ? AND standfast_replaces >= ? ORDER BY id"
        )
        self.mark_replacing = f"UPDATE {m} SET standfast_replaces = ? WHERE session_id = ? AND id > ?"
        self.append_again = (
            f"INSERT INTO {m} (session_id, {carried}) SELECT session_id, {carried} FROM {m} "
            "WHERE session_id = :1 AND id > :2 AND id <= :3 ORDER BY id"
        )
        self.delete_between = f"DELETE FROM {m} WHERE session_id = :1 AND id > :2 AND id <= :3"
        self.archived = (
            f"SELECT position, message_data FROM {a} WHERE session_id = ? AND generation = ? ORDER BY position"
        )
        self.append_archived = (
            f"INSERT INTO {m} (session_id, {own}) SELECT session_id, {own} FROM {a} "
            "WHERE session_id = :1 AND generation = :2 AND coalesce(standfast_replaces, 0) < :3 ORDER BY position"
        )
        self.archived_of_writer = (
            f"SELECT standfast_ordinal, message_data FROM {a} WHERE session_id = ? AND generation = ? "
            "AND standfast_writer = ?"
        )
        self.archived_of_writer_from = (
            f"SELECT standfast_ordinal FROM {a} WHERE session_id = ? AND generation = ? AND standfast_writer = ? "
            "AND standfast_ordinal >= ?"
        )

    def _forks(self, m: str, a: str) -> None:
        carried = "message_data, created_at, standfast_writer, standfast_ordinal"
        excepted = "(SELECT value FROM json_each(:4))"
        self.fork_live = (
            f"INSERT INTO {m} (session_id, {carried}) SELECT :2, {carried} FROM {m} "
            f"WHERE session_id = :1 AND id <= :3 AND id NOT IN {excepted} ORDER BY id"
        )
        self.fork_archived = (
            f"INSERT INTO {m} (session_id, {carried}) SELECT :2, {carried} FROM {a} "
            f"WHERE session_id = :1 AND generation = :5 AND position <= :3 AND position NOT IN {excepted} "
            "ORDER BY position"
        )
        self.lowest_live_after = (
            f"SELECT standfast_writer, min(standfast_ordinal) FROM {m} "
            "WHERE session_id = ? AND id > ? AND standfast_writer IS NOT NULL GROUP BY standfast_writer"
        )
        self.lowest_archived_after = (
            f"SELECT standfast_writer, min(standfast_ordinal) FROM {a} WHERE session_id = ? AND generation = ? "
            "AND position > ? AND standfast_writer IS NOT NULL GROUP BY standfast_writer"
        )
        appended = "coalesce(standfast_replaces, 0) < :2 AND standfast_writer IS NOT NULL GROUP BY standfast_writer"
        self.lowest_since = (
            f"SELECT standfast_writer, min(standfast_ordinal) FROM {a} "
            f"WHERE session_id = :1 AND generation > :2 AND {appended} "
            f"UNION ALL SELECT standfast_writer, min(standfast_ordinal) FROM {m} WHERE session_id = :1 AND {appended}"
        )

    def _leases(self, table: str) -> None:
        self.now = "SELECT (julianday('now') - 2440587.5) * 86400.0"
        self.lease = f"SELECT number, expires_at, holder FROM {table} WHERE session_id = ?"
        self.set_lease = f"INSERT OR REPLACE INTO {table} (session_id, number, expires_at, holder) VALUES (?, ?, ?, ?)"

    def _runs(self, r: str, logs: str) -> None:
        self.run = f"SELECT revision, head FROM {r} WHERE run_id = ?"
        self.save_run = (
            f"INSERT INTO {r} (run_id, revision, status, session_id, agent, created_at, updated_at, head) "
            "VALUES (:1, :2, :3, :4, :5, :6, :6, :7) ON CONFLICT (run_id) DO UPDATE SET revision = :2, status = :3, "
            "session_id = :4, agent = :5, head = :7, updated_at = CASE WHEN :6 > updated_at THEN :6 "
            "ELSE strftime('%Y-%m-%d %H:%M:%f', updated_at, '+0.001 seconds') END"
        )
        self.delete_run = f"DELETE FROM {r} WHERE run_id = ?"
        self.run_log = f"SELECT log, data FROM {logs} WHERE run_id = ? ORDER BY log, ordinal"
        self.run_log_length = f"SELECT max(ordinal) FROM {logs} WHERE run_id = ? AND log = ?"
        self.cut_run_log = f"DELETE FROM {logs} WHERE run_id = ? AND log = ? AND ordinal >= ?"
        self.add_run_log = f"INSERT INTO {logs} (run_id, log, ordinal, data) VALUES (?, ?, ?, ?)"
        self.delete_run_log = f"DELETE FROM {logs} WHERE run_id = ?"
        self.list_runs = (
            f"SELECT run_id, status, session_id, agent, created_at, updated_at, revision FROM {r} "
            "WHERE (:1 IS NULL OR status = :1) AND (:2 IS NULL OR session_id = :2) "
            "AND (:3 IS NULL OR (updated_at, run_id) < (:3, :4)) ORDER BY updated_at DESC, run_id DESC LIMIT :5"
        )
        self.ended_runs = (
            f"SELECT run_id, updated_at FROM {r} WHERE status IN ('done', 'failed', 'cancelled') "
            "ORDER BY updated_at DESC, run_id DESC"
        )
        self.drop_runs_of_session = f"DELETE FROM {r} WHERE session_id = ? AND status <> ?"
        self.drop_logs_of_session = (
            f"DELETE FROM {logs} WHERE run_id IN (SELECT run_id FROM {r} WHERE session_id = ? AND status <> ?)"
        )


@lru_cache(maxsize=64)
def statements(tables: Tables) -> Statements:
    """The statements of this pair of tables, written once."""
    return Statements(tables)
