"""Sealing what is stored with the current key. Plans like any other: the sealing itself happens on their way."""

from __future__ import annotations

import json

from standfast.backends.sealed.head import HEAD_CELLS
from standfast.backends.sealed.plans import is_open
from standfast.sessions.port import Arrange, Cell, Change, Done, Look, Name, Plan, Range, Sight
from standfast.sessions.rules import (
    CELLS,
    FAMILIES,
    GENERATIONS,
    KEPT_BY_CLEAR,
    WRITER,
    Decision,
    Lane,
    commit,
    look,
    until_done,
    value_of,
)
from standfast.sessions.run_rules import HEAD, LENGTHS, LOG
from standfast.sessions.writer_rules import written_in


def resealed(name: Name, lane: Lane | None) -> Plan[None]:
    """Write a session's rows and cells again, in one step. A range of "another" name is sealed anew: here, its own."""

    def decide(sight: Sight) -> Decision[None]:
        sealed = {cell: found for cell, found in sight.cells.items() if not is_open(cell)}
        conditions: dict[str, bytes | None] = {cell: found.value for cell, found in sealed.items()}
        put = {cell: _anew(cell, found) for cell, found in sealed.items()}
        forget = [number for number, *_ in json.loads(value_of(sight, GENERATIONS) or b"[]")]
        arrange = Arrange([Range(0, of=name)], forget=forget) if sight.mark else None
        return None, [Change(name, mark=sight.mark, cells=conditions, arrange=arrange, put=put)]

    yield from until_done(Look(name, cells=(*CELLS, *HEAD_CELLS), prefixes=FAMILIES), decide, lane)


def _anew(cell: str, found: Cell) -> bytes | None:
    """What a cell says from now on: the same, but of what was cleared only what a clear keeps, and no generations."""
    if cell == GENERATIONS:
        return b"[]"
    if cell.startswith(WRITER):
        return None if found.expired else written_in(found).value()
    return found.value if found.alive or cell.startswith(KEPT_BY_CLEAR) else None


def resealed_run(run: Name) -> Plan[None]:
    """Write a run's cells again."""
    while True:
        sight = yield from look(Look(run, cells=(HEAD, LENGTHS), prefixes=(LOG,), mark=False))
        cells = {cell: found.value for cell, found in sight.cells.items()}
        got = yield from commit([Change(run, cells=dict(cells), put=dict(cells))])
        if isinstance(got, Done):
            return
