"""Sealing of stored data with the current key. These are ordinary plans: the executor does the sealing."""

from __future__ import annotations

import json

from standfast._src.sessions.rules.append import parse_writer_cell
from standfast._src.sessions.rules.history import (
    CELLS,
    FAMILIES,
    GENERATIONS,
    KEPT_BY_CLEAR,
    WRITER,
    Decision,
    IdempotencySlot,
    commit,
    look,
    until_done,
    value_of,
)
from standfast._src.sessions.rules.saved_runs import HEAD, LENGTHS, LOG, SIGNALS
from standfast._src.sessions.storage import Arrange, Cell, Done, KeyUpdate, Name, Plan, Range, ReadAnswer, ReadRequest
from standfast._src.sessions.wrappers.encrypted.encrypting_executor import is_open
from standfast._src.sessions.wrappers.encrypted.head import HEAD_CELLS


def reseal_session(name: Name, lane: IdempotencySlot | None) -> Plan[None]:
    """Rewrite a session's rows and cells in one step. A range of "another" name is sealed again: here, its own."""

    def decide(sight: ReadAnswer) -> Decision[None]:
        sealed = {cell: found for cell, found in sight.cells.items() if not is_open(cell)}
        conditions: dict[str, bytes | None] = {cell: found.value for cell, found in sealed.items()}
        put = {cell: _anew(cell, found) for cell, found in sealed.items()}
        forget = [number for number, *_ in json.loads(value_of(sight, GENERATIONS) or b"[]")]
        arrange = Arrange([Range(0, of=name)], forget=forget) if sight.mark else None
        return None, [KeyUpdate(name, mark=sight.mark, cells=conditions, arrange=arrange, put=put)]

    yield from until_done(ReadRequest(name, cells=(*CELLS, *HEAD_CELLS), prefixes=FAMILIES), decide, lane)


def _anew(cell: str, found: Cell) -> bytes | None:
    """Return the new contents of a cell: unchanged, but after a clear only the kept part, and no generations."""
    if cell == GENERATIONS:
        return b"[]"
    if cell.startswith(WRITER):
        return None if found.expired else parse_writer_cell(found).value()
    return found.value if found.alive or cell.startswith(KEPT_BY_CLEAR) else None


def resealed_run(run: Name) -> Plan[None]:
    """Write a run's cells again."""
    while True:
        sight = yield from look(ReadRequest(run, cells=(HEAD, LENGTHS, SIGNALS), prefixes=(LOG,), mark=False))
        cells = {cell: found.value for cell, found in sight.cells.items()}
        got = yield from commit([KeyUpdate(run, cells=dict(cells), put=dict(cells))])
        if isinstance(got, Done):
            return
