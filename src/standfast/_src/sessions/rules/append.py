"""Exactly-once append and exact rewind, from a count and digests of each writer's items (B1, B5).

A writer has one cell on the session: its item count, and the digests of the latest items. Older digests are in cells of
their own, a fixed number each, so that an append writes only what is new. Cells of an earlier incarnation of the
session keep the count alone: every item below it counts as a repeat. A count ends with the session's expiry. A lease
may keep its cell for longer: then a run under way may continue at that number, and an append from number 0 starts over.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from standfast._src.base.errors import (
    AppendGapError,
    CorruptRecordError,
    NotFoundError,
    RunStateError,
    SessionConflictError,
)
from standfast._src.base.json_values import DIGEST_BYTES, CorruptJSON, Item, decode_many
from standfast._src.runs.engine.codec import ENDED
from standfast._src.sessions.protocol import Head
from standfast._src.sessions.rules.generations import Boxes, read_with_generations
from standfast._src.sessions.rules.history import (
    DIGESTS,
    GENERATIONS,
    OPEN_RUN,
    SEALED,
    WRITER,
    Decision,
    IdempotencySlot,
    Popped,
    Report,
    check_head,
    decode_cell,
    faulty,
    head,
    items_of,
    look,
    until_done,
    value_of,
)
from standfast._src.sessions.rules.leases import open_runs_in
from standfast._src.sessions.storage import (
    Cell,
    Done,
    KeyUpdate,
    Name,
    NewRows,
    Plan,
    ReadAnswer,
    ReadRequest,
    Row,
    Rows,
    Tag,
)

CHUNK = 32
# Digests kept in the writer's own cell, and in each older one: half a kilobyte to rewrite, at most, for an append.

_CHUNK_BYTES = CHUNK * DIGEST_BYTES
_COUNTS = struct.Struct("!QQI")
_counts_in, _counts_of, _COUNTS_BYTES = _COUNTS.unpack_from, _COUNTS.pack, _COUNTS.size


class Written(msgspec.Struct, frozen=True, gc=False):
    """Parsed cell of a writer: `total` accepted items; digests from number `base` on, in `chunks` full cells and
    `latest`.
    """

    total: int = 0
    base: int = 0
    chunks: int = 0
    latest: bytes = b""

    @property
    def start(self) -> int:
        """The number of the first digest in `latest`."""
        return self.base + CHUNK * self.chunks

    def value(self) -> bytes:
        """Encode the writer's cell."""
        return _counts_of(self.total, self.base, self.chunks) + self.latest


_NOTHING_WRITTEN = Written()


def parse_writer_cell(cell: Cell | None) -> Written:
    """Parse a writer's cell."""
    if cell is None:
        return _NOTHING_WRITTEN
    return _parse_writer_value(cell.value, cell.alive)


def _parse_writer_value(value: bytes, is_alive: bool) -> Written:
    """Parse the value of a writer's cell; `is_alive`: as `Cell.alive`."""
    try:
        total, base, chunks = _counts_in(value)
    except struct.error:
        decode_cell(WRITER, value, _counts_in)  # says so; not asked at first, because every append comes through here
        raise
    return Written(total, base, chunks, value[_COUNTS_BYTES:]) if is_alive else Written(total, total)


def count_alone(cell: Cell) -> bytes:
    """Reduce a writer's cell to its count for a clear (A12). A sealed cell stays whole: this has no key."""
    if cell.value.startswith(SEALED):
        return cell.value
    total = parse_writer_cell(cell).total
    return Written(total, total).value()


def _parse_written_for(batch: AppendBatch, cell: Cell | None) -> Written:
    """Parse a writer's cell for a batch: an expired cell counts as empty if the batch begins at 0."""
    return Written() if cell is not None and cell.expired and batch.start == 0 else parse_writer_cell(cell)


def chunk_cell(writer: str, number: int) -> str:
    """Return the cell name of a writer's older digests. The number comes first, as a writer's name may contain
    anything.
    """
    return f"{DIGESTS}{number}/{writer}"


def grown(writer: str, known: Written, digests: bytes) -> dict[str, bytes]:
    """Return the cells of a writer after more digests: its own, and those of older digests that have become full."""
    data, chunks, total = known.latest + digests, known.chunks, known.total + len(digests) // DIGEST_BYTES
    put: dict[str, bytes] = {}
    if len(data) > _CHUNK_BYTES:  # the latest stay in the writer's own cell
        full = (len(data) - 1) // _CHUNK_BYTES
        for number in range(full):
            put[chunk_cell(writer, chunks + number)] = data[number * _CHUNK_BYTES : (number + 1) * _CHUNK_BYTES]
        chunks, data = chunks + full, data[full * _CHUNK_BYTES :]
    put[WRITER + writer] = _counts_of(total, known.base, chunks) + data
    return put


