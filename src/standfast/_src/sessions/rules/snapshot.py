"""Snapshot of a whole session: read at one instant and imported elsewhere in one step. Open runs are moved once.

A snapshot holds everything that makes a session the same elsewhere: rows with writer, number and time, each writer's
counts and digests, kept generations, usage, origin and saved runs. Data of one store is not in it: marks, cursors and
epochs, the lease, idempotency slots.

A run that could still act must exist once. So it is never in a snapshot: it is left behind and reported, or it is
*moved*. Moving closes it at the source in one step, on the condition that nothing has changed since it was read. The
step keeps the closed run in a cell of the session until the mover has seen it in its new place. A mover that crashed
anywhere in between finds the cell and resumes there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from standfast._src.base.errors import SealKeyError
from standfast._src.base.json_values import DIGEST_BYTES, Item, decode_value, encode_value
from standfast._src.runs.engine.codec import RunRecord, decode_saved, encode_moved, has_ended, may_go_on
from standfast._src.sessions.rules.append import AllWritten, all_written
from standfast._src.sessions.rules.generations import parse_generations, read_with_generations
from standfast._src.sessions.rules.history import (
    BRANCHES,
    BROUGHT,
    DIGESTS,
    GENERATIONS,
    IMPORTED,
    INBOX,
    LEASE,
    MESSAGE,
    MOVING,
    OPEN_RUN,
    ORIGIN,
    SEALED,
    USAGE,
    WRITER,
    Decision,
    commit,
    decode_cell,
    look,
    runs_of,
    until_done,
    usage_cell,
    usage_in_cells,
    value_of,
)
from standfast._src.sessions.rules.inspection import costs_in, origin_in
from standfast._src.sessions.rules.leases import Fence, check_fence, encode_inbox, inbox_in
from standfast._src.sessions.rules.saved_runs import HEAD, LENGTHS, LOG, SIGNALS, saved_in
from standfast._src.sessions.storage import (
    NOBODY,
    Cell,
    Done,
    KeyUpdate,
    Name,
    Plan,
    ReadAnswer,
    ReadRequest,
    Row,
    Rows,
    Tag,
)

MOVED = "moved"
"""Label of the remainder of a run that continues in another store."""

OTHERS = (BRANCHES,)
# Cells that only one kind of session reads, and that belong to the session wherever it is: the branches of an
# AdvancedSQLiteSession, which are sessions of their own.

SEALED_ROW = b'{"__enc__":2,'

Stored = tuple[bytes, Tag]
"""A record and its writer."""


class GenerationPicture(NamedTuple):
    """A kept generation."""

    number: int
    created: float
    item_count: int
    rows: Sequence[Stored]
    by: str | None = None


class UsagePicture(NamedTuple):
    """Cost of some replies of a run: those behind its first `number`."""

    run_id: str
    number: int
    at: float
    requests: Sequence[Item]

    @property
    def cell(self) -> str:
        """Name of its cell."""
        return usage_cell(self.number, self.run_id)


class RunPicture(NamedTuple):
    """A saved run."""

    run_id: str
    labels: Mapping[str, str]
    revision: int
    head: bytes
    logs: Mapping[str, Sequence[bytes]]
    created: float | None = None
    token: str = ""
    """Id of the move that imports it, for a run that could still act."""

    @property
    def status(self) -> str:
        """Status as shown in a listing."""
        return self.labels.get("status", "")

    @property
    def stored_head(self) -> bytes:
        """Value of its head cell."""
        return b"%d|" % self.revision + self.head

    def cells(self) -> dict[str, bytes | None]:
        """Encode the run's cells."""
        lengths = {log: len(records) for log, records in self.logs.items() if records}
        found: dict[str, bytes | None] = {HEAD: self.stored_head, LENGTHS: msgspec.json.encode(lengths)}
        if lengths:
            tails = {log: (0, list(self.logs[log])) for log in lengths}
            found[f"{LOG}{self.revision:012d}"] = msgspec.msgpack.encode(tails)
        return found


class ImportNote(NamedTuple):
    """A session's note of its import: digest of the imported snapshot, source, and step."""

    digest: str
    source: str
    token: str


_decode_note = msgspec.json.Decoder(ImportNote).decode


