"""Rules of a history: read, add, pop and clear, each written once for every store.

Every plan reads, decides on what it read, and then asks for one step whose conditions repeat what it read. A refused
step means a concurrent write: the plan reads and decides again. So it never matters whether a plan runs in one
transaction or in round trips between other writes, and it refuses before it writes.

A record is an item if Python's `json` reads it as an object (A14). Only the rules decide that, never a store: corrupt
records are left in place.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import msgspec

from standfast._src.base.digits import whole_number
from standfast._src.base.errors import CorruptRecordError, NotFoundError, SessionConflictError
from standfast._src.base.json_values import CorruptJSON, Item, are_items, decode, decode_many
from standfast._src.sessions.protocol import CorruptRecord, Head, Page, SessionInfo, SessionPage
from standfast._src.sessions.storage import (
    Cell,
    CommitRequest,
    Count,
    Done,
    KeyUpdate,
    Kind,
    Listed,
    Listing,
    Name,
    NewRows,
    Plan,
    Range,
    ReadAnswer,
    ReadRequest,
    Refused,
    Row,
    Rows,
)

T = TypeVar("T")

# The cells of a session, all of them here: what two rules kept below one beginning, each would take for its own.
GENERATIONS = "gens"
LEASE = "lease"
OPEN_RUN = "r/"
WRITER = "w/"
DIGESTS = "d/"
LANE = "l/"
ORIGIN = "origin"
USAGE = "u/"
IMPORTED = "imported"
MOVING = "m/"
BROUGHT = "b/"
REPAIR = "x/"
"""Prefix of the cell of a repair in force; the cell holds the repair's number among those of its session."""
BUDGET = "budget/"
"""Prefix of the cells of a budget, which are on a name of their own (F10)."""
INBOX = "inbox"
"""Ids of the session's waiting messages, in the order of sending (F1)."""
MESSAGE = "q/"
"""Prefix of the cell of a message: content digest and end (F1)."""
BRANCHES = "branches"
"""Branches of an AdvancedSQLiteSession."""

CELLS = (GENERATIONS, LEASE, ORIGIN, IMPORTED, BRANCHES, INBOX)
"""Cells that exist once in a session."""
FAMILIES = (OPEN_RUN, WRITER, DIGESTS, LANE, USAGE, MOVING, BROUGHT, REPAIR, MESSAGE)
"""Prefixes of the names of all other cells of a session."""

SEALED = b"\x02sealed\x00"
"""First bytes of a cell of an encrypted session, as read without the key."""

SEALED_ROW = b'{"__enc__":'
"""First bytes of an encrypted row, as read without the key; also of one that the OpenAI Agents SDK has encrypted."""

UNOPENED = b"\x00unopened\x00"
"""First bytes of the substitute for a row that could not be opened: not JSON, so the rules skip and keep it (A14)."""

KEPT_BY_CLEAR = (WRITER, LEASE, LANE, OPEN_RUN, BROUGHT, MESSAGE)
# A count must outlive a clear, or a late repeat would bring back what was cleared; so must the fencing number (A12).
# Which runs were moved here must outlive it too, or repeating that move would bring one back that has acted since.
# So must what is known of messages: one that waits goes with the history, and a late repeat must not bring it back.
# Which runs are open is decided for each, so that one that was saved a moment ago is not forgotten unseen.

NOT_A_VALUE = (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError, struct.error)
"""Errors that decoding raises for unexpected bytes."""

LATEST_S = 253402300799.0
"""The end of the year 9999: behind it Python has no time."""

Report = Callable[[Row, str], None]
"""Receives each corrupt record that is left out of a history."""

WINDOW = 16
# The least by which a look is widened that has found too few items among records that are none: it grows four times as
# wide each time, so that a history full of broken records costs a few looks and not one for each of them.

COUNTS_AT_ONCE = 256
# How many writers a clear leaves with their count alone in the step that clears; the rest follow, if there are more.
# A step with thousands of conditions took PostgreSQL seconds.

EVERY_AT_ONCE, EVERY_LOOKS_MAX = 256, 8
# How many names of a listing are read at once where all of them are, and how often those that came meanwhile.


# --- asking ----------------------------------------------------------------------------------------------------------


def look(question: ReadRequest) -> Plan[ReadAnswer]:
    """Yield a read request and return its answer."""
    sight = yield question
    assert isinstance(sight, ReadAnswer)
    return sight


def commit(step: CommitRequest) -> Plan[Done | Refused]:
    """Yield a step and return its outcome."""
    got = yield step
    assert isinstance(got, Done | Refused)
    return got


