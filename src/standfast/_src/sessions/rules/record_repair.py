"""Remove broken records from a history in one step, and put them back in their places.

A repair removes rows from the live history and leaves a cell: as long as the cell exists the repair is in force, so a
repeat, after a crash or a lost answer, changes nothing a second time, and neither does a repeated undo. The removed
rows are not kept in the store; the caller writes them down first (`Repair` is the information needed).

A removed row goes back to its place. While no row was moved since, refs give the place. After a compaction, an undo or
another put-back every row has a new ref: then the place is behind as many rows as before, if those rows are unchanged.
Rows that a compaction has replaced are in a generation, which is never changed: a row that belongs among those is
refused, with the generation to restore first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Literal, NamedTuple

from standfast._src.sessions.rules.generations import (
    Boxes,
    encode_generations,
    generation_numbers,
    id_of_generation,
    parse_generations,
    read_with_generations,
)
from standfast._src.sessions.rules.history import (
    BROUGHT,
    CELLS,
    DIGESTS,
    GENERATIONS,
    LEASE,
    MESSAGE,
    MOVING,
    OPEN_RUN,
    REPAIR,
    USAGE,
    WRITER,
    commit,
    decode_cell,
    fault_of,
    faulty,
    look,
    value_of,
)
from standfast._src.sessions.rules.leases import lease_state_in
from standfast._src.sessions.storage import (
    Arrange,
    Done,
    KeyUpdate,
    Name,
    Plan,
    Range,
    ReadAnswer,
    ReadRequest,
    Row,
    Rows,
    Tag,
)

DIGEST_BYTES = 16


# --- what was seen ---------------------------------------------------------------------------------------------------


def whole(name: Name, rows: Rows = Rows(times=True)) -> Plan[ReadAnswer]:  # noqa: B008 — a tuple cannot change
    """Read a session at one instant: its rows with their times, and every cell needed by a later rule.

    `rows`: only these of its rows.
    """
    families = (OPEN_RUN, REPAIR, WRITER, DIGESTS, USAGE, MOVING, BROUGHT, MESSAGE)
    asked = ReadRequest(name, CELLS, families, rows=(rows,), times=True)
    return (yield from look(asked))


class Chain:
    """Incremental digest of a history's first rows: contents and order. Prefixes are asked for in growing length."""

    def __init__(self, rows: Sequence[bytes]) -> None:
        self._rows, self._reached, self._digest = rows, 0, blake2b(digest_size=DIGEST_BYTES)

    def upto(self, count: int) -> str:
        """Return the digest of the first `count` rows; not fewer than in an earlier call."""
        for data in self._rows[self._reached : count]:
            self._digest.update(len(data).to_bytes(8, "big"))
            self._digest.update(data)
        self._reached = max(self._reached, count)
        return self._digest.hexdigest()


# --- repair ----------------------------------------------------------------------------------------------------------


class Removed(NamedTuple):
    """A row that a repair removes, and its place among the remaining rows."""

    row: Row
    reason: str
    before: int
    """Number of rows before it in the repaired history."""
    chain: str
    """Digest of those rows."""
    follower: str
    """Digest of the row behind it; "" without one."""


class Repair(NamedTuple):
    """Information needed to repair a session as it was read, and to undo the repair."""

    repair_id: str
    mark: str
    generations: bytes | None
    lease: bytes | None
    next_generation: int
    removed: tuple[Removed, ...]
    parts: tuple[Range, ...] = ()
    """Where rows have to move: the repaired history, in ranges of the one that was seen."""
    moved: tuple[int, ...] = ()
    """The places, in the repaired history, of rows that were moved there; they are among `removed` as well."""


Outcome = Literal["done", "changed", "not quiet"]