def note_in(cell: Cell) -> ImportNote:
    """Decode a session's note of its import."""
    return decode_cell(IMPORTED, cell.value, _decode_note)


class MovingRun(NamedTuple):
    """A run that was closed at its source and may not have arrived yet."""

    run: RunPicture
    target: str


class Picture(NamedTuple):
    """A session at one instant."""

    session_id: str
    created: float
    updated: float
    rows: Sequence[Stored]
    times: Sequence[float | None]
    generations: Sequence[GenerationPicture] = ()
    writers: Mapping[str, AllWritten] = {}
    usage: Sequence[UsagePicture] = ()
    origin: Sequence[object] | None = None
    others: Mapping[str, bytes] = {}
    """Further data of one kind of session, as JSON."""
    runs: Sequence[RunPicture] = ()
    """Ended runs."""
    unfinished: Sequence[RunPicture] = ()
    """Runs that could still act: not part of the snapshot."""
    moving: Sequence[MovingRun] = ()
    note: ImportNote | None = None
    untold: int = 0
    """Number of corrupt records that are not text, which some stores could not hold: not part of the snapshot."""
    mark: str = ""
    generations_cell: bytes | None = None

    @property
    def item_count(self) -> int:
        """Number of records, kept generations included."""
        return len(self.rows) + sum(len(one.rows) for one in self.generations)


# --- reading ---------------------------------------------------------------------------------------------------------


def picture(name: Name) -> Plan[Picture | None]:
    """Take a snapshot of a session; None if the session does not exist.

    Its runs are read first: the items stored by an ended run are then in the history, which is read afterwards.
    Everything of the session itself is one read.
    """
    while True:
        first = yield from look(
            ReadRequest(name, cells=(GENERATIONS,), prefixes=(WRITER,), rows=(Rows(limit=1),), times=True)
        )
        _refuse_sealed(name, first)
        runs = yield from _runs(name)
        prefixes = (WRITER, DIGESTS, USAGE, MOVING, MESSAGE)
        sight, boxes = yield from read_with_generations(
            name, cells=(ORIGIN, IMPORTED, *OTHERS), prefixes=prefixes, live=Rows(times=True)
        )
        if sight.epoch != first.epoch:
            continue  # it was cleared in between: those runs belonged to the earlier incarnation
        if sight.created is None or sight.updated is None:
            return None
        return _build_picture(name, sight, boxes, runs)


def _refuse_sealed(name: Name, sight: ReadAnswer) -> None:
    rows = sight.rows[0]
    if any(cell.value.startswith(SEALED) for cell in sight.cells.values()) or (
        rows and rows[-1].data.startswith(SEALED_ROW)
    ):
        raise SealKeyError(
            f"session {name.id!r} is sealed, and its data besides the items cannot be read without its key",
            "Give a store of EncryptedSessions with the key: docs/how-to/move-a-session.md.",
        )


def _build_picture(
    name: Name, sight: ReadAnswer, boxes: Mapping[int, Sequence[Row]], runs: Sequence[RunPicture]
) -> Picture:
    assert sight.created is not None
    assert sight.updated is not None
    live, times, untold = _portable(sight.rows[0], sight.times[0])
    generations = []
    for kept in parse_generations(sight):
        rows, _, _ = _portable(boxes[kept.number], [None] * len(boxes[kept.number]))
        generations.append(GenerationPicture(kept.number, kept.created, kept.item_count, rows, kept.by))
    origin, note = sight.cells.get(ORIGIN), sight.cells.get(IMPORTED)
    open_ = [run for run in runs if may_go_on(run.status, run.head)]
    closed = [run for run in runs if MOVED not in run.labels and not may_go_on(run.status, run.head)]
    return Picture(
        name.id,
        sight.created,
        sight.updated,
        live,
        times,
        generations,
        all_written(sight),
        _usage(sight),
        decode_cell(ORIGIN, origin.value, origin_in) if origin is not None and origin.alive else None,
        {cell: found.value for cell in OTHERS if (found := sight.cells.get(cell)) is not None and found.alive}
        | _ended_messages(sight, {run.run_id for run in open_}),
        closed,
        open_,
        moving_in(sight),
        note_in(note) if note is not None and note.alive else None,
        untold,
        sight.mark,
        value_of(sight, GENERATIONS),
    )


