"""Find unreadable cells of a session: decode each with the rule that later reads the cell."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from standfast._src.base.errors import CorruptRecordError
from standfast._src.base.json_values import DIGEST_BYTES
from standfast._src.sessions.rules.append import parse_writer_cell
from standfast._src.sessions.rules.generations import parse_generations
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
    REPAIR,
    SEALED,
    USAGE,
    WRITER,
    decode_cell,
)
from standfast._src.sessions.rules.inspection import origin_in, usage_in
from standfast._src.sessions.rules.leases import inbox_in, lease_state_in, open_runs_in
from standfast._src.sessions.rules.messages import decode_note
from standfast._src.sessions.rules.snapshot import moving_in, note_in
from standfast._src.sessions.storage import Cell, ReadAnswer
from standfast._src.sessions.wrappers.branches.branch_rules import sessions_in


def _digests(value: bytes) -> None:
    if len(value) % DIGEST_BYTES:
        raise ValueError("no digests")


def _alone(read: Callable[[ReadAnswer], object]) -> Callable[[str, Cell], object]:
    """Wrap a reader of sights for a single cell."""
    return lambda name, cell: read(ReadAnswer(cells={name: cell}))


def _by_value(decode: Callable[[bytes], object]) -> Callable[[str, Cell], object]:
    return lambda name, cell: decode_cell(name, cell.value, decode)


_READERS: dict[str, Callable[[str, Cell], object]] = {
    LEASE: _alone(lease_state_in),
    INBOX: _alone(inbox_in),
    GENERATIONS: _alone(parse_generations),
    OPEN_RUN: _alone(open_runs_in),
    USAGE: _alone(usage_in),
    MOVING: _alone(moving_in),
    WRITER: lambda name, cell: parse_writer_cell(cell),
    IMPORTED: lambda name, cell: note_in(cell),
    DIGESTS: _by_value(_digests),
    ORIGIN: _by_value(origin_in),
    BROUGHT: _by_value(bytes.decode),
    REPAIR: _by_value(int),
    MESSAGE: lambda name, cell: decode_note(cell.value),
    BRANCHES: lambda name, cell: sessions_in(cell.value),
}
"""Who reads a cell: by its name, or by what its name begins with."""


def without_faults(sight: ReadAnswer) -> tuple[ReadAnswer, dict[str, str]]:
    """Remove unreadable cells from a sight, and return the reason for each."""
    faults: dict[str, str] = {}
    for name, cell in sight.cells.items():
        read = _READERS.get(name) or _READERS.get(name[: name.find("/") + 1])
        if read is None or cell.value.startswith(SEALED):
            continue
        try:
            read(name, cell)
        except CorruptRecordError as error:
            faults[name] = type(error.__cause__).__name__
    if not faults:
        return sight, faults
    kept = {name: cell for name, cell in sight.cells.items() if name not in faults}
    return msgspec.structs.replace(sight, cells=kept), faults
