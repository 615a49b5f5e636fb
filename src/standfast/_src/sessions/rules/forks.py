"""Forking: a new session continues from any position of the live history or of a kept generation (B6).

One step copies the items and each writer's count as of that point, so that a run which continues in the fork is neither
refused as a gap nor skipped as a repeat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from standfast._src.base.errors import NotFoundError, SessionConflictError
from standfast._src.base.json_values import Item, decode, encode, encode_value
from standfast._src.sessions.protocol import Position
from standfast._src.sessions.rules.append import all_written
from standfast._src.sessions.rules.generations import Boxes, parse_generations, read_with_generations, since
from standfast._src.sessions.rules.history import (
    DIGESTS,
    GENERATIONS,
    MESSAGE,
    ORIGIN,
    WRITER,
    Decision,
    IdempotencySlot,
    faulty,
    ranges,
    until_done,
    value_of,
)
from standfast._src.sessions.rules.messages import decode_note
from standfast._src.sessions.storage import Arrange, KeyUpdate, Name, Plan, Range, ReadAnswer, ReadRequest, Row, Rows

Recode = Callable[[Item], Item]


class ForkStart(NamedTuple):
    """Rows of a box with which a fork begins, and each writer's lowest number behind them."""

    box: int
    among: Sequence[Row]
    rows: Sequence[Row]
    lowest: dict[str, int]


def fork(
    name: Name,
    new: Name,
    at: Position | None,
    recode: Recode | None,
    lane: IdempotencySlot | None,
    by: str | None = None,
) -> Plan[None]:
    """Make session `new`, which must be empty, continue from a position of session `name`; `by` is kept in its
    origin.
    """

    def decide(target: ReadAnswer) -> Plan[Decision[None]]:
        if new == name or target.mark or parse_generations(target):
            raise SessionConflictError(
                f"session {new.id!r} is not empty and cannot be forked into", "Choose an id that was never used."
            )
        behind = at is not None  # only then is there anything whose writers must be known
        live, generation = Rows(tags=behind or recode is not None), None if at is None else at.generation
        needed = partial(since, name, generation) if generation is not None else lambda sight: list[int]()
        sight, boxes = yield from read_with_generations(
            name, prefixes=(WRITER, DIGESTS, MESSAGE), live=live, wanted=needed
        )
        found = cut_at(sight, boxes, at)
        put: dict[str, bytes] = {}
        for writer, known in all_written(sight).items():
            put |= known.cut(found.lowest.get(writer, known.total)).cells(writer)
        _cut_messages(sight, found.lowest, put)
        if not found.rows and not put:
            return None, []
        put[ORIGIN] = encode_value([name.id, len(found.rows), generation, sight.now, *([] if by is None else [by])])
        cells = {GENERATIONS: value_of(target, GENERATIONS)}
        arrange = _copy_history(name, found, recode) if found.rows else None
        made = KeyUpdate(new, mark="", cells=cells, arrange=arrange, put=put, touch=bool(found.rows))
        return None, [made, KeyUpdate(name, prefix=sight.mark, cells={GENERATIONS: value_of(sight, GENERATIONS)})]

    yield from until_done(ReadRequest(new, cells=(GENERATIONS,)), decide, lane)


def _cut_messages(sight: ReadAnswer, lowest: Mapping[str, int], put: dict[str, bytes]) -> None:
    """Add the cells of stored and refused messages to a fork; waiting messages stay behind.

    A message heard behind the fork's end leaves no count either.
    """
    for cell, held in sight.cells.items():
        if not cell.startswith(MESSAGE) or held.expired:
            continue
        message_id, known = cell[len(MESSAGE) :], decode_note(held.value)
        writer = known.writer or message_id
        is_told = known.state == "refused" or WRITER + writer in put
        if is_told and known.ordinal < lowest.get(writer, known.ordinal + 1):
            put[cell] = held.value
        elif known.state == "heard":
            put.pop(WRITER + message_id, None)


def _copy_history(name: Name, found: ForkStart, recode: Recode | None) -> Arrange:
    """Arrange the fork's history: ranges of the source's rows, or every item encoded again by `recode`."""
    if recode is not None:
        return Arrange([[(encode(recode(decode(row.data))), row.tagged()) for row in found.rows]])
    if len(found.rows) == len(found.among):
        return Arrange([Range(found.box, upto=found.rows[-1].ref, replaces=0, of=name)])
    wanted = {row.ref for row in found.rows}
    parts = ranges(found.box, found.among, lambda row: row.ref in wanted, 0)
    return Arrange([part._replace(of=name) for part in parts])


def cut_at(sight: ReadAnswer, boxes: Boxes, at: Position | None) -> ForkStart:
    """Return the rows with which a fork at this position begins."""
    live = sight.rows[0]
    if at is None or at.generation is None:
        box, rows, behind = 0, live, list[Row]()
    else:
        box, later = min(boxes), set(boxes)
        rows = boxes[box]
        appended = [row for n, other in boxes.items() if n > box for row in other] + list(live)
        behind = [row for row in appended if row.tag is None or row.tag.replaces not in later]
    faults = faulty(rows)
    items = [row for row in rows if row.ref not in faults] if faults else rows
    index = len(items) if at is None else at.index
    if not 0 <= index <= len(items):
        raise NotFoundError(
            f"there is no position {index} among {len(items)} items", f"Give an index from 0 to {len(items)}."
        )
    lowest: dict[str, int] = {}
    for row in (*items[index:], *behind):
        if row.tag is not None and row.tag.writer:
            lowest[row.tag.writer] = min(row.tag.ordinal, lowest.get(row.tag.writer, row.tag.ordinal))
    return ForkStart(box, rows, items[:index], lowest)