def _ended_messages(sight: ReadAnswer, unfinished: set[str]) -> dict[str, bytes]:
    """Return the cells of ended messages: a repeat is known in the target too."""
    return {
        cell: found.value
        for cell, found in sight.cells.items()
        if cell.startswith(MESSAGE) and not found.expired and cell[len(MESSAGE) :] not in unfinished
    }


def _portable(rows: Sequence[Row], times: Sequence[float | None]) -> tuple[list[Stored], list[float | None], int]:
    """Return the rows that every store can hold, with their times, and the number of the rest: those that are not
    text.
    """
    found = [(row.data, NOBODY if row.tag is None else row.tag) for row in rows]
    given: list[float | None] = list(times) or [None] * len(found)  # a store may not keep times at all
    together = b"\n".join([data for data, _ in found])
    if is_text(together):
        return found, given, 0
    kept = [place for place, (data, _) in enumerate(found) if is_text(data)]
    return [found[place] for place in kept], [given[place] for place in kept], len(found) - len(kept)


def is_text(data: bytes) -> bool:
    """Return whether every store can hold these bytes: UTF-8 without a zero."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in data


def _usage(sight: ReadAnswer) -> list[UsagePicture]:
    return [
        UsagePicture(run_id, number, *decode_cell(usage_cell(number, run_id), kept, costs_in))
        for number, run_id, kept in usage_in_cells(sight)
    ]


def _runs(name: Name) -> Plan[list[RunPicture]]:
    """Return every saved run of a session, oldest change first."""
    found: list[RunPicture] = []
    for run_id in reversed((yield from runs_of(name))):
        run = yield from run_picture(run_id)
        if run is not None:
            found.append(run)
    return found


def run_picture(run_id: str) -> Plan[RunPicture | None]:
    """Take a snapshot of a saved run, with pending signals applied; None if the run does not exist."""
    return (yield from _run_as_stored(run_id))[0]


def _run_as_stored(run_id: str) -> Plan[tuple[RunPicture | None, dict[str, bytes | None]]]:
    """Return the snapshot of a run, and the stored cells behind the snapshot."""
    cells = (HEAD, SIGNALS)
    sight = yield from look(ReadRequest(Name("run", run_id), cells=cells, prefixes=(LOG,), mark=False, times=True))
    saved = saved_in(run_id, sight)
    if saved is None:
        return None, {}
    labels, head, logs = dict(sight.labels), saved.head, saved.logs
    if saved.signals is not None and not has_ended(saved):
        record = RunRecord(decode_saved(saved))
        head, logs = record.head(), {log: tail.records for log, tail in record.tails({}).items()}
        labels["status"] = record.status
    picture = RunPicture(run_id, labels, saved.revision, head, logs, sight.created)
    return picture, {cell: value_of(sight, cell) for cell in cells}


# --- the same session ------------------------------------------------------------------------------------------------


def digest_of(given: Picture) -> str:
    """Compute the digest of a snapshot: equal for equal sessions, in any store.

    Times are not in it: a store keeps them as exactly as it can.
    """
    known = blake2b(digest_size=DIGEST_BYTES)
    for rows in (given.rows, *(one.rows for one in given.generations)):
        for start in range(0, len(rows), 1024):
            some = rows[start : start + 1024]
            known.update(msgspec.msgpack.encode([(_canonical(data), tag) for data, tag in some]))
        known.update(b"/")
    rest = (
        [(one.number, one.item_count) for one in given.generations],
        sorted(given.writers.items()),
        [(one.run_id, one.number, one.requests) for one in sorted(given.usage, key=lambda one: one.cell)],
        given.origin,
        sorted(given.others.items()),
        [(one.run_id, one.revision, one.head, one.logs) for one in sorted(given.runs, key=lambda one: one.run_id)],
    )
    known.update(msgspec.msgpack.encode(rest))
    return known.hexdigest()


def _canonical(data: bytes) -> bytes:
    """Return a record unchanged, unless a store may have escaped it: some keep JSON in ASCII."""
    if data.isascii() and b"\\u" not in data:
        return data
    try:
        return encode_value(decode_value(data))
    except ValueError:
        return data


def is_continued(old: Picture, new: Picture) -> bool:
    """Return whether the newer snapshot only has rows appended to those of the older."""
    count = len(old.rows)
    return (
        len(new.rows) >= count
        and [(one.number, len(one.rows)) for one in old.generations]
        == [(one.number, len(one.rows)) for one in new.generations]
        and all(
            mine[1] == theirs[1] and _canonical(mine[0]) == _canonical(theirs[0])
            for mine, theirs in zip(old.rows, new.rows, strict=False)
        )
    )


# --- moving runs -----------------------------------------------------------------------------------------------------


_decode_moving = msgspec.msgpack.Decoder(
    tuple[str, dict[str, str], int, bytes, dict[str, list[bytes]], float | None, str, str]
).decode


def moving_in(sight: ReadAnswer) -> list[MovingRun]:
    """Decode the runs that a session records as being moved away."""
    found = []
    for cell, value in sorted(sight.cells.items()):
        if cell.startswith(MOVING):
            moving = decode_cell(cell, value.value, _decode_moving)
            run_id, labels, revision, head, logs, created, token, target = moving
            found.append(MovingRun(RunPicture(run_id, labels, revision, head, logs, created, token), target))
    return found


def _moving_value(run: RunPicture, target: str) -> bytes:
    logs = {log: list(records) for log, records in run.logs.items()}
    return msgspec.msgpack.encode((*run._replace(logs=logs), target))


def close_runs(name: Name, seen: Picture, runs: Sequence[RunPicture], target: str, fence: Fence | None) -> Plan[bool]:
    """Close runs at their source and keep them in a cell for the mover; return False if anything has changed."""
    cells = (GENERATIONS, LEASE, INBOX, *(OPEN_RUN + run.run_id for run in runs))
    sight = yield from look(ReadRequest(name, cells=cells))
    conditions = check_fence(name, fence, sight)
    if sight.mark != seen.mark or value_of(sight, GENERATIONS) != seen.generations_cell:
        return False
    conditions |= {cell: value_of(sight, cell) for cell in cells if cell != LEASE}
    put: dict[str, bytes | None] = {}
    step: list[KeyUpdate] = []
    ids, closed = inbox_in(sight), {run.run_id for run in runs}
    if closed.intersection(ids):
        put[INBOX] = encode_inbox([one for one in ids if one not in closed])
    for run in runs:
        put |= {MOVING + run.run_id: _moving_value(run, target), OPEN_RUN + run.run_id: None}
        ended = encode_moved(run.run_id, run.labels.get("agent", ""), target)
        labels = {key: run.labels[key] for key in ("agent", "session") if key in run.labels}
        labels |= {"status": "cancelled", "revision": str(run.revision + 1), MOVED: "1"}
        now, stored = yield from _run_as_stored(run.run_id)
        if now is None or now.stored_head != run.stored_head:
            return False
        step.append(
            KeyUpdate(
                Name("run", run.run_id),
                cells=stored,
                sweep=(LOG,),
                put={HEAD: b"%d|" % (run.revision + 1) + ended, LENGTHS: b"{}", SIGNALS: None},
                touch=True,
                labels=labels,
            )
        )
    got = yield from commit([KeyUpdate(name, mark=seen.mark, cells=conditions, put=put), *step])
    return isinstance(got, Done)


def forget_moved(name: Name, runs: Sequence[MovingRun]) -> Plan[None]:
    """Remove from the source the cells of runs that have arrived at the target."""
    tokens = {run.run.token for run in runs}

    def decide(sight: ReadAnswer) -> Decision[None]:
        there = [MOVING + one.run.run_id for one in moving_in(sight) if one.run.token in tokens]
        conditions = {cell: value_of(sight, cell) for cell in there}
        return None, [KeyUpdate(name, cells=conditions, put=dict.fromkeys(conditions))] if conditions else []

    yield from until_done(ReadRequest(name, prefixes=(MOVING,), mark=False), decide)


def brought_tokens(name: Name) -> Plan[set[str]]:
    """Return the tokens of moves that have brought a run to this session; kept by a clear."""
    sight = yield from look(ReadRequest(name, prefixes=(BROUGHT,), mark=False))
    return {decode_cell(cell, found.value, bytes.decode) for cell, found in sight.cells.items()}
