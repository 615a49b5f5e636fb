"""Hold the runs of a restored store until a person releases or decides them (C15, B17).

A restored store does not know the effects of its runs after the backup. A worker would repeat them. So every run that
could act waits for a person, and the holder of its session loses the lease.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from standfast._kits.operators.approvals import check_name, save_of
from standfast._src.base.errors import NotFoundError, RunStateError, StandfastError
from standfast._src.realtime.machine.codec import is_call
from standfast._src.runs.engine.advance import advance
from standfast._src.runs.engine.codec import decode_saved, has_ended
from standfast._src.runs.engine.events import Event, Held, Released
from standfast._src.runs.engine.run import Hold, Run
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.sessions.client.stored_runs import StoredRunStore
from standfast._src.sessions.rules.saved_runs import RunSave

COULD_ACT = ("running", "ready", "paused", "failed", "cancelled")
"""The status of runs that a worker, a retry or an approval could make act again."""


@dataclass(frozen=True, slots=True)
class RunsHeld:
    """The ids of held runs, and the ids of skipped runs with the reason."""

    held: tuple[str, ...]
    left: tuple[tuple[str, str], ...]


async def hold(runs: StoredRunStore, run_id: str, *, by: str) -> bool:
    """Make a run wait for a person; return False for a run that has ended or is nested in another."""
    check_name(by)
    event = Held(Hold(by, time.time()))
    return await _change(runs, run_id, event, lambda run: not run.finished and run.spec.inside is None)


async def release(runs: StoredRunStore, run_id: str, *, by: str) -> None:
    """Let a held run continue from the stored state."""
    check_name(by)
    if not await _change(runs, run_id, Released(), waits_as_a_whole):
        raise RunStateError(f"run {run_id!r} is not held", "See what it does with standfast runs show.")


def waits_as_a_whole(run: Run) -> bool:
    """Return True if a run, or a nested run in its calls, is held."""
    return run.is_held or any(call.child is not None and waits_as_a_whole(call.child) for call in run.calls)


async def _change(runs: StoredRunStore, run_id: str, event: Event, applies: Callable[[Run], bool]) -> bool:
    is_changed = False

    def change(saved: SavedRun) -> RunSave | None:
        nonlocal is_changed
        if is_call(saved):
            raise RunStateError(
                f"{run_id!r} is a voice call, which continues only through RealtimeRunner.resume",
                "Do not resume the call; cancel what it had promised by hand.",
            )
        run = None if has_ended(saved) else decode_saved(saved)
        if run is None or not applies(run):
            return None
        is_changed = True
        return save_of(advance(run, event), saved)

    await runs.change_run(run_id, change)
    return is_changed


async def open_runs(runs: StoredRunStore) -> list[tuple[str, str | None]]:
    """Return the ids of all runs that could act, each with its session."""
    found: dict[str, str | None] = {}
    for status in COULD_ACT:
        after: str | None = None
        while True:
            page, after = await runs.list_runs(status=status, session_id=None, after=after, limit=256)
            found |= {run.run_id: run.session_id for run in page}
            if after is None:
                break
    return list(found.items())


def describe_error(error: StandfastError) -> str:
    """The reason why a run could not be held, for people."""
    return "has gone since it was listed" if isinstance(error, NotFoundError) else f"{error.what}. {error.remedy}"
