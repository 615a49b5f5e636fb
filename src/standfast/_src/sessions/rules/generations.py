"""Replace the front of a history, keep the replaced rows, and put them back (B3, B4).

A replaced front becomes a numbered generation. The tag of a row names the generation it replaces, if any; other rows
were appended. So restoring generation k gives: its own rows, then all rows appended since, found in the later
generations and in the present, in order, without the rows that replace k or a later one. The live ones among the latter
are displaced and become a generation in turn: undo can be undone. Restoring never changes a generation. (Remembering a
boundary per generation instead of a mark per row fails when nothing is replaced, by an empty head: the replacement of
an earlier one is then behind the newest boundary.)

Corrupt records are never moved into a generation: they stay in the history until cleared or repaired (A14).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from standfast._src.base.errors import NotFoundError
from standfast._src.base.json_values import Item
from standfast._src.sessions.protocol import Generation, Head
from standfast._src.sessions.rules.history import (
    GENERATIONS,
    LEASE,
    Decision,
    IdempotencySlot,
    Report,
    as_time,
    check_head,
    decode_cell,
    faulty,
    items_of,
    look,
    moved,
    ranges,
    time_in,
    until_done,
    value_of,
)
from standfast._src.sessions.rules.leases import Fence, check_fence
from standfast._src.sessions.storage import (
    Arrange,
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

GENERATIONS_KEPT = 3
# Enough to undo a compaction, and to undo that undo, without keeping a conversation's whole past alive.

Boxes = Mapping[int, Sequence[Row]]


class KeptGeneration(NamedTuple):
    """Entry of one generation in the session's cell."""

    number: int
    created: float
    item_count: int
    by: str | None = None


_decode_kept = msgspec.json.Decoder(list[KeptGeneration]).decode


def parse_generations(sight: ReadAnswer) -> list[KeptGeneration]:
    """Parse the generations of the present incarnation, oldest first."""
    cell = sight.cells.get(GENERATIONS)
    return decode_cell(GENERATIONS, cell.value, _parse_generations_cell) if cell is not None and cell.alive else []


def _parse_generations_cell(value: bytes) -> list[KeptGeneration]:
    found = _decode_kept(value)
    for one in found:
        time_in(one.created)
    return found


def encode_generations(kept: Sequence[KeptGeneration]) -> bytes:
    """Encode the session's list of generations; omit the author where unknown."""
    return json.dumps([one if one.by is not None else one[:3] for one in kept]).encode()


def generation_numbers(sight: ReadAnswer) -> list[int]:
    """Return the numbers of the kept generations, oldest first."""
    return [one.number for one in parse_generations(sight)]


def read_with_generations(
    name: Name,
    *,
    cells: tuple[str, ...] = (),
    prefixes: tuple[str, ...] = (),
    live: Rows = Rows(),  # noqa: B008 — it is immutable
    writer: str | None = None,
    wanted: Callable[[ReadAnswer], Sequence[int]] = generation_numbers,
    first: ReadAnswer | None = None,
) -> Plan[tuple[ReadAnswer, dict[int, Sequence[Row]]]]:
    """Read the live rows, those of the `wanted` generations (of `writer` alone, if given), and cells, all of one
    instant.

    The list of generations is read first (or given as `first`): rows are many, and would otherwise be read twice.
    """
    cells = (GENERATIONS, *cells)
    sight = first or (yield from look(ReadRequest(name, cells, times=True)))
    while True:
        seen, numbers = value_of(sight, GENERATIONS), wanted(sight)
        rows = (live, *[Rows(box=number, writer=writer) for number in numbers])
        sight = yield from look(ReadRequest(name, cells, prefixes, rows, times=True))
        if value_of(sight, GENERATIONS) == seen:
            return sight, dict(zip(numbers, sight.rows[1:], strict=True))


def generations(name: Name) -> Plan[list[Generation]]:
    """Return the kept generations, newest first."""
    sight = yield from look(ReadRequest(name, cells=(GENERATIONS,), mark=False, times=True))
    return [
        Generation(id_of_generation(one.number, sight), as_time(one.created), one.item_count, one.by)
        for one in reversed(parse_generations(sight))
    ]


def read_generation(name: Name, generation_id: str, report: Report) -> Plan[list[Item]]:
    """Return the items of a kept generation."""
    few, of_it = Rows(limit=1), lambda sight: [number_of(name, sight, generation_id)]
    _, boxes = yield from read_with_generations(name, live=few, wanted=of_it)
    return [item for rows in boxes.values() for _, item in items_of(rows, report)]


def number_of(name: Name, sight: ReadAnswer, generation_id: str) -> int:
    """Return the number of a kept generation by its public id."""
    for one in parse_generations(sight):
        if id_of_generation(one.number, sight) == generation_id:
            return one.number
    raise NotFoundError(
        f"session {name.id!r} has no generation {generation_id!r}",
        f"The last {GENERATIONS_KEPT} are kept: see generations().",
    )


def since(name: Name, generation_id: str, sight: ReadAnswer) -> list[int]:
    """Return the numbers of a generation and of all later ones."""
    wanted = number_of(name, sight, generation_id)
    return [number for number in generation_numbers(sight) if number >= wanted]


