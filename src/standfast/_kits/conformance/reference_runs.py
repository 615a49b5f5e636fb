"""Saved runs in memory: `RunStore` in its plainest form.

A run is a head, a revision and logs of bytes. One lock makes every method one step. The runs end with the process; the
store serves tests, and programs that pause and resume a run without restarting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from standfast._src.base.errors import NotFoundError, RunClaimedError
from standfast._src.runs.engine.codec import is_left_open
from standfast._src.runs.engine.run_store import LogTail, RunSummary, SavedRun
from standfast._src.sessions.protocol import check_limit

ENDED = frozenset({"done", "failed", "cancelled"})

_TICK = timedelta(microseconds=1)


@dataclass(slots=True)
class _Saved:
    """A run and its place in the order of changes."""

    created_at: datetime
    updated_at: datetime
    change: int
    revision: int = 0
    head: bytes = b""
    status: str = ""
    agent: str = ""
    session_id: str | None = None
    logs: dict[str, list[bytes]] = field(default_factory=dict)

    def summary(self, run_id: str) -> RunSummary:
        return RunSummary(
            run_id, self.status, self.session_id, self.agent, self.created_at, self.updated_at, self.revision
        )


class ReferenceRunStore:
    """Keeps runs for as long as the process lives."""

    def __init__(self, lock: threading.Lock | None = None) -> None:
        # The store beside it lends its lock, which os.fork waits for: a child gets no half-written run.
        self._lock = threading.Lock() if lock is None else lock
        self._runs: dict[str, _Saved] = {}
        self._changes = 0

    async def load_run(self, run_id: str) -> SavedRun | None:
        """Return the run as last saved, or None for an unknown id."""
        with self._lock:
            saved = self._runs.get(run_id)
            if saved is None:
                return None
            logs: dict[str, Sequence[bytes]] = {name: tuple(records) for name, records in saved.logs.items()}
            return SavedRun(run_id, saved.revision, saved.head, logs)

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
        with self._lock:
            saved = self._runs.get(run_id)
            revision = 0 if saved is None else saved.revision
            if saved is not None and revision == expect + 1 and saved.head == head:
                return revision  # the same save again: its acknowledgement was lost
            if revision != expect:
                raise RunClaimedError(
                    f"run {run_id!r} is at revision {revision} and {expect} was expected",
                    "Another process resumed it: load it again, and resume only if it is still waiting.",
                )
            logs = {} if saved is None else saved.logs
            for name, tail in tails.items():
                _check_tail(run_id, name, tail, len(logs.get(name, ())))
            saved = self._touch(run_id, saved)
            for name, tail in tails.items():
                records = saved.logs.setdefault(name, [])
                records[tail.start :] = [bytes(record) for record in tail.records]
            saved.head, saved.status, saved.agent, saved.session_id = bytes(head), status, agent, session_id
            saved.revision = expect + 1
            return saved.revision

    async def list_runs(
        self, *, status: str | None = None, session_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[list[RunSummary], str | None]:
        """Runs, newest change first, and the cursor of the next page (None: no more)."""
        check_limit(limit)
        with self._lock:
            found = [
                (run_id, saved)
                for run_id, saved in self._newest_first()
                if (status is None or saved.status == status)
                and (session_id is None or saved.session_id == session_id)
                and (after is None or saved.change < int(after))
            ]
            shown = [saved.summary(run_id) for run_id, saved in found[:limit]]
            return shown, str(found[limit - 1][1].change) if 0 < limit < len(found) else None

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run; return whether it existed."""
        with self._lock:
            return self._runs.pop(run_id, None) is not None

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        """Delete ended runs (done, failed, cancelled) older than `older_than_s`, and all but the newest `keep` of them.

        A run that failed or was cut stays while it is left open (`is_left_open`).
        """
        with self._lock:
            stopped = [(run_id, saved) for run_id, saved in self._newest_first() if saved.status in ENDED]
            ended = [(run_id, saved) for run_id, saved in stopped if not is_left_open(saved.head)]
            leaving: set[str] = set()
            if keep is not None:
                leaving |= {run_id for run_id, _ in ended[max(keep, 0) :]}
            if older_than_s is not None:
                oldest = _now() - timedelta(seconds=older_than_s)
                leaving |= {run_id for run_id, saved in ended if saved.updated_at < oldest}
            for run_id in leaving:
                del self._runs[run_id]
            return len(leaving)

    def forget(self, session_id: str, *, keep_running: bool) -> None:
        """Delete a session's runs, except running ones of a held session; the caller holds the lock."""
        for run_id, saved in list(self._runs.items()):
            if saved.session_id == session_id and not (keep_running and saved.status == "running"):
                del self._runs[run_id]

    def _newest_first(self) -> list[tuple[str, _Saved]]:
        return sorted(self._runs.items(), key=lambda pair: -pair[1].change)

    def _touch(self, run_id: str, saved: _Saved | None) -> _Saved:
        self._changes += 1
        now = _now()
        if saved is None:
            saved = self._runs[run_id] = _Saved(now, now, self._changes)
        else:
            saved.updated_at, saved.change = max(now, saved.updated_at + _TICK), self._changes
        return saved


def _check_tail(run_id: str, name: str, tail: LogTail, length: int) -> None:
    if not 0 <= tail.start <= length:
        raise NotFoundError(
            f"log {name!r} of run {run_id!r} has {length} records and this tail starts at {tail.start}",
            "Save the records before it first.",
        )


def _now() -> datetime:
    return datetime.fromtimestamp(time.time(), UTC)