class AllWritten(NamedTuple):
    """Item count of a writer, and the concatenated digests from number `base` on."""

    total: int
    base: int
    digests: bytes

    def cells(self, writer: str) -> dict[str, bytes]:
        """Encode the writer's cells."""
        return grown(writer, Written(self.base, self.base), self.digests)

    def cut(self, to: int) -> AllWritten:
        """Return a copy reduced to `to` items."""
        known = self.digests[: max(0, to - self.base) * DIGEST_BYTES]
        return AllWritten(min(to, self.total), min(to, self.base), known)


def all_written(sight: ReadAnswer) -> dict[str, AllWritten]:
    """Collect the counts and digests of every writer in a read with all cells of older digests."""
    found: dict[str, AllWritten] = {}
    for cell, value in sorted(sight.cells.items()):
        if cell.startswith(WRITER) and not value.expired:
            writer, known = cell[len(WRITER) :], parse_writer_cell(value)
            chunks = [value_of(sight, chunk_cell(writer, number)) for number in range(known.chunks)]
            # A clear, met between a look and its step, can take older digests away: of those only the count is left.
            gone = max((number for number, chunk in enumerate(chunks, 1) if chunk is None), default=0)
            older = b"".join([chunk or b"" for chunk in chunks[gone:]])
            found[writer] = AllWritten(known.total, known.base + CHUNK * gone, older + known.latest)
    return found


# --- append ----------------------------------------------------------------------------------------------------------


class AppendBatch(msgspec.Struct, frozen=True, gc=False):
    """Arguments of one append: encoded items from a writer's number `start` on, and the digest of each."""

    writer: str
    start: int
    encoded: Sequence[bytes]
    digests: Sequence[bytes]
    expect: Head | None = None


class Append(msgspec.Struct, frozen=True, gc=False):
    """Makes the plan of `append`. A store that knows the writer's cell may call `plain_append` first, without a
    plan.
    """

    name: Name
    batch: AppendBatch

    def __call__(self) -> Plan[Head]:
        """Return a new plan."""
        return append(self.name, self.batch)


def plain_append(batch: AppendBatch, value: bytes | None = None, is_alive: bool = True) -> dict[str, bytes] | None:
    """Return a writer's cells after a batch that begins at its count and expects no head: the usual case.

    `value` is the writer's own cell (None: absent), `is_alive` as `Cell.alive`; not for an expired cell. All items of
    the batch are then to be stored, without a comparison. Returns None for every other batch: `plan_append` decides it.
    """
    known = _NOTHING_WRITTEN if value is None else _parse_writer_value(value, is_alive)
    if batch.start != known.total or batch.expect is not None or not batch.encoded:
        return None
    return grown(batch.writer, known, b"".join(batch.digests))


def append(name: Name, batch: AppendBatch) -> Plan[Head]:
    """Append the part of a batch that this writer has not appended yet; see `CanAppend.append` (B1, B2). Under a lease:
    `record`.
    """
    asked = ReadRequest(name, cells=(WRITER + batch.writer,), mark=batch.expect is not None)
    while True:
        sight = yield asked  # without the helpers of other plans: nothing is done as often as this
        assert isinstance(sight, ReadAnswer)
        found = sight.cells.get(asked.cells[0])
        put = None
        if found is None:
            put = plain_append(batch)
        elif not found.expired:
            put = plain_append(batch, found.value, found.alive)
        if put is None:
            change = yield from plan_append(name, batch, sight)
        else:
            change = _build_push(name, batch, found, put)
        if change is None:  # a repeat after a lost acknowledgement: the head expected then was the right one
            return (yield from head(name))
        got = yield [change]
        if isinstance(got, Done):
            return Head(got.marks[0])


def plan_append(name: Name, batch: AppendBatch, sight: ReadAnswer) -> Plan[KeyUpdate | None]:
    """Return the change that stores the new part of a batch; None for a pure repeat. Raises where B1 and B2 refuse."""
    cell, start, encoded, digests = WRITER + batch.writer, batch.start, batch.encoded, batch.digests
    known = _parse_written_for(batch, sight.cells.get(cell))
    total = known.total
    if not 0 <= start <= total:
        raise AppendGapError(
            f"writer {batch.writer!r} has written {total} items and this batch starts at {start}",
            f"Append from {total} on, or from an earlier number with the same items.",
        )
    if start < total:
        yield from _check_digests(name, batch, known)
        encoded, digests = encoded[total - start :], digests[total - start :]
        if encoded and batch.expect is None:
            # A part of it is skipped, by what was seen: that may be a guess, or over when this is stored. The value of
            # a count does not tell whether it has expired; where the history ends does, which has then expired too.
            sight = yield from look(ReadRequest(name, cells=(cell,)))
            seen = msgspec.structs.replace(batch, expect=Head(sight.mark))
            return (yield from plan_append(name, seen, sight))
        batch = AppendBatch(batch.writer, total, encoded, digests, batch.expect)
    return _build_append(name, batch, sight, known)


