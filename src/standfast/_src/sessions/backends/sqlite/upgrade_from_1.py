"""How a file of release 0.1 (layout 1, when the package was called holdfast) becomes layout 2.

Columns and the archive are renamed, never copied; what each writer wrote, kept generations, leases and saved runs
become the cells that the rules of `sessions/` read today. All of it happens in the transaction that the caller has
begun, under the lock that release 0.1 used.

A process of release 0.1 that still has the file open is refused from then on: whatever it writes names a column or a
table that is gone, and opening the file again it finds a layout it does not know. Its checkpoints are kept apart from
our commits by its own lock file, which is taken together with ours for as long as the file has its table of versions.
"""

# ruff: noqa: S608 — a table name cannot be bound; these are checked against a pattern and quoted
from __future__ import annotations

import json
import sqlite3

import msgspec

from standfast._src.base.json_values import DIGEST_BYTES
from standfast._src.sessions.backends.sqlite.values import as_bytes, as_seconds, as_text, labels_text
from standfast._src.sessions.rules import leases, saved_runs
from standfast._src.sessions.rules.append import AllWritten
from standfast._src.sessions.rules.history import GENERATIONS, LEASE, OPEN_RUN

VERSIONS_TABLE = "holdfast_schema"
LOCK_SUFFIX = "-holdfast-lock"
VERSION_TO_REFUSE = 2
"""What release 0.1 finds in its own table of versions afterwards: more than the 1 it knows."""

_MOVED = ("writer", "ordinal", "replaces")


def is_there(db: sqlite3.Connection) -> bool:
    """Whether release 0.1 has ever been at this file."""
    found = db.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (VERSIONS_TABLE,)).fetchone()
    return found is not None


def rename(db: sqlite3.Connection, sessions: str, messages: str) -> None:
    """Give the columns and the archive the names they have now."""
    archive = f"{messages}_standfast_archive"
    db.execute(f'ALTER TABLE "{messages}_holdfast_archive" RENAME TO "{archive}"')
    for table, columns in ((messages, _MOVED), (archive, _MOVED), (sessions, ("epoch",))):
        for column in columns:
            db.execute(f'ALTER TABLE "{table}" RENAME COLUMN holdfast_{column} TO standfast_{column}')


def convert(db: sqlite3.Connection, sessions: str, messages: str) -> None:
    """Turn the tables of layout 1 into cells and runs, drop them, and see to it that release 0.1 refuses the file."""
    _Conversion(db, sessions, messages).run()
    db.execute(
        f"UPDATE {VERSIONS_TABLE} SET version = ? WHERE tables = ?",
        (VERSION_TO_REFUSE, f"{sessions}/{messages}".lower()),
    )


def convert_aside(db: sqlite3.Connection, sessions: str, messages: str) -> None:
    """Fill the cells and runs of today from the tables of layout 1, and leave those as they are."""
    _Conversion(db, sessions, messages).run(keeps_old=True)