def id_of_generation(number: int, sight: ReadAnswer) -> str:
    """Return the public id of a generation, in the incarnation of this read."""
    return f"{number}@{sight.epoch}"  # no two incarnations of a session share one


# --- replace and restore ---------------------------------------------------------------------------------------------


def replace(
    name: Name, encoded: Sequence[bytes], upto: Head, fence: Fence | None, lane: IdempotencySlot | None
) -> Plan[Head]:
    """Put items in place of the rows up to a head; the rows themselves become a generation (B3)."""

    def decide(sight: ReadAnswer) -> Decision[None]:
        cells = check_fence(name, fence, sight)
        if sight.upto is None:
            raise moved(name, upto, sight)
        arrange, item_count = arrange_replacement(sight.rows[0], sight.upto, encoded, next_number(sight))
        return None, [_build_change(name, sight, arrange, item_count, cells, prefix=upto.value)]

    asked = ReadRequest(name, (GENERATIONS, LEASE), rows=(Rows(tags=False),), upto=upto.value)
    return (yield from until_done(asked, decide, lane))[1]


def arrange_replacement(live: Sequence[Row], end: int, encoded: Sequence[bytes], number: int) -> tuple[Arrange, int]:
    """Arrange items in place of the rows up to `end`; also return the item count of the new generation `number`."""
    front = live if not live or live[-1].ref <= end else [row for row in live if row.ref <= end]
    faults = faulty(front)
    stay = ranges(0, front, lambda row: row.ref in faults) if faults else []
    new = [(data, Tag(replaces=number)) for data in encoded]
    keep = ranges(0, front, lambda row: row.ref not in faults) if faults else [Range(0, upto=end)]
    return Arrange([*stay, new, Range(0, after=end)], number, keep), len(front) - len(faults)


def restore(
    name: Name, generation_id: str, expect: Head | None, lane: IdempotencySlot | None, by: str | None = None
) -> Plan[Head]:
    """Put a generation back in place of its replacement; the displaced rows become a generation with `by` as author
    (B4).
    """

    def decide(first: ReadAnswer) -> Plan[Decision[None]]:
        sight, boxes = yield from read_with_generations(
            name, wanted=lambda now: since(name, generation_id, now)[1:], first=first
        )
        check_head(name, expect, sight)
        wanted = number_of(name, sight, generation_id)
        arrange, displaced = arrange_restoration(sight.rows[0], boxes, wanted, next_number(sight))
        return None, [_build_change(name, sight, arrange, displaced, {}, prefix=sight.mark, expect=expect, by=by)]

    return (yield from until_done(ReadRequest(name, (GENERATIONS,), times=True), decide, lane))[1]


def arrange_restoration(live: Sequence[Row], boxes: Boxes, wanted: int, number: int) -> tuple[Arrange, int]:
    """Arrange the history with generation `wanted` back in it; also return how many items go to generation `number`.

    `boxes` are the generations behind it: its own rows need not be known.
    """
    later = {wanted, *boxes}

    def stands_in(row: Row) -> bool:
        return row.tag is not None and row.tag.replaces in later

    rest = [row for row in live if not stands_in(row)]
    faults = faulty(rest)
    # Corrupt records before or among the displaced rows stay in front, where they are.
    first = next((row.ref for row in rest if row.ref not in faults), None)
    parts: list[Range | Sequence[tuple[bytes, Tag]]] = [
        *ranges(0, live, lambda row: not stands_in(row) and (first is None or row.ref < first)),
        Range(wanted, replaces=number),
    ]
    for n, rows in boxes.items():
        # appended once, then moved into a later generation
        parts += ranges(n, rows, lambda row: not stands_in(row), number)
    behind = Range(0, after=live[-1].ref if live else None)  # rows appended since this read
    parts += ranges(0, live, lambda row: not stands_in(row) and first is not None and row.ref >= first)
    keep = ranges(0, live, stands_in)
    return Arrange([*parts, behind], number, keep), len(live) - len(rest)


def _build_change(
    name: Name,
    sight: ReadAnswer,
    arrange: Arrange,
    item_count: int,
    cells: Mapping[str, bytes | None],
    *,
    prefix: str,
    expect: Head | None = None,
    by: str | None = None,
) -> KeyUpdate:
    """Build the change that arranges rows and keeps one generation more, forgetting the oldest."""
    kept = [*parse_generations(sight), KeptGeneration(arrange.box, sight.now, item_count, by)][-GENERATIONS_KEPT:]
    stay = {one.number for one in kept}
    return KeyUpdate(
        name,
        mark=None if expect is None else expect.value,
        prefix=prefix,  # not the whole: appends must not be able to starve a compaction
        cells={GENERATIONS: value_of(sight, GENERATIONS), **cells},
        arrange=arrange._replace(forget=[number for number in _numbers(sight) if number not in stay]),
        put={GENERATIONS: encode_generations(kept)},
        touch=True,
    )


def next_number(sight: ReadAnswer) -> int:
    """Return the number of the next generation."""
    return max(_numbers(sight), default=0) + 1


def _numbers(sight: ReadAnswer) -> list[int]:
    """Return the numbers of all boxes, including those left behind by another program's clear."""
    cell = sight.cells.get(GENERATIONS)
    return [] if cell is None else [one.number for one in decode_cell(GENERATIONS, cell.value, _parse_generations_cell)]
