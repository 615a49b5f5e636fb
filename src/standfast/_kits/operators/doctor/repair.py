"""Repair of a store, and its undo.

For each session in need: look, write the records to remove into the undo file, then remove them in one step that is
refused if anything has changed since the look. A crash in between leaves a session as it was, or repaired, and an undo
file with at least the removed records; repairing again, and undoing again, is always safe.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal
from urllib.parse import quote
from uuid import uuid4

from standfast._kits.operators.doctor.checks import QUIET_FOR_S, Clock, read
from standfast._kits.operators.doctor.diagnosis import Diagnosis, plan_repair
from standfast._kits.operators.doctor.undo_file import UndoFile, read_undo_file
from standfast._kits.operators.open_store import open_store
from standfast._kits.operators.store import Store
from standfast._src.base.durations import check_seconds
from standfast._src.sessions.backends.sqlite import process_liveness
from standfast._src.sessions.client.read_only_executor import open_read_only
from standfast._src.sessions.rules import history, record_repair
from standfast._src.sessions.rules.record_repair import is_held
from standfast._src.sessions.storage import Name, ReadAnswer


@dataclass(frozen=True, slots=True)
class SessionRepair:
    """Result of repairing a session or of undoing a repair."""

    session_id: str
    state: Literal["repaired", "left", "put back", "nothing to do", "refused"]
    records: int
    """How many records were taken out or put back, or would have been."""
    why: str = ""
    remedy: str = ""


@dataclass(slots=True)
class RepairReport:
    """Result of a repair or an undo, session by session."""

    repairs: list[SessionRepair] = field(default_factory=list)
    undo_file: Path | None = None
    """Where to undo it; None if nothing was changed."""
    is_whole: bool = True
    """False: the undo file ends early. The repair broke off, or the file was cut."""

    def of(self, state: str) -> list[SessionRepair]:
        """Return the sessions with a given result."""
        return [one for one in self.repairs if one.state == state]


async def repair_store(
    store: Store,
    undo_file: str | os.PathLike[str] | UndoFile,
    *,
    sessions: Sequence[str] | None = None,
    quiet_for_s: float = QUIET_FOR_S,
    clock: Clock | None = None,
) -> RepairReport:
    """Remove invalid records and items refused by providers from sessions, after writing them to `undo_file`.

    Sessions with a live lease, or changed in the last `quiet_for_s` seconds by the store's clock (or by `clock`), are
    left as they are, and so are those that change between the look and the step. `undo_repair` takes it back. Raises
    UndoFileError if the file is there already or cannot be written; then nothing more was changed.
    """
    if store.read_only:
        raise open_read_only()
    check_seconds("quiet_for_s", quiet_for_s)
    file = undo_file if isinstance(undo_file, UndoFile) else UndoFile(undo_file, absolute_url(store))
    file.check()
    report = RepairReport()
    is_quiet = partial(_is_quiet, quiet_for_s, clock)
    try:
        async for part in read(store, sessions, clock):
            for session_id, diagnosis, sight in part.found:
                if diagnosis.leaving:
                    report.repairs.append(await _repair_session(store, file, session_id, diagnosis, sight, is_quiet))
        report.undo_file = file.path if file.is_made else None
        file.end()
    finally:
        file.close()
    return report


async def _repair_session(
    store: Store,
    file: UndoFile,
    session_id: str,
    diagnosis: Diagnosis,
    sight: ReadAnswer,
    is_quiet: Callable[[ReadAnswer], bool],
) -> SessionRepair:
    count = len(diagnosis.leaving)
    if is_held(sight, process_liveness.is_gone):
        return SessionRepair(session_id, "left", count, "somebody holds it", "Repair it when its run has ended.")
    if not is_quiet(sight):
        return _not_quiet(session_id, count)
    repair = plan_repair(uuid4().hex, sight, diagnosis)
    file.add(session_id, repair)
    session = store.session(session_id)
    try:
        outcome = await session.changed(partial(record_repair.repair, Name("session", session_id), repair, is_quiet))
    finally:
        await session.close()
    if outcome == "not quiet":
        return _not_quiet(session_id, count)
    if outcome == "changed":
        return SessionRepair(
            session_id, "left", count, "it was changed meanwhile", "Repair it when nobody writes to it."
        )
    return SessionRepair(session_id, "repaired", count)


def _not_quiet(session_id: str, count: int) -> SessionRepair:
    return SessionRepair(
        session_id,
        "left",
        count,
        "it was changed a short while ago, by its times, or nobody knows when",
        "A program without leases may be about to write what is missing: repair it later, or at once with"
        " --quiet-for 0s when every such program has stopped.",
    )


def _is_quiet(quiet_for_s: float, clock: Clock | None, sight: ReadAnswer) -> bool:
    """Return whether the last recorded change is long enough ago; a time in the future counts as recent."""
    newest = [at for at in (sight.updated, *sight.times[0][-1:]) if at is not None]
    now = sight.now if clock is None else clock()
    return bool(newest) and now - max(newest) >= quiet_for_s


# --- undo ------------------------------------------------------------------------------------------------------------


async def undo_repair(
    undo_file: str | os.PathLike[str], store: Store | str | os.PathLike[str], *, timeout_s: float = 30.0
) -> RepairReport:
    """Restore everything removed by a repair, with its bytes and places, and keep all later writes.

    `store`: where it was taken out. The file names it too, and is not asked: another author's file could name any
    store, and passwords of the environment would go there. What was put back already, or never taken out, is left
    alone; a part that a compaction has replaced since is refused, with what to do. May be repeated at any time.
    """
    found = read_undo_file(undo_file)
    opened = store if isinstance(store, Store) else open_store(store, timeout_s=timeout_s)
    if opened.read_only:
        raise open_read_only()
    report = RepairReport(undo_file=Path(undo_file), is_whole=found.is_whole)
    try:
        await opened.looked(history.count_sessions)  # the store stays open from here on, and not for each session anew
        for session_id, repair in reversed(found.repairs):
            session = opened.session(session_id)
            try:
                done = await session.changed(partial(record_repair.put_back, Name("session", session_id), repair))
            finally:
                await session.close()
            state: Literal["put back", "nothing to do", "refused"]
            match done.state:
                case "done":
                    state = "put back"
                case "absent":
                    state = "nothing to do"
                case "refused":
                    state = "refused"
            report.repairs.append(SessionRepair(session_id, state, len(repair.removed), done.why, done.remedy))
    finally:
        if opened is not store:
            await opened.close()
    return report


def absolute_url(store: Store) -> str:
    """Return the store's URL in a form usable from any folder."""
    if store.file is None:
        return store.url
    _, _, query = store.url.partition("?") if "://" in store.url else ("", "", "")
    return f"sqlite:///{quote(store.file.path)}" + (f"?{query}" if query else "")


def undo_file_name(now: float | None = None) -> str:
    """Return a unique name for an undo file."""
    at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    return f"standfast-undo-{at}-{uuid4().hex[:6]}.jsonl"
