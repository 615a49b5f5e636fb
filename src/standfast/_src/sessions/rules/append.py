"""What each writer has written: exactly-once append and exact rewind (B1, B5).

A writer has one cell on the session: how many items it has written, and the digests of the latest. Older digests are
in cells of their own, a fixed number each, so that an append writes what is new and not all that came before. Cells of
an earlier incarnation of the session still tell the count, and nothing else: what is below it is taken for a repeat. A
count ends with the session's expiry. A lease may keep its cell for longer: then whoever goes on at that number may (a
run that is under way), and whoever begins with number 0 begins anew.
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
    """`total` items were accepted; digests are known from number `base` on: `chunks` full cells, then `latest`."""

    total: int = 0
    base: int = 0
    chunks: int = 0
    latest: bytes = b""

    @property
    def start(self) -> int:
        """The number of the first digest in `latest`."""
        return self.base + CHUNK * self.chunks

    def value(self) -> bytes:
        """What the writer's cell holds."""
        return _counts_of(self.total, self.base, self.chunks) + self.latest


_NOTHING_WRITTEN = Written()


def parse_writer_cell(cell: Cell | None) -> Written:
    """What a writer's cell says."""
    if cell is None:
        return _NOTHING_WRITTEN
    return _parse_writer_value(cell.value, cell.alive)


def _parse_writer_value(value: bytes, is_alive: bool) -> Written:
    """What the value of a writer's cell says; `is_alive`: as `Cell.alive`."""
    try:
        total, base, chunks = _counts_in(value)
    except struct.error:
        decode_cell(WRITER, value, _counts_in)  # says so; not asked at first, because every append comes through here
        raise
    return Written(total, base, chunks, value[_COUNTS_BYTES:]) if is_alive else Written(total, total)


def count_alone(cell: Cell) -> bytes:
    """What a clear leaves of a writer's cell (A12); all of it, if it is sealed and this is asked without the key."""
    if cell.value.startswith(SEALED):
        return cell.value
    total = parse_writer_cell(cell).total
    return Written(total, total).value()


def _parse_written_for(batch: AppendBatch, cell: Cell | None) -> Written:
    """What a writer has written, as far as it matters to a batch: nothing, if that has expired and this begins anew."""
    return Written() if cell is not None and cell.expired and batch.start == 0 else parse_writer_cell(cell)


def chunk_cell(writer: str, number: int) -> str:
    """The cell of a writer's older digests. The number comes first: a writer's name may hold anything."""
    return f"{DIGESTS}{number}/{writer}"


def grown(writer: str, known: Written, digests: bytes) -> dict[str, bytes]:
    """The cells that a writer has after these: its own, and those of older digests that have become full."""
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
    """How many items a writer has written, and the digests of those from number `base` on, one behind the other."""

    total: int
    base: int
    digests: bytes

    def cells(self, writer: str) -> dict[str, bytes]:
        """The cells that this is kept in."""
        return grown(writer, Written(self.base, self.base), self.digests)

    def cut(self, to: int) -> AllWritten:
        """The same with only `to` items."""
        known = self.digests[: max(0, to - self.base) * DIGEST_BYTES]
        return AllWritten(min(to, self.total), min(to, self.base), known)


def all_written(sight: ReadAnswer) -> dict[str, AllWritten]:
    """What each writer has written whose cell was looked at, with all cells of older digests."""
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
    """What one append brings: encoded items as a writer's numbers `start` and on, and what each is known by."""

    writer: str
    start: int
    encoded: Sequence[bytes]
    digests: Sequence[bytes]
    expect: Head | None = None


class Append(msgspec.Struct, frozen=True, gc=False):
    """Makes the plan of `append`. Whoever knows the writer's cell may ask `plain_append` first, and need no plan."""

    name: Name
    batch: AppendBatch

    def __call__(self) -> Plan[Head]:
        """The plan, from its start."""
        return append(self.name, self.batch)


