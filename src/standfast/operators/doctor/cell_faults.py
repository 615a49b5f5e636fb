"""Find cells of a session that no rule can read: each is decoded by the rule that reads it later."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from standfast.backends.advanced.branches import sessions_in
from standfast.ground.errors import CorruptRecordError
from standfast.ground.jsonvalue import DIGEST_BYTES
from standfast.sessions.generation_rules import kept_in
from standfast.sessions.lease_rules import lease_state_in, open_runs_in
from standfast.sessions.look_rules import origin_in, usage_in
from standfast.sessions.picture_rules import moving_in, note_in
from standfast.sessions.port import Cell, Sight
from standfast.sessions.rules import (
    BRANCHES,
    BROUGHT,
    DIGESTS,
    GENERATIONS,
    IMPORTED,
    LEASE,
    MEND,
    MOVING,
    OPEN_RUN,
    ORIGIN,
    SEALED,
    USAGE,
    WRITER,
    decoded,
)
from standfast.sessions.writer_rules import written_in


def _digests(value: bytes) -> None:
    if len(value) % DIGEST_BYTES:
        raise ValueError("no digests")


def _alone(read: Callable[[Sight], object]) -> Callable[[str, Cell], object]:
    """Read a sight of this cell and no other."""
    return lambda name, cell: read(Sight(cells={name: cell}))


def _by_value(decode: Callable[[bytes], object]) -> Callable[[str, Cell], object]:
    return lambda name, cell: decoded(name, cell.value, decode)


_READERS: dict[str, Callable[[str, Cell], object]] = {
    LEASE: _alone(lease_state_in),
    GENERATIONS: _alone(kept_in),
    OPEN_RUN: _alone(open_runs_in),
    USAGE: _alone(usage_in),
    MOVING: _alone(moving_in),
    WRITER: lambda name, cell: written_in(cell),
    IMPORTED: lambda name, cell: note_in(cell),
    DIGESTS: _by_value(_digests),
    ORIGIN: _by_value(origin_in),
    BROUGHT: _by_value(bytes.decode),
    MEND: _by_value(int),
    BRANCHES: lambda name, cell: sessions_in(cell.value),
}
"""Who reads a cell: by its name, or by what its name begins with."""


def without_faults(sight: Sight) -> tuple[Sight, dict[str, str]]:
    """The sight without the cells that cannot be read, and why each cannot."""
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