def listing(kind: Kind, after: str | None, limit: int, labels: Mapping[str, str]) -> Plan[Sequence[Listed]]:
    """Yield a listing request and return its answer."""
    found = yield Listing(kind, after, limit, labels)
    assert not isinstance(found, ReadAnswer | Done | Refused | int)
    return found


def every(kind: Kind, labels: Mapping[str, str]) -> Plan[list[Listed]]:
    """Return every name of a kind with these labels, newest change first, each once.

    A page is one instant, several are not: a name that changes before its page is read moves to the front of the
    listing, past the cursor, and is in no page. So the front is read again until it has no unseen name; not for ever,
    because where new names keep arriving there is always one more.
    """
    found: dict[str, Listed] = {}
    for _ in range(EVERY_LOOKS_MAX):
        front: dict[str, Listed] = {}
        after: str | None = None
        while True:
            some = yield from listing(kind, after, EVERY_AT_ONCE, labels)
            front |= {one.id: one for one in some}
            if len(some) < EVERY_AT_ONCE or all(found.get(one.id) == one for one in some):
                break  # behind a page that is as it was before, everything is
            after = some[-1].cursor
        is_complete = after is None or front.keys() <= found.keys()
        found = front | {id_: one for id_, one in found.items() if id_ not in front}
        if is_complete:
            break
    return list(found.values())


# --- repeats ---------------------------------------------------------------------------------------------------------


class IdempotencySlot(msgspec.Struct, frozen=True, gc=False):
    """Identifies a change after a lost answer: a cell, and the token that the change writes there.

    A slot is used by one change at a time. Stores that cannot lose an answer get none, and pay nothing.
    """

    cell: str
    token: bytes


def find_note(lane: IdempotencySlot | None, sight: ReadAnswer) -> bytes | None:
    """Return the note next to this change's token, if the change was committed before; otherwise None."""
    if lane is None:
        return None
    cell = sight.cells.get(lane.cell)
    return cell.value[len(lane.token) :] if cell is not None and cell.value.startswith(lane.token) else None


def once(lane: IdempotencySlot | None, sight: ReadAnswer, change: KeyUpdate, note: bytes = b"") -> KeyUpdate:
    """Add a slot's token and condition to a change, so that it is committed once."""
    if lane is None:
        return change
    found = sight.cells.get(lane.cell)
    cells = {**change.cells, lane.cell: None if found is None else found.value}
    return msgspec.structs.replace(change, cells=cells, put={**change.put, lane.cell: lane.token + note})


def value_of(sight: ReadAnswer, cell: str) -> bytes | None:
    """Return the value of a cell in a read; None if absent."""
    found = sight.cells.get(cell)
    return None if found is None else found.value