def _build_append(name: Name, batch: AppendBatch, sight: ReadAnswer, known: Written) -> KeyUpdate | None:
    """Build the change for a batch that begins at the writer's count; None for an empty batch."""
    if not batch.encoded:
        return None
    writer, expect = batch.writer, batch.expect
    if expect is not None:
        check_head(name, expect, sight)
    put = grown(writer, known, b"".join(batch.digests))
    return _build_push(name, batch, sight.cells.get(WRITER + writer), put)


def _build_push(name: Name, batch: AppendBatch, found: Cell | None, put: dict[str, bytes]) -> KeyUpdate:
    """Build the change that stores a whole batch and the given writer cells; `found` is the writer's own cell as
    read.
    """
    return KeyUpdate(
        name,
        mark=None if batch.expect is None else batch.expect.value,
        cells={WRITER + batch.writer: None if found is None else found.value},
        push=NewRows(batch.encoded, batch.writer, batch.start),
        put=put,
        touch=True,
    )


def _check_digests(name: Name, batch: AppendBatch, known: Written) -> Plan[None]:
    """Refuse a batch whose items differ from those stored under the same numbers."""
    repeated = batch.digests[: known.total - batch.start]
    first, end = (max(0, number - known.base) for number in (batch.start, batch.start + len(repeated) + CHUNK - 1))
    cells = {chunk_cell(batch.writer, n): n for n in range(first // CHUNK, min(end // CHUNK, known.chunks))}
    parts = {known.start: known.latest}
    if cells:
        sight = yield from look(ReadRequest(name, cells=tuple(cells), mark=False))
        parts |= {known.base + CHUNK * cells[cell]: found.value for cell, found in sight.cells.items() if found.alive}
    stored: dict[int, bytes] = {}  # where only the count is left, nothing
    for start, data in parts.items():
        stored |= {start + at // DIGEST_BYTES: data[at : at + DIGEST_BYTES] for at in range(0, len(data), DIGEST_BYTES)}
    for ordinal, given in enumerate(repeated, batch.start):
        if stored.get(ordinal, given) != given:
            raise SessionConflictError(
                f"writer {batch.writer!r} has already written another item number {ordinal}",
                "Use a new writer name for a new history, or rewind first.",
            )


def accepted(name: Name, writer: str) -> Plan[int]:
    """Return how many items a writer has written (B1)."""
    sight = yield from look(ReadRequest(name, cells=(WRITER + writer,), mark=False))
    return parse_writer_cell(sight.cells.get(WRITER + writer)).total


def written(name: Name, writer: str, report: Report) -> Plan[list[Item]]:
    """Return a writer's stored items in order, including those in a kept generation (B1)."""
    sight, boxes = yield from read_with_generations(
        name, cells=(WRITER + writer,), live=Rows(writer=writer), writer=writer
    )
    total = parse_writer_cell(sight.cells.get(WRITER + writer)).total
    kept = (*boxes.values(), sight.rows[0])
    found: dict[int, Item] = {}  # the last of several under one number
    for rows in kept:
        found.update(_decode_numbered(rows, report))
    return [found[ordinal] for ordinal in sorted(found) if ordinal < total]


def _decode_numbered(rows: Sequence[Row], report: Report) -> Iterable[tuple[int, Item]]:
    """Decode a writer's rows into numbered items; report corrupt rows."""
    numbers: list[int] = []
    data: list[bytes] = []
    for row in rows:  # not `items_of`: ten thousand rows that stay until they are decoded take a third of the time
        if row.tag is not None:
            numbers.append(row.tag.ordinal)
            data.append(row.data)
    try:
        return zip(numbers, decode_many(data), strict=True)
    except CorruptJSON:
        return [(row.tag.ordinal, item) for row, item in items_of(rows, report) if row.tag is not None]


# --- rewind ----------------------------------------------------------------------------------------------------------


def rewind(name: Name, writer: str, to: int, expect: Head | None, lane: IdempotencySlot | None) -> Plan[Head]:
    """Remove a writer's items from number `to` on, if they are the whole tail (B5)."""
    cell, run_cell = WRITER + writer, OPEN_RUN + writer

    def decide(sight: ReadAnswer) -> Plan[Decision[None]]:
        known = parse_writer_cell(sight.cells.get(cell))
        if not 0 <= to <= known.total:
            raise NotFoundError(
                f"writer {writer!r} has written {known.total} items and cannot go back to {to}",
                f"Give a number from 0 to {known.total}.",
            )
        if to == known.total:  # also what a repeat finds
            return None, []
        _check_run(sight)
        check_head(name, expect, sight)
        seen, boxes = yield from read_with_generations(
            name, cells=(cell,), prefixes=(DIGESTS,), writer=writer, first=sight
        )
        leaving = _find_rewound_rows(name, seen.rows[0], boxes, writer, to)
        now = all_written(seen).get(writer, AllWritten(known.total, known.total, b"")).cut(to).cells(writer)
        change = KeyUpdate(
            name,
            mark=sight.mark,
            cells={cell: value_of(sight, cell), run_cell: value_of(sight, run_cell)},
            drop=[row.ref for row in leaving],
            put={own: value for own, value in now.items() if value != value_of(seen, own)},
            touch=bool(leaving),
        )
        return None, [change]

    return (yield from until_done(ReadRequest(name, (GENERATIONS, cell, run_cell), times=True), decide, lane))[1]


def _check_run(sight: ReadAnswer) -> None:
    """Refuse to rewind a run that has not ended: it continues behind the removed items, and could never store again.

    No operator could settle such a run either, so every later run of the session would fail. Storing the removed items
    again with its next turn was rejected: they would reappear after the rewind.
    """
    for run in open_runs_in(sight):
        if run.status not in ENDED:
            raise RunStateError(
                f"run {run.run_id!r} has not ended ({run.status}) and goes on behind what would be taken back",
                "Resume it, or give it up with Runner.cancel_run(...) or `standfast runs cancel` (hang up, if it is a "
                "voice call); then take it back.",
            )


def _find_rewound_rows(name: Name, rows: Sequence[Row], boxes: Boxes, writer: str, to: int) -> Sequence[Row]:
    """Return the rows removed by a rewind; refuse if other rows are among or behind them.

    The whole history is searched, not only its end: a number that was rewound and written again may also be in a
    restored generation, far from the tail.
    """

    def leaves(row: Row) -> bool:
        return row.tag is not None and row.tag.writer == writer and row.tag.ordinal >= to

    first = next((place for place, row in enumerate(rows) if leaves(row)), len(rows))
    behind, faults = rows[first:], faulty(rows[first:])
    live = rows_by_number(behind, writer)
    compacted = any(leaves(row) and row.tag and row.tag.ordinal not in live for box in boxes.values() for row in box)
    if compacted or not all(leaves(row) or row.ref in faults for row in behind):
        raise SessionConflictError(
            f"items of writer {writer!r} from number {to} on are not the whole tail of session {name.id!r}",
            "Something was written behind them or they were compacted; leave them, or restore first.",
        )
    if faults:
        raise CorruptRecordError(
            f"a corrupt record is among or behind items of writer {writer!r}",
            "Look at corrupt_records() and repair or clear the session first.",
        )
    return behind


# --- undoing a pop ---------------------------------------------------------------------------------------------------


def put_back(name: Name, lane: IdempotencySlot | None, popped: Popped | None) -> Plan[None]:
    """Compensate a pop: restore the row at its place, unless the session was cleared meanwhile (A13).

    Not if its writer was rewound behind that number meanwhile, and may have written another item under it (B5).
    """
    if popped is None:
        return
    row, (writer, ordinal, _) = popped.row, popped.row.tag or Tag()
    written = (WRITER + writer,) if writer else ()

    def decide(sight: ReadAnswer) -> Decision[None]:
        if not popped.is_of(sight):
            return None, []
        cells = {cell: value_of(sight, cell) for cell in (GENERATIONS, *written)}
        is_arranged = cells[GENERATIONS] != value_of(popped.sight, GENERATIONS)
        for cell in written:
            counted, now = sight.cells.get(cell), rows_by_number(sight.rows[0], writer).get(ordinal)
            if counted is not None and ordinal >= parse_writer_cell(counted).total:
                return None, []
            if now is not None and now.ref > row.ref and not is_arranged:
                return None, []
        if not is_arranged:
            return None, [KeyUpdate(name, mark=sight.mark, cells=cells, back=[row])]
        # every row has another ref now, and what stood before it is in front of it only at the end
        return None, [KeyUpdate(name, mark=sight.mark, cells=cells, push=[(row.data, row.tagged())])]

    rows = (Rows(writer=writer),) if writer else ()
    yield from until_done(ReadRequest(name, (GENERATIONS, *written), rows=rows, times=True), decide, lane)


def rows_by_number(rows: Iterable[Row], writer: str) -> dict[int, Row]:
    """Return a writer's rows by their numbers."""
    return {row.tag.ordinal: row for row in rows if row.tag is not None and row.tag.writer == writer}
