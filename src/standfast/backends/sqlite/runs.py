"""Saved runs in the same file as the sessions, through the same writer and its grouped commits.

A run is one row, fenced by its revision, and log rows that are only ever added behind or cut from the end (C12).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeVar

from standfast.backends.sqlite.listing import cursor, cursor_text
from standfast.backends.sqlite.rows import as_text, as_time, now_text, snapshot
from standfast.backends.sqlite.statements import Statements, numbered
from standfast.engine.run_store import LogTail, RunSummary, SavedRun
from standfast.ground.errors import NotFoundError, RunClaimedError
from standfast.sessions.protocol import check_limit

T = TypeVar("T")


class Access(Protocol):
    """How a run store reaches its database: through the session it belongs to."""

    def __call__(self, work: Callable[[sqlite3.Connection], T], /) -> Awaitable[T]:
        """Do it in a transaction."""
        ...


class SQLiteRunStore:
    """Keeps runs in the file of the session that gave it out, until that session is closed."""

    def __init__(self, sql: Statements, write: Access, read: Access) -> None:
        self._sql, self._write, self._read = sql, write, read

    async def load_run(self, run_id: str) -> SavedRun | None:
        """The run as last saved; None if there is none of this id."""
        return await self._read(lambda db: _load(db, self._sql, run_id))

    async def save_run(
        self,
        run_id: str,
        *,
        expect: int,
        head: bytes,
        tails: Mapping[str, LogTail],
        status: str,
        agent: str,
        session_id: str | None = None,
    ) -> int:
        """Write the head and the tails in one step if the saved revision is `expect`; returns the new revision."""
        frozen = {name: (tail.start, [bytes(record) for record in tail.records]) for name, tail in tails.items()}
        row = (status, session_id, agent)
        return await self._write(lambda db: _save(db, self._sql, run_id, expect, bytes(head), frozen, row))

    async def list_runs(
        self, *, status: str | None = None, session_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[list[RunSummary], str | None]:
        """Runs, newest change first, and the cursor of the next page (None: no more)."""
        check_limit(limit)
        place = (None, None) if after is None else cursor(after)
        values = (status, session_id, *place, limit + 1)
        found = await self._read(lambda db: db.execute(self._sql.list_runs, numbered(*values)).fetchall())
        shown = found[:limit]
        more = cursor_text(shown[-1][5], shown[-1][0]) if len(found) > limit and shown else None
        return [_summary(row) for row in shown], more

    async def delete_run(self, run_id: str) -> bool:
        """Remove a run; whether there was one."""
        return await self._write(lambda db: _delete(db, self._sql, run_id))

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        """Remove ended runs (done, failed, cancelled) older than that, and all but the newest `keep` of them."""
        return await self._write(lambda db: _prune(db, self._sql, older_than_s, keep))


def _load(db: sqlite3.Connection, sql: Statements, run_id: str) -> SavedRun | None:
    with snapshot(db):
        row = db.execute(sql.run, (run_id,)).fetchone()
        if row is None:
            return None
        logs: dict[str, list[bytes]] = {}
        for name, data in db.execute(sql.run_log, (run_id,)):
            logs.setdefault(as_text(name), []).append(data)
    return SavedRun(run_id, row[0], row[1], {name: tuple(records) for name, records in logs.items()})


def _save(
    db: sqlite3.Connection,
    sql: Statements,
    run_id: str,
    expect: int,
    head: bytes,
    tails: Mapping[str, tuple[int, Sequence[bytes]]],
    row: tuple[str, str | None, str],
) -> int:
    revision, saved_head = db.execute(sql.run, (run_id,)).fetchone() or (0, None)
    if revision == expect + 1 and saved_head == head:
        return int(revision)  # the same save again: its acknowledgement was lost
    if revision != expect:
        raise RunClaimedError(
            f"run {run_id!r} is at revision {revision} and {expect} was expected",
            "Another process resumed or removed it: load it again, and resume only if it is still waiting.",
        )
    for name, (start, _) in tails.items():
        newest = db.execute(sql.run_log_length, (run_id, name)).fetchone()[0]
        length = 0 if newest is None else newest + 1
        if not 0 <= start <= length:
            raise NotFoundError(
                f"log {name!r} of run {run_id!r} has {length} records and this tail starts at {start}",
                "Save the records before it first.",
            )
    for name, (start, records) in tails.items():
        db.execute(sql.cut_run_log, (run_id, name, start))
        db.executemany(sql.add_run_log, [(run_id, name, start + n, record) for n, record in enumerate(records)])
    status, session_id, agent = row
    db.execute(sql.save_run, numbered(run_id, expect + 1, status, session_id, agent, now_text(), head))
    return expect + 1


def _delete(db: sqlite3.Connection, sql: Statements, run_id: str) -> bool:
    db.execute(sql.delete_run_log, (run_id,))
    return db.execute(sql.delete_run, (run_id,)).rowcount > 0


def _prune(db: sqlite3.Connection, sql: Statements, older_than_s: float | None, keep: int | None) -> int:
    ended = [(as_text(run_id), as_time(updated_at)) for run_id, updated_at in db.execute(sql.ended_runs)]
    leaving: set[str] = set()
    if keep is not None:
        leaving |= {run_id for run_id, _ in ended[max(keep, 0) :]}
    if older_than_s is not None:
        oldest = datetime.now(UTC) - timedelta(seconds=older_than_s)
        leaving |= {run_id for run_id, updated_at in ended if updated_at < oldest}
    for run_id in leaving:
        _delete(db, sql, run_id)
    return len(leaving)


def _summary(row: tuple[Any, ...]) -> RunSummary:
    run_id, status, session_id, agent, created_at, updated_at, revision = row
    return RunSummary(
        as_text(run_id),
        as_text(status),
        None if session_id is None else as_text(session_id),
        as_text(agent),
        as_time(created_at),
        as_time(updated_at),
        revision,
    )