def repair(name: Name, wanted: Repair, is_quiet: Callable[[ReadAnswer], bool]) -> Plan[Outcome]:
    """Remove the rows in one step, if the session is unchanged and quiet."""
    cell = REPAIR + wanted.repair_id
    while True:
        newest = Rows(limit=1, tags=False, times=True)
        sight = yield from look(ReadRequest(name, (cell, GENERATIONS, LEASE), (REPAIR,), rows=(newest,), times=True))
        if cell in sight.cells:  # the answer was lost
            return "done"
        cells = {GENERATIONS: wanted.generations, LEASE: wanted.lease}
        is_same = all(value_of(sight, known) == value for known, value in cells.items())
        if not is_same or sight.mark != wanted.mark:
            return "changed"
        if not is_quiet(sight):
            return "not quiet"
        put: dict[str, bytes | None] = {cell: b"%d" % (_newest_repair(sight) + 1)}
        arrange, drop = None, [one.row.ref for one in wanted.removed]
        if wanted.parts:
            arrange, drop = Arrange(wanted.parts), []
            put |= rewritten(sight)
        change = KeyUpdate(name, mark=wanted.mark, cells={cell: None, **cells}, drop=drop, arrange=arrange, put=put)
        got = yield from commit([change])
        if isinstance(got, Done):
            return "done"


def rewritten(sight: ReadAnswer) -> dict[str, bytes | None]:
    """Return the generations' cell with the same contents in other bytes.

    Moved rows get new refs. The holder of a cursor or of a popped row learns from the bytes of this cell that it is
    stale. (An empty generation would have the same effect, and push out one that a user may need.)
    """
    cell = sight.cells.get(GENERATIONS)
    if cell is not None and not cell.alive:
        return {}  # another program has cleared the session: its incarnation tells already
    return {GENERATIONS: encode_generations(parse_generations(sight)) if cell is None else cell.value + b"\n"}


def _newest_repair(sight: ReadAnswer) -> int:
    found = sight.cells.items()
    return max((decode_cell(cell, one.value, int) for cell, one in found if cell.startswith(REPAIR)), default=0)


def is_held(sight: ReadAnswer, is_gone: Callable[[str], bool]) -> bool:
    """Return whether a worker holds the session, as far as can be known."""
    held = lease_state_in(sight)
    return not held.is_over(sight.now) and not is_gone(held.process)


# --- putting back ----------------------------------------------------------------------------------------------------


class PutBackOutcome(NamedTuple):
    """Outcome of putting back: `done`, `absent` (not in force), or the reason for a refusal with a remedy."""

    state: Literal["done", "absent", "refused"]
    why: str = ""
    remedy: str = ""


_IN_THE_FILE = "What was taken out is in the undo file, record by record."


def put_back(name: Name, wanted: Repair) -> Plan[PutBackOutcome]:
    """Put the rows removed by a repair back in their places, and keep all rows written since; in one step."""
    cell = REPAIR + wanted.repair_id

    def since(sight: ReadAnswer) -> list[int]:
        return [number for number in generation_numbers(sight) if number >= wanted.next_generation]

    while True:
        sight, boxes = yield from read_with_generations(name, cells=(cell,), prefixes=(REPAIR,), wanted=since)
        found = sight.cells.get(cell)
        if found is None or not found.alive:
            return PutBackOutcome(
                "absent", "it was not carried out, was undone already, or the session was cleared since"
            )
        if _newest_repair(sight) > decode_cell(cell, found.value, int):
            return PutBackOutcome(
                "refused", "a later fix of the same session is in force", "Undo that one first, with its own file."
            )
        place = _places(wanted, sight, boxes)
        if isinstance(place, PutBackOutcome):
            return place
        change = KeyUpdate(
            name,
            prefix=sight.mark,
            cells={cell: found.value, GENERATIONS: value_of(sight, GENERATIONS)},
            arrange=_build_arrangement(sight.rows[0], *place),
            put={cell: None, **rewritten(sight)},
        )
        got = yield from commit([change])
        if isinstance(got, Done):
            return PutBackOutcome("done")


Inserted = Mapping[int, Sequence[Removed]]
"""Rows to insert before the live row at each place (one place more than rows: behind the last)."""