def plain_append(batch: AppendBatch, value: bytes | None = None, is_alive: bool = True) -> dict[str, bytes] | None:
    """What a writer's cells become by a batch that begins where it has ended, and expects no head: nearly always.

    `value` is what its own cell holds (None: there is none), `is_alive` as `Cell.alive`; not for one that has expired.
    All items of the batch are to be stored then, and nothing is to be compared. None for every other batch:
    `plan_append` says what becomes of it.
    """
    known = _NOTHING_WRITTEN if value is None else _parse_writer_value(value, is_alive)
    if batch.start != known.total or batch.expect is not None or not batch.encoded:
        return None
    return grown(batch.writer, known, b"".join(batch.digests))


def append(name: Name, batch: AppendBatch) -> Plan[Head]:
    """Append what this writer has not appended yet; see `CanAppend.append` (B1, B2). Under a lease: `record`."""
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
        if change is None:  # a repeat after a lost acknowledgement: whatever was expected then has come true
            return (yield from head(name))
        got = yield [change]
        if isinstance(got, Done):
            return Head(got.marks[0])


def plan_append(name: Name, batch: AppendBatch, sight: ReadAnswer) -> Plan[KeyUpdate | None]:
    """The change that stores what is new of a batch; None if nothing is. Refuses what B1 and B2 refuse."""
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
    """The change that stores a batch which begins where its writer has ended; None if it holds nothing."""
    if not batch.encoded:
        return None
    writer, expect = batch.writer, batch.expect
    if expect is not None:
        check_head(name, expect, sight)
    put = grown(writer, known, b"".join(batch.digests))
    return _build_push(name, batch, sight.cells.get(WRITER + writer), put)


def _build_push(name: Name, batch: AppendBatch, found: Cell | None, put: dict[str, bytes]) -> KeyUpdate:
    """The change that stores a whole batch, and these cells of its writer, whose own was found like that."""
    return KeyUpdate(
        name,
        mark=None if batch.expect is None else batch.expect.value,
        cells={WRITER + batch.writer: None if found is None else found.value},
        push=NewRows(batch.encoded, batch.writer, batch.start),
        put=put,
        touch=True,
    )


def _check_digests(name: Name, batch: AppendBatch, known: Written) -> Plan[None]:
    """Refuse a batch that says something else than what this writer has already said under the same numbers."""
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
    """How many items a writer has written (B1)."""
    sight = yield from look(ReadRequest(name, cells=(WRITER + writer,), mark=False))
    return parse_writer_cell(sight.cells.get(WRITER + writer)).total


def written(name: Name, writer: str, report: Report) -> Plan[list[Item]]:
    """A writer's items that are still kept, in order, those in a kept generation included (B1)."""
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
    """The items among a writer's rows, with their numbers; what is no item is reported."""
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
    """Refuse to take back what a run wrote that has not ended: it goes on behind that, and could never store again.

    Nor could anybody settle it, so every later run of the session would fail. Storing what was taken back once more
    with its next turn was rejected: whoever took it back would find it there again.
    """
    for run in open_runs_in(sight):
        if run.status not in ENDED:
            raise RunStateError(
                f"run {run.run_id!r} has not ended ({run.status}) and goes on behind what would be taken back",
                "Resume it, or give it up with Runner.cancel_run(...) or `standfast runs cancel` (hang up, if it is a "
                "voice call); then take it back.",
            )


def _find_rewound_rows(name: Name, rows: Sequence[Row], boxes: Boxes, writer: str, to: int) -> Sequence[Row]:
    """The rows a rewind removes; refuses if something else stands in or behind them.

    The whole history is looked at, not only its end: a number that was rewound and written again may stand in a
    restored generation as well, far from the tail.
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
            f"a corrupt record stands among or behind items of writer {writer!r}",
            "Look at corrupt_records() and repair or clear the session first.",
        )
    return behind


# --- undoing a pop ---------------------------------------------------------------------------------------------------


def put_back(name: Name, lane: IdempotencySlot | None, popped: Popped | None) -> Plan[None]:
    """Undo a pop: the same place in the order, and not into a session that was cleared meanwhile (A13).

    Nor if its writer was taken back behind it meanwhile, and has perhaps written another item under that number (B5).
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
    """A writer's rows by their numbers."""
    return {row.tag.ordinal: row for row in rows if row.tag is not None and row.tag.writer == writer}
