"""Import a session that was read elsewhere: whole, in one step, or not at all.

The conditions of the step are that the session does not exist yet, or is still what an earlier step of the same copy
made of it. So an interrupted import leaves the target unchanged, and repeating the copy finishes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from standfast._src.base.errors import RunStateError, SessionBusyError
from standfast._src.base.json_values import encode_value
from standfast._src.runs.engine.codec import decode_saved
from standfast._src.runs.engine.run_store import SavedRun
from standfast._src.sessions.rules.generations import KeptGeneration, encode_generations
from standfast._src.sessions.rules.history import (
    BROUGHT,
    GENERATIONS,
    IMPORTED,
    INBOX,
    KEPT_BY_CLEAR,
    LEASE,
    MESSAGE,
    OPEN_RUN,
    ORIGIN,
    Decision,
    as_time,
    look,
    until_done,
    value_of,
)
from standfast._src.sessions.rules.leases import encode_inbox, inbox_in, lease_state_in, open_run_value
from standfast._src.sessions.rules.messages import Note, content_digest
from standfast._src.sessions.rules.saved_runs import HEAD, LOG, is_open_run
from standfast._src.sessions.rules.snapshot import MOVED, ImportNote, Picture, RunPicture, note_in
from standfast._src.sessions.storage import KeyUpdate, Load, Name, Plan, ReadAnswer, ReadRequest

Mode = Literal["whole", "rest", "anew", "runs"]
"""Part to import: everything; only newer rows; everything, in place of an earlier copy; only runs."""


class Brought(NamedTuple):
    """Outcome of an import: the new end of the history, and the ids of moved runs that are there now."""

    mark: str
    moved: tuple[str, ...]


class Cargo(NamedTuple):
    """A session to import, and the target as read (None: absent)."""

    seen: Picture
    moved: Sequence[RunPicture]
    note: ImportNote
    mode: Mode
    there: Picture | None


def bring(name: Name, cargo: Cargo) -> Plan[Brought | None]:
    """Import the session; return None if the target has changed since it was read."""
    there = cargo.there
    cells = (GENERATIONS, IMPORTED, LEASE, INBOX)
    moved = tuple(run.run_id for run in cargo.moved)

    def decide(sight: ReadAnswer) -> Plan[Decision[tuple[str, ...] | None]]:
        come = [run for run in cargo.moved if value_of(sight, BROUGHT + run.run_id) != run.token.encode()]
        note = sight.cells.get(IMPORTED)
        if note is not None and note.alive and note_in(note).token == cargo.note.token:
            return moved, []  # done before: its answer was lost
        was_there = (None, None) if there is None else (there.mark, there.generations_cell)
        is_there = (None, None) if sight.created is None else (sight.mark, value_of(sight, GENERATIONS))
        if was_there != is_there:
            return None, []
        _refuse_held(name, sight)
        step = yield from _runs_step(cargo, come)
        conditions: dict[str, bytes | None] = {cell: value_of(sight, cell) for cell in (GENERATIONS, IMPORTED, LEASE)}
        conditions |= {BROUGHT + run.run_id: value_of(sight, BROUGHT + run.run_id) for run in come}
        put: dict[str, bytes | None] = {BROUGHT + run.run_id: run.token.encode() for run in come}
        put |= {
            OPEN_RUN + run.run_id: open_run_value(run.status, None) for run in come if is_open_run(run.status, run.head)
        }
        put |= _messages_of(sight, come)
        if INBOX in put:
            conditions[INBOX] = value_of(sight, INBOX)
        if cargo.mode != "runs":
            put |= cells_of(cargo.seen)
            put[IMPORTED] = json.dumps(cargo.note).encode()
        change = KeyUpdate(
            name,
            mark=sight.mark,
            cells=conditions,
            wipe=KEPT_BY_CLEAR if cargo.mode == "anew" else None,
            load=_load(cargo),
            put=put,
            touch=cargo.mode != "runs",
        )
        return moved, [change, *step]

    done, head = yield from until_done(ReadRequest(name, cells=cells, prefixes=(BROUGHT,), times=True), decide)
    return None if done is None else Brought(head.value, done)


def _messages_of(sight: ReadAnswer, come: Sequence[RunPicture]) -> dict[str, bytes | None]:
    """Build the cells of moved messages, behind the messages waiting here already."""
    waiting, put = list(inbox_in(sight)), dict[str, bytes | None]()
    for run in sorted(come, key=lambda one: (one.created or 0.0, one.run_id)):
        saved = SavedRun(run.run_id, run.revision, run.head, {log: tuple(records) for log, records in run.logs.items()})
        try:
            known = decode_saved(saved)
        except RunStateError:
            continue  # a voice call, which is not a message
        if known.spec.message is None:
            continue
        items = [entry.item for entry in known.ledger[: known.spec.input_count]]
        put[MESSAGE + run.run_id] = Note(content_digest(items)).encode()
        if not known.has_done_something:
            waiting.append(run.run_id)
            put[INBOX] = encode_inbox(waiting)
    return put


def _refuse_held(name: Name, sight: ReadAnswer) -> None:
    held = lease_state_in(sight)
    if not held.is_over(sight.now):
        raise SessionBusyError(
            f"session {name.id!r} of the target is held by {held.holder or 'a run'}",
            "Repeat this when the holder has released it; Store.unlock() takes it from a worker that has crashed.",
            holder=held.holder,
            since=as_time(held.taken or held.since),
        )


def _load(cargo: Cargo) -> Load | None:
    seen, there = cargo.seen, cargo.there
    if cargo.mode == "runs":
        return None
    if cargo.mode == "rest" and there is not None:
        return Load(seen.rows[len(there.rows) :], seen.times[len(there.rows) :])
    boxes = {one.number: one.rows for one in seen.generations}
    return Load(seen.rows, seen.times, boxes, seen.created)


def cells_of(seen: Picture) -> dict[str, bytes | None]:
    """Return the cells of a session for a snapshot."""
    put: dict[str, bytes | None] = {}
    for writer, known in seen.writers.items():
        put |= known.cells(writer)
    if seen.generations:
        kept = [KeptGeneration(one.number, one.created, one.item_count, one.by) for one in seen.generations]
        put[GENERATIONS] = encode_generations(kept)
    for part in seen.usage:
        put[part.cell] = encode_value([part.at, part.requests])
    put |= seen.others
    if seen.origin is not None:
        put[ORIGIN] = encode_value(seen.origin)
    return put


# --- runs ------------------------------------------------------------------------------------------------------------


def _runs_step(cargo: Cargo, come: Sequence[RunPicture]) -> Plan[list[KeyUpdate]]:
    """Return the changes that import the runs, ended and moved."""
    there = {} if cargo.there is None else {run.run_id: run for run in cargo.there.runs}
    ended = [] if cargo.mode == "runs" else list(cargo.seen.runs)
    step: list[KeyUpdate] = []
    for run in (*ended, *come):
        head, labels = yield from run_head(run.run_id)
        if head == run.stored_head:
            continue
        if head is not None and run.run_id not in there and not is_moved_from(labels, cargo.seen.session_id):
            raise build_run_id_taken_error(run.run_id)
        step.append(_run_change(run, head))
    stays = {run.run_id for run in ended}
    if cargo.mode in ("rest", "anew"):  # the source has forgotten it since
        gone = [run for run in there.values() if run.run_id not in stays]
        step += [KeyUpdate(Name("run", run.run_id), cells={HEAD: run.stored_head}, remove=True) for run in gone]
    return step


def _run_change(run: RunPicture, head: bytes | None) -> KeyUpdate:
    return KeyUpdate(
        Name("run", run.run_id),
        cells={HEAD: head},
        load=Load(created=run.created),
        sweep=() if head is None else (LOG,),
        put=run.cells(),
        touch=True,
        labels=run.labels,
    )


def run_head(run_id: str) -> Plan[tuple[bytes | None, Mapping[str, str]]]:
    """Return the stored head and the labels of a run's id."""
    sight = yield from look(ReadRequest(Name("run", run_id), cells=(HEAD,), mark=False, times=True))
    return value_of(sight, HEAD), sight.labels


def is_moved_from(labels: Mapping[str, str], session_id: str) -> bool:
    """Return whether labels are the remainder of a run of this session after its move: the run may come back."""
    return MOVED in labels and labels.get("session") == session_id


def build_run_id_taken_error(run_id: str) -> RunStateError:
    """Build the error for a run whose id belongs to another run in the target."""
    return RunStateError(
        f"the target has another run {run_id!r}, so the session's own cannot be brought; nothing was changed",
        "Delete or rename that run, or bring the session to another store.",
    )
