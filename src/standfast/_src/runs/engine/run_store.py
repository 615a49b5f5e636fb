"""Storage of runs: a small protocol that any store of sessions can serve.

A saved run is a small head, fenced by a revision, and append-only logs. Saving writes the head and the tails of the
logs in one step, so its cost is proportional to the new records. The store does not interpret them: head and log
records are bytes. Consume-once is the revision: of two savers on the same revision, the second gets an error (C12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.identifiers import is_name

BUDGET_RUNS = "standfast-budget"
"""Prefix of the names of budgets among the runs of a store; refused as the prefix of a run id."""


def check_run_id(run_id: object) -> str:
    """Return the id unchanged; raise if any store could not hold it."""
    if is_name(run_id) and not run_id.startswith(BUDGET_RUNS):
        return run_id
    raise InvalidSettingError(
        f"a run_id of {run_id!r} names no run", "Give a non-empty string of valid Unicode, or leave it to the runner."
    )


@dataclass(frozen=True, slots=True)
class LogTail:
    """Records number `start`, `start` + 1, … of a log; the store first drops its records from `start` on."""

    start: int
    records: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A saved run in a listing. `status`: running, paused, ready, done, failed, cancelled."""

    run_id: str
    status: str
    session_id: str | None
    agent: str
    created_at: datetime
    updated_at: datetime
    revision: int


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run as stored."""

    run_id: str
    revision: int
    head: bytes
    logs: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    signals: bytes | None = None
    """Cell of pending signals (F7); None without any."""
    made_at: float | None = field(default=None, compare=False)
    """Time of creation, if the store was asked: tells it from a later run of the same id, made after a deletion."""


class SavableRecord(Protocol):
    """A record that can be saved like a run: a head, growing logs, and fields for a listing."""

    run_id: str
    status: str
    agent: str
    session_id: str | None

    def head(self) -> bytes:
        """The small part, whole."""
        ...

    def tails(self, saved: Mapping[str, int]) -> Mapping[str, LogTail]:
        """Return the tail of each log behind the saved length."""
        ...

    def lengths(self) -> Mapping[str, int]:
        """Return the length of each log after this save."""
        ...


@runtime_checkable
class RunStore(Protocol):
    """Storage of runs. Every method is atomic and durable when it returns."""

    async def load_run(self, run_id: str) -> SavedRun | None:
        """Return the run as last saved, or None for an unknown id."""
        ...

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
        """Write the head and the tails in one step if the saved revision is `expect` (0: not there yet).

        Returns the new revision. Raises RunClaimedError, and writes nothing, if the revision is another. A repeat
        after a lost acknowledgement (same head on revision `expect` + 1) succeeds.
        """
        ...

    async def list_runs(
        self, *, status: str | None = None, session_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> tuple[list[RunSummary], str | None]:
        """Runs, newest change first, and the cursor of the next page (None: no more)."""
        ...

    async def delete_run(self, run_id: str) -> bool:
        """Delete a run; return whether it existed."""
        ...

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        """Delete ended runs (done, failed, cancelled) older than `older_than_s`, and all but the newest `keep` of them.

        A run that failed or was cut on a session, with work that the session does not hold yet, has not ended.
        """
        ...