def decode_cell(cell: str, value: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode a cell's value. Raises CorruptRecordError, which names the cell, for a value that no rule has written."""
    try:
        return decode(value)
    except NOT_A_VALUE as error:
        raise CorruptRecordError(
            f"what is kept in cell {cell[:80]!r} cannot be read: it was damaged ({type(error).__name__})",
            "`standfast doctor` says in which session. Restore the store from a backup, or remove that cell.",
        ) from error


def time_in(value: object) -> float:
    """Return a time of a cell that `as_time` can show; raises ValueError for anything else."""
    if type(value) not in (int, float) or not 0 <= value <= LATEST_S:  # type: ignore[operator]  # a number, by then
        raise ValueError(f"{value!r} is no time")
    return float(value)  # type: ignore[arg-type]


Decision = tuple[T, CommitRequest]
"""A rule's decision on a read: its result, and the step that must be committed for it (empty: nothing)."""


def until_done(
    asked: ReadRequest,
    decide: Callable[[ReadAnswer], Decision[T] | Plan[Decision[T]]],
    lane: IdempotencySlot | None = None,
) -> Plan[tuple[T, Head]]:
    """Read, decide and commit until a step succeeds; return the decision's result and the head.

    A decision that reads further is a plan itself. In its slot each attempt leaves its number: an attempt that was
    committed, though its answer was lost, is recognized by it, and its result is returned.
    """
    if lane is not None:
        asked = msgspec.structs.replace(asked, cells=(*asked.cells, lane.cell))
    tried: Any = {}
    while True:
        sight = yield from look(asked)
        note = find_note(lane, sight)
        if note is not None:
            return tried.get(note), Head(sight.mark)  # an undo that is tried anew has nothing to tell
        made = decide(sight)
        result, step = made if isinstance(made, tuple) else (yield from made)
        if not step:
            return result, Head(sight.mark)
        note = b"%d" % len(tried)
        tried[note] = result
        got = yield from commit([once(lane, sight, step[0], note), *step[1:]])
        if isinstance(got, Done):
            return result, Head(got.marks[0])


def usage_cell(number: int, run_id: str) -> str:
    """Return the cell with the costs of a run's replies behind its first `number` (B15)."""
    return f"{USAGE}{number:08d}/{run_id}"


def usage_in_cells(sight: ReadAnswer) -> Iterator[tuple[int, str, bytes]]:
    """Yield the costs among a session's cells: reply number, run id, and the stored value."""
    for cell, found in sorted(sight.cells.items()):
        if cell.startswith(USAGE) and found.alive:
            number, _, run_id = cell[len(USAGE) :].partition("/")
            yield decode_cell(cell, number.encode(), int), run_id, found.value


# --- what is an item -------------------------------------------------------------------------------------------------


def fault_of(row: Row) -> str:
    """Return the reason why a record is not an item; "" for an item."""
    try:
        decode(row.data)
    except CorruptJSON as fault:
        return f"not a JSON object ({fault})"
    return ""


def faulty(rows: Sequence[Row]) -> dict[int, str]:
    """Return the refs of corrupt records, with the reason of each."""
    if are_items([row.data for row in rows]):  # all at once, because nearly always there is none
        return {}
    return {row.ref: fault for row in rows if (fault := fault_of(row))}


def items_of(rows: Sequence[Row], report: Report) -> list[tuple[Row, Item]]:
    """Return the rows that are items, decoded; report corrupt rows."""
    try:
        if len(rows) == 1:  # a pop: half of the time
            return [(rows[0], decode(rows[0].data))]
        return list(zip(rows, decode_many([row.data for row in rows]), strict=True))
    except CorruptJSON:
        faults = faulty(rows)
    for row in rows:
        if row.ref in faults:
            report(row, faults[row.ref])
    return [(row, decode(row.data)) for row in rows if row.ref not in faults]


def ignore_fault(row: Row, fault: str) -> None:
    """Ignore a corrupt record: a `Report` for a second reader of a history whose faults are already reported."""


def ranges(box: int, rows: Sequence[Row], wanted: Callable[[Row], bool], replaces: int | None = None) -> list[Range]:
    """Return the wanted rows of a box as few ranges."""
    found: list[Range] = []
    before: int | None = None
    after, upto = before, before  # of the range that is being made
    for row in rows:
        if wanted(row):
            after, upto = before if upto is None else after, row.ref
        elif upto is not None:
            found.append(Range(box, after, upto, replaces))
            upto = None
        before = row.ref
    return found if upto is None else [*found, Range(box, after, upto, replaces)]


# --- reading ---------------------------------------------------------------------------------------------------------


def get_items(name: Name, limit: int | None, report: Report) -> Plan[list[Item]]:
    """Return all items, or the latest `limit` (A1, A2)."""
    if limit == 0:
        return []
    sight = yield ReadRequest(name, rows=(Rows(limit=limit),), only_data=True, mark=False)
    assert isinstance(sight, ReadAnswer)
    try:
        return decode_many(sight.data)
    except CorruptJSON:
        found, _ = yield from latest(name, None, limit, report)
        return [item for _, item in found]


def latest(
    name: Name, before: int | None, limit: int | None, report: Report
) -> Plan[tuple[list[tuple[Row, Item]], ReadAnswer]]:
    """Return the latest `limit` items with a ref below `before`, skipping any number of corrupt records; one
    instant.
    """
    window = None if limit is None else limit
    while True:
        sight = yield from look(ReadRequest(name, rows=(Rows(before=before, limit=window, tags=False),)))
        rows = sight.rows[0]
        found = items_of(rows, report)
        if limit is None or window is None or len(found) >= limit or len(rows) < window:
            return found if limit is None else found[max(0, len(found) - limit) :], sight
        window = window * 4 + WINDOW


def page(name: Name, before: str | None, limit: int, report: Report) -> Plan[Page]:
    """Return the `limit` items before a cursor, and the cursor of the page before them (B8)."""
    end = None if before is None else _cursor(before)
    found, sight = yield from latest(name, end, limit + 1, report)  # one more tells whether there is another page
    if end is not None and not found and sight.mark:
        # A cursor is given out only where there is more before it, and refs are never used again. So if now there is
        # nothing before it and yet a history, every row is another: this page would not be its beginning.
        there, _ = yield from latest(name, None, 1, report)
        if there:
            raise SessionConflictError(
                "the history this page belongs to was replaced or cleared", "Read again from the latest page."
            )
    if len(found) <= limit:
        return Page([item for _, item in found], None)
    shown = found[1:]
    first = shown[0][0].ref if shown else (found[0][0].ref + 1 if end is None else end)
    return Page([item for _, item in shown], str(first))


def _cursor(text: str) -> int:
    number = whole_number(text, below=2**63)
    if number is None:
        raise NotFoundError(f"{text!r} is no page cursor", "Use Page.before of an earlier page of this session.")
    return number


def head(name: Name) -> Plan[Head]:
    """Return where the history ends (B2)."""
    sight = yield from look(ReadRequest(name))
    return Head(sight.mark)


def check_head(name: Name, expected: Head | None, sight: ReadAnswer) -> None:
    """Refuse a change that expected another history (B2)."""
    if expected is not None and sight.mark != expected.value:
        raise moved(name, expected, sight)


def moved(name: Name, expected: Head, sight: ReadAnswer) -> SessionConflictError:
    """Build the error for a change that expected another history."""
    found = Head(sight.mark)
    return SessionConflictError(
        f"session {name.id!r} is at {found} and {expected} was expected",
        "Another writer changed it: reload it and try again.",
        expected=expected,
        actual=found,
    )


def info(name: Name) -> Plan[SessionInfo | None]:
    """Return the creation and change times of the session (A16)."""
    sight = yield from look(ReadRequest(name, mark=False, times=True))
    if sight.created is None or sight.updated is None:
        return None
    return SessionInfo(name.id, as_time(sight.created), as_time(sight.updated))


def as_time(seconds: float) -> datetime:
    """Convert a store's time to a public one."""
    return datetime.fromtimestamp(seconds, UTC)


def list_sessions(after: str | None, limit: int) -> Plan[SessionPage]:
    """Return sessions, newest change first (B9)."""
    found = yield from listing("session", after, limit + 1, {})
    shown = [SessionInfo(one.id, as_time(one.created), as_time(one.updated)) for one in found[:limit]]
    return SessionPage(shown, found[limit - 1].cursor if 0 < limit < len(found) else None)


def count_sessions() -> Plan[int]:
    """Return the number of sessions."""
    number = yield Count("session")
    assert isinstance(number, int)
    return number


def corrupt_records(name: Name) -> Plan[list[CorruptRecord]]:
    """Return every corrupt record, oldest first (A14)."""
    sight = yield from look(ReadRequest(name, rows=(Rows(tags=False),)))
    return _corrupt(sight.rows[0])


def _corrupt(rows: Sequence[Row]) -> list[CorruptRecord]:
    faults = faulty(rows)
    return [CorruptRecord(str(row.ref), faults[row.ref], row.data) for row in rows if row.ref in faults]


def repair(name: Name, lane: IdempotencySlot | None) -> Plan[list[CorruptRecord]]:
    """Remove the corrupt records and return them."""

    def decide(sight: ReadAnswer) -> Decision[list[CorruptRecord]]:
        removed = _corrupt(sight.rows[0])
        return removed, [
            KeyUpdate(name, mark=sight.mark, drop=[int(one.record_id) for one in removed])
        ] if removed else []

    return (yield from until_done(ReadRequest(name, rows=(Rows(tags=False),)), decide, lane))[0]


# --- adding and removing ---------------------------------------------------------------------------------------------


class Add(msgspec.Struct, frozen=True, gc=False):
    """Makes the plan of `add`. Without a slot the plan reads nothing, so a store in this process needs no plan."""

    name: Name
    encoded: Sequence[bytes]
    lane: IdempotencySlot | None

    def __call__(self) -> Plan[None]:
        """Return a new plan."""
        return add(self.name, self.encoded, self.lane)


def add(name: Name, encoded: Sequence[bytes], lane: IdempotencySlot | None) -> Plan[None]:
    """Append a batch without a writer, whole or not at all (A5). The caller skips empty batches (A7)."""
    change = KeyUpdate(name, push=NewRows(encoded), touch=True)
    while True:
        known = change
        if lane is not None:
            sight = yield ReadRequest(
                name, cells=(lane.cell,), mark=False
            )  # without `look`: few things are done as often
            assert isinstance(sight, ReadAnswer)
            if find_note(lane, sight) is not None:
                return
            known = once(lane, sight, change)
        got = yield [known]
        if isinstance(got, Done):
            return


class Popped(NamedTuple):
    """A removed row with the read that found it. The read tells later whether the row's place still exists."""

    row: Row
    sight: ReadAnswer
    item: Item

    def is_of(self, sight: ReadAnswer) -> bool:
        """Return whether the row came from this incarnation. A session written only by another program has no epoch
        yet.
        """
        then = self.sight
        is_same = sight.epoch == then.epoch if then.epoch else sight.created == then.created
        return is_same and sight.created is not None


_NEWEST = (Rows(limit=1),)


def pop(name: Name, report: Report, lane: IdempotencySlot | None) -> Plan[Popped | None]:
    """Remove the newest item; corrupt records behind it stay (A11, A14)."""
    window = 1
    tried: dict[bytes, Popped] = {}
    while True:
        cells = (GENERATIONS,) if lane is None else (GENERATIONS, lane.cell)
        wanted = _NEWEST if window == 1 else (Rows(limit=window),)
        sight = yield ReadRequest(name, cells=cells, rows=wanted, times=True)
        assert isinstance(sight, ReadAnswer)
        note = None if lane is None else find_note(lane, sight)
        if note is not None:
            return tried[note]
        rows = sight.rows[0]
        found = items_of(rows, report)
        if not found:
            if len(rows) < window:
                return None
            window = window * 4 + WINDOW
            continue
        popped = Popped(found[-1][0], sight, found[-1][1])
        change = KeyUpdate(name, mark=sight.mark, drop=[popped.row.ref], touch=True)
        if lane is not None:  # which one it was; not what it said, which would outlive a clear there
            note = b"%d" % popped.row.ref
            tried[note] = popped
            change = once(lane, sight, change, note)
        got = yield [change]
        if isinstance(got, Done):
            return popped


def clear(
    name: Name,
    keeps_run: Callable[[ReadAnswer, bytes | None], bool],
    count_alone: Callable[[Cell], bytes] | None,
    lane: IdempotencySlot | None,
) -> Plan[None]:
    """Remove everything stored for this id, including saved runs that no worker holds (A12).

    `keeps_run` returns for an open run, by its cell on the session, whether it is under way and keeps its record.
    `count_alone` reduces a writer's cell to its count (None: the cell stays whole), because its digests would still
    reveal what was said. The value differs, so a process that remembers the digests is refused, and does not store them
    again.
    """

    prefixes, has_more = (OPEN_RUN,) if count_alone is None else (OPEN_RUN, WRITER), False

    def decide(sight: ReadAnswer) -> Plan[Decision[None]]:
        nonlocal has_more
        runs = {cell[len(OPEN_RUN) :] for cell in sight.cells if cell.startswith(OPEN_RUN)}
        runs |= set((yield from runs_of(name)))
        kept = {run for run in runs if keeps_run(sight, value_of(sight, OPEN_RUN + run))}
        cells = {cell: value_of(sight, cell) for cell in (LEASE, INBOX, *(OPEN_RUN + run for run in runs))}
        put: dict[str, bytes | None] = dict.fromkeys(OPEN_RUN + run for run in runs - kept)
        counts = _counts_alone(sight, count_alone)
        has_more = len(counts) > COUNTS_AT_ONCE
        for cell, count in list(counts.items())[:COUNTS_AT_ONCE]:
            cells[cell], put[cell] = value_of(sight, cell), count
        # The mark: a run that stored its first turn since may have come with it, and would stay without its turn.
        change = KeyUpdate(name, mark=sight.mark, cells=cells, wipe=KEPT_BY_CLEAR, put=put)
        return None, [change, *(KeyUpdate(Name("run", run), remove=True) for run in sorted(runs - kept))]

    yield from until_done(ReadRequest(name, cells=(LEASE, INBOX), prefixes=prefixes), decide, lane)
    while has_more:
        sight = yield from look(ReadRequest(name, prefixes=(WRITER,), mark=False))
        # Only of what was cleared: a writer may have started over since.
        counts = [one for one in _counts_alone(sight, count_alone).items() if not sight.cells[one[0]].alive]
        has_more = False
        for first in range(0, len(counts), COUNTS_AT_ONCE):
            put = dict(counts[first : first + COUNTS_AT_ONCE])
            got = yield from commit([KeyUpdate(name, cells={cell: value_of(sight, cell) for cell in put}, put=put)])
            has_more = has_more or not isinstance(got, Done)


def _counts_alone(sight: ReadAnswer, count_alone: Callable[[Cell], bytes] | None) -> dict[str, bytes]:
    """Return the reduced cell of each writer whose cell holds more than a count."""
    if count_alone is None:
        return {}
    found: dict[str, bytes] = {}
    for cell, held in sight.cells.items():
        # What has expired stays as it is: written again, it would count once more.
        if cell.startswith(WRITER) and not held.expired and (count := count_alone(held)) != held.value:
            found[cell] = count
    return found


def runs_of(name: Name) -> Plan[list[str]]:
    """Return the ids of all saved runs of a session, newest change first, however long ago they ended."""
    return [one.id for one in (yield from every("run", {"session": name.id}))]