class _Conversion:
    def __init__(self, db: sqlite3.Connection, sessions: str, messages: str) -> None:
        self._db, self._sessions, self._messages = db, f'"{sessions}"', messages
        found = db.execute(f"SELECT session_id, standfast_epoch FROM {self._sessions}").fetchall()
        self._epochs = {as_text(session_id): as_text(epoch or b"") for session_id, epoch in found}

    def run(self, *, keeps_old: bool = False) -> None:
        self._writers()
        kept = self._generations()
        self._leases()
        self._runs()
        self._number_sessions()
        if keeps_old:
            return
        self._forget_archived(kept)
        for kind in ("writers", "batches", "generations", "leases", "runs", "run_log"):
            self._db.execute(f"DROP TABLE {self._old(kind)}")

    def _old(self, kind: str) -> str:
        return f'"{self._messages}_holdfast_{kind}"'

    def _own(self, kind: str) -> str:
        return f'"{self._messages}_standfast_{kind}"'

    def _put(self, owner: str, name: str, epoch: str, value: bytes) -> None:
        self._db.execute(
            f"INSERT INTO {self._own('cells')} (owner, name, epoch, value) VALUES (?, ?, ?, ?)",
            (owner, name, epoch, value),
        )

    def _put_on_session(self, session_id: str, name: str, value: bytes) -> None:
        # Of a session that was cleared only counts are left, and they belong to no incarnation.
        self._put(f"s{session_id}", name, self._epochs.get(session_id) or "-", value)

    def _writers(self) -> None:
        rows = self._db.execute(
            f"SELECT session_id, writer, count, digests, last_batch FROM {self._old('writers')}"
        ).fetchall()
        for session_id, writer, count, latest, last_batch in rows:
            digests = b"".join([*self._batches(last_batch), latest])
            known = count - len(digests) // DIGEST_BYTES
            for cell, value in AllWritten(count, known, digests).cells(as_text(writer)).items():
                self._put_on_session(as_text(session_id), cell, value)

    def _batches(self, last: int | None) -> list[bytes]:
        """A writer's older digests, oldest first: each batch knows the one before it."""
        found: list[bytes] = []
        while last is not None:
            last, digests = self._db.execute(
                f"SELECT previous, digests FROM {self._old('batches')} WHERE id = ?", (last,)
            ).fetchone()
            found.append(digests)
        return found[::-1]

    def _generations(self) -> dict[str, list[tuple[int, float, int]]]:
        kept: dict[str, list[tuple[int, float, int]]] = {}
        for session_id, number, epoch, created_at, item_count in self._db.execute(
            f"SELECT session_id, number, epoch, created_at, item_count FROM {self._old('generations')} "
            "ORDER BY session_id, number"
        ):
            if self._epochs.get(as_text(session_id)) == as_text(epoch):
                kept.setdefault(as_text(session_id), []).append((number, as_seconds(created_at), item_count))
        for session_id, generations in kept.items():
            self._put_on_session(session_id, GENERATIONS, json.dumps(generations).encode())
        return kept

    def _forget_archived(self, kept: dict[str, list[tuple[int, float, int]]]) -> None:
        """Remove what the archive holds of generations that are not kept."""
        archived = self._db.execute(f"SELECT DISTINCT session_id, generation FROM {self._own('archive')}").fetchall()
        self._db.executemany(
            f"DELETE FROM {self._own('archive')} WHERE session_id = ? AND generation = ?",
            [
                (as_text(session_id), number)
                for session_id, number in archived
                if number not in [one[0] for one in kept.get(as_text(session_id), ())]
            ],
        )

    def _leases(self) -> None:
        (now,) = self._db.execute("SELECT (julianday('now') - 2440587.5) * 86400.0").fetchone()
        for session_id, number, expires_at in self._db.execute(
            f"SELECT session_id, number, expires_at FROM {self._old('leases')}"
        ).fetchall():
            left = max(0.0, expires_at - now)  # whoever holds it may still be there
            held = leases.LeaseState(number, since=now if left else 0.0, ttl_s=left)
            self._put_on_session(as_text(session_id), LEASE, msgspec.json.encode(held))

    def _runs(self) -> None:
        rows = self._db.execute(
            "SELECT run_id, revision, status, session_id, agent, created_at, updated_at, head "
            f"FROM {self._old('runs')} ORDER BY updated_at, run_id"
        ).fetchall()
        for changed, (run_id, revision, status, session_id, agent, created, updated, head) in enumerate(rows, 1):
            name, labels = (
                as_text(run_id),
                {"status": as_text(status), "agent": as_text(agent), "revision": str(revision)},
            )
            if session_id is not None:
                labels["session"] = as_text(session_id)
                if labels["status"] not in saved_runs.ENDED:
                    value = leases.open_run_value(labels["status"], None)
                    self._put_on_session(labels["session"], OPEN_RUN + name, value)
            self._db.execute(
                f"INSERT INTO {self._own('runs')} (run_id, created_at, updated_at, epoch, changed, labels) "
                "VALUES (?, ?, ?, ?, ?, ?)",
                (name, as_text(created), as_text(updated), "1", changed, labels_text(labels)),
            )
            self._put(f"r{name}", saved_runs.HEAD, "1", b"%d|" % revision + as_bytes(head))
            self._logs(name, revision)

    def _logs(self, run_id: str, revision: int) -> None:
        logs: dict[str, list[bytes]] = {}
        for log, data in self._db.execute(
            f"SELECT log, data FROM {self._old('run_log')} WHERE run_id = ? ORDER BY log, ordinal", (run_id,)
        ):
            logs.setdefault(as_text(log), []).append(data)
        if logs:
            tails = {log: (0, records) for log, records in logs.items()}
            lengths = {log: len(records) for log, records in logs.items()}
            self._put(f"r{run_id}", saved_runs.LENGTHS, "1", msgspec.json.encode(lengths))
            self._put(f"r{run_id}", f"{saved_runs.LOG}{revision:012d}", "1", msgspec.msgpack.encode(tails))

    def _number_sessions(self) -> None:
        """List them as release 0.1 did: by the time of their last change."""
        found = self._db.execute(f"SELECT session_id FROM {self._sessions} ORDER BY updated_at, session_id").fetchall()
        self._db.executemany(
            f"UPDATE {self._sessions} SET standfast_changed = ? WHERE session_id = ?",
            [(number, as_text(session_id)) for number, (session_id,) in enumerate(found, 1)],
        )