def _places(wanted: Repair, sight: ReadAnswer, boxes: Boxes) -> tuple[Inserted, set[int]] | PutBackOutcome:
    """Return where each row goes in the live history, and the refs of live rows that leave (a moved row goes back)."""
    live = sight.rows[0]
    if not wanted.parts and value_of(sight, GENERATIONS) == wanted.generations:
        inserted: dict[int, list[Removed]] = {}
        place = 0
        for one in sorted(wanted.removed, key=lambda one: one.row.ref):
            while place < len(live) and live[place].ref < one.row.ref:
                place += 1
            inserted.setdefault(place, []).append(one)
        return inserted, set()
    faults = faulty(live)
    as_it_is = [(0, place, row) for place, row in enumerate(live) if row.ref not in faults]
    found = _find_places(wanted, sight, as_it_is)
    if not isinstance(found, PutBackOutcome) or not boxes:
        return found
    return _find_places(wanted, sight, _as_if_never_replaced(wanted, live, boxes, faults))


Located = tuple[int, int, Row]
"""A row: its box, its place there, itself."""


def _as_if_never_replaced(
    wanted: Repair, live: Sequence[Row], boxes: Boxes, faults: Mapping[int, str]
) -> list[Located]:
    """Return the history that restoring the first generation since the repair would give, with each row's location."""
    first = min(boxes)
    if first != wanted.next_generation:
        return []  # it has been pushed out: the rows before the place are not known any more
    later = set(boxes)

    def stands_in(row: Row) -> bool:
        return row.tag is not None and row.tag.replaces in later

    rows = [(first, place, row) for place, row in enumerate(boxes[first])]
    for number in sorted(later - {first}):
        rows += [(number, place, row) for place, row in enumerate(boxes[number]) if not stands_in(row)]
    return rows + [(0, place, row) for place, row in enumerate(live) if row.ref not in faults and not stands_in(row)]


def _find_places(
    wanted: Repair, sight: ReadAnswer, rows: Sequence[Located]
) -> tuple[Inserted, set[int]] | PutBackOutcome:
    """Return where the rows go among these, judged by the rows before and behind each place."""
    chain = Chain([row.data for _, _, row in rows])
    inserted: dict[int, list[Removed]] = {}
    for one in sorted(wanted.removed, key=lambda one: one.before):
        behind = rows[one.before] if one.before < len(rows) else None
        is_other = one.before > len(rows) or chain.upto(one.before) != one.chain
        if not one.before and one.follower and (behind is None or Chain([behind[2].data]).upto(1) != one.follower):
            is_other = True  # no row was before it: then the row behind it tells the place
        if is_other:
            return PutBackOutcome(
                "refused",
                "the rows before the place were replaced or removed since: the place is not known any more",
                _IN_THE_FILE,
            )
        box = behind[0] if behind is not None else rows[-1][0] if rows else 0
        if box and fault_of(one.row):  # a compaction leaves what is no item before all that it replaces (A14)
            inserted.setdefault(0, []).append(one)
            continue
        if box:
            generation = id_of_generation(box, sight)
            return PutBackOutcome(
                "refused",
                f"a compaction has replaced that part: it is in generation {generation} now",
                f"Put that back with session.restore({generation!r}), and undo again; or leave it. {_IN_THE_FILE}",
            )
        inserted.setdefault(len(sight.rows[0]) if behind is None else behind[1], []).append(one)
    leaving: set[int] = set()
    for place in wanted.moved:
        if place >= len(rows) or rows[place][0]:
            return PutBackOutcome("refused", "a record that the fix had moved was replaced since", _IN_THE_FILE)
        leaving.add(rows[place][2].ref)
    return inserted, leaving


def _build_arrangement(live: Sequence[Row], inserted: Inserted, leaving: set[int]) -> Arrange:
    parts: list[Range | Sequence[tuple[bytes, Tag]]] = []
    before: int | None = None  # where the range that is being made begins
    last: int | None = None  # the last row before the present one

    def end_range() -> None:
        if last is not None and last != before:
            parts.append(Range(0, before, last))

    for place in range(len(live) + 1):
        if place in inserted:
            end_range()
            before = last
            parts.append([(one.row.data, one.row.tag or Tag()) for one in inserted[place]])
        if place == len(live):
            break
        if live[place].ref in leaving:
            end_range()
            before = live[place].ref
        last = live[place].ref
    end_range()
    return Arrange([*parts, Range(0, after=last)])  # and the rows appended since this read
