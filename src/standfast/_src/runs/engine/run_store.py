"""Where runs are saved: a small protocol that any store of sessions can serve.

A saved run is a small head, fenced by a revision, and append-only logs. Saving writes the head and the tails of the
logs in one step, so its cost follows what is new. The store does not understand what it keeps: head and log records
are bytes. Consume-once is the revision: of two who save on the same one, the second is told (C12).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol, runtime_checkable

from standfast._src.base.errors import InvalidSettingError
from standfast._src.base.identifiers import is_name


def check_run_id(run_id: object) -> str:
    """The id itself, if every store can hold it."""
    if is_name(run_id):
        return run_id
    raise InvalidSettingError(
        f"a run_id of {run_id!r} names no run", "Give a non-empty string of valid Unicode, or leave it to the runner."
    )


@dataclass(frozen=True, slots=True)
class LogTail:
    """Records number `start`, `start` + 1, … of one log; the store drops whatever it has from `start` on first."""

    start: int
    records: Sequence[bytes]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """What a listing shows of a saved run. `status`: running, paused, ready, done, failed, cancelled."""

    run_id: str
    status: str
    session_id: str | None
    agent: str
    created_at: datetime
    updated_at: datetime
    revision: int


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run as a store holds it."""

    run_id: str
    revision: int
    head: bytes
    logs: Mapping[str, Sequence[bytes]] = field(default_factory=dict)
    made_at: float | None = field(default=None, compare=False)
    """When it was made, where the store was asked: another under the same id, after a deletion, is not taken for it."""


class SavableRecord(Protocol):
    """Something that can be saved as a run is: a head, logs that only grow, and what a listing shows of it."""

    run_id: str
    status: str
    agent: str
    session_id: str | None

    def head(self) -> bytes:
        """The small part, whole."""
        ...

    def tails(self, saved: Mapping[str, int]) -> Mapping[str, LogTail]:
        """What each log has beyond these lengths, which are saved already."""
        ...

    def lengths(self) -> Mapping[str, int]:
        """How long each log is once this is saved."""
        ...


@runtime_checkable
class RunStore(Protocol):
    """Keeps runs. Every method is atomic and durable when it returns."""

    async def load_run(self, run_id: str) -> SavedRun | None:
        """The run as last saved; None if there is none of this id."""
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
        """Remove a run; whether there was one."""
        ...

    async def prune_runs(self, *, older_than_s: float | None = None, keep: int | None = None) -> int:
        """Remove ended runs (done, failed, cancelled) older than that, and all but the newest `keep` of them.

        One that failed or was cut on a session, with something done that the session does not hold yet, has not ended.
        """
        ...
