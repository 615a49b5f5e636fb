"""Sealed head of a session: three cells by which a read notices removed rows and removed open runs.

- `TOP` names the newest row. Every step that adds rows writes it, without a condition: a store does steps of one
  session one after the other, so the last one that added rows wrote the newest row and `TOP`. Concurrent writers
  therefore never refuse each other (A10). A rewind or a repair names the newest row that stays. A pop, a replace or a
  restore writes that the newest row is not known: it has not seen all rows, or a concurrent append may come.
- `HOLES` has the numbers of each writer or batch that are missing with reason: popped, replaced, repaired. Steps that
  take rows away write it, under the condition that it is what they saw.
- `RUNS` lists the open runs, whose notes are stored in clear. It changes where a run begins or ends.

A count or a chain over all rows was rejected: its value depends on the order between concurrent writers, which is known
only when the store has done the step. It would need a condition on one cell in every append.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import msgspec

from standfast._src.base.errors import SealBrokenError
from standfast._src.sessions.rules.history import OPEN_RUN, UNOPENED
from standfast._src.sessions.storage import Cell, Name, Row
from standfast._src.sessions.wrappers.encrypted.sealed_records import Author, Opened

TOP, HOLES, RUNS = "s/top", "s/holes", "s/runs"
HEAD_CELLS = (TOP, HOLES, RUNS)

UNKNOWN = b""
"""What `TOP` says where the newest row is not known: the next step that adds rows names it again."""

STEP_BACK_US = 60_000_000
# A row that is so much older than the one before it makes a limited read look at the whole history. Clocks of several
# machines differ by less; where they do not, such a read only takes longer.

Holes = dict[bytes, list[tuple[int, int]]]
"""For each writer or batch the ranges of numbers, first and last, that may be missing."""


def top_of(author: Author) -> bytes:
    """Return the contents of `TOP` for the newest row."""
    return author.header(b"")


def encode_holes(holes: Holes) -> bytes:
    """The value of `HOLES`."""
    return msgspec.msgpack.encode(sorted((who, list(ranges)) for who, ranges in holes.items() if ranges))


def decode_holes(value: bytes | None) -> Holes:
    """What a value of `HOLES` says."""
    if value is None:
        return {}
    return dict(msgspec.msgpack.decode(value, type=list[tuple[bytes, list[tuple[int, int]]]]))


def encode_runs(runs: Iterable[str]) -> bytes:
    """The value of `RUNS`."""
    return msgspec.json.encode(sorted(runs))


def decode_runs(value: bytes | None) -> set[str]:
    """What a value of `RUNS` says."""
    return set() if value is None else set(msgspec.json.decode(value, type=list[str]))


def holes_in(live: Iterable[Author], before: Iterable[Author], totals: Mapping[bytes, int]) -> Holes:
    """The holes of a history that is `live` from now on; `before` were in it.

    A writer that appends behind them begins at its total, where that is given, or after its highest number: up to
    there, what is not live is missing with reason.
    """
    following: dict[bytes, int] = {}
    highest: dict[bytes, int] = {}
    found: Holes = {}
    for author in live:
        who, number = author.who, author.number
        expected = following.get(who, _first_expected(author))
        if number > expected:
            found.setdefault(who, []).append((expected, number - 1))
        following[who], highest[who] = number + 1, max(number, highest.get(who, 0))
    for author in before:
        highest[author.who] = max(author.number, highest.get(author.who, 0))
    for who, expected in following.items():
        last = totals[who] - 1 if who in totals else highest[who]
        if last >= expected:
            found.setdefault(who, []).append((expected, last))
    return found


def holes_before(live: Iterable[Author]) -> Holes:
    """Return the holes in front of rows behind unknown ones: up to the first number of each writer."""
    first: dict[bytes, int] = {}
    for author in live:
        first.setdefault(author.who, author.number)
    return {who: [(0, number - 1)] for who, number in first.items() if number}


def union(*parts: Holes) -> Holes:
    """Return the union of these holes."""
    found: Holes = {}
    for part in parts:
        for who, ranges in part.items():
            found[who] = _merge_ranges([*found.get(who, ()), *ranges])
    return found


def _merge_ranges(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same numbers in as few ranges as they need, in order."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = merged[-1][0], max(last, merged[-1][1])
        else:
            merged.append((first, last))
    return merged


def _first_expected(author: Author) -> int:
    """Return the number of a writer's or batch's first row.

    A batch begins with 0. A writer may continue in a cleared history, with any number.
    """
    return author.number if author.is_named else 0


def first_gap(authors: Iterable[Author], holes: Holes) -> Author | None:
    """Return the first row after an unjustified gap of its writer or batch; None if there is none."""
    following: dict[bytes, int] = {}
    for author in authors:
        who, number = author.who, author.number
        expected = following.get(who, _first_expected(author))
        for first, last in holes.get(who, ()) if number > expected else ():
            if first <= expected <= last:
                expected = last + 1
        if number > expected:
            return author
        following[who] = number + 1
    return None


def steps_back(authors: Sequence[Author | None]) -> bool:
    """Return True if a row is much older than the row before: a sign of an inserted row."""
    stamps = [author.stamp for author in authors if author is not None]
    return any(later < earlier - STEP_BACK_US for earlier, later in pairwise(stamps))


def in_order(rows: Sequence[Row], opened: Opened) -> list[tuple[int, Author]]:
    """Return the rows that opened in a possible place: the ref and the author of each."""
    return [
        (row.ref, author)
        for row, data, author in zip(rows, opened.data, opened.authors, strict=True)
        if author is not None and (data is None or not data.startswith(UNOPENED))
    ]


# --- checking ---------------------------------------------------------------------------------------------------------


def check_rows(name: Name, rows: Sequence[Row], opened: Opened, cells: Mapping[str, Cell]) -> None:
    """Raise SealBrokenError if rows of a whole history are missing.

    Not where a record does not open: that is reported as a corrupt record, and may be what is missing.
    """
    for data, author in zip(opened.data, opened.authors, strict=True):
        if data is not None and (data.startswith(UNOPENED) or (author is None and data[:1] != b"{")):
            return
    top, authors = cells.get(TOP), [author for _, author in in_order(rows, opened)]
    if top is not None and top.expired:
        return
    if authors and (top is None or not top.alive):
        raise _rows_missing(name, "the record that names its newest row was removed")
    newest = top.value if top is not None and top.alive else UNKNOWN
    if newest != UNKNOWN and (not authors or newest != top_of(authors[-1])):
        raise _rows_missing(name, "the last row is not the newest one")
    gap = first_gap(authors, decode_holes(cells[HOLES].value if HOLES in cells else None))
    if gap is not None:
        raise _rows_missing(name, f"a row before number {gap.number} of its writer is missing")


def check_runs(name: Name, cells: Mapping[str, Cell]) -> None:
    """Raise SealBrokenError if an open run's note was removed: the conversation would go past the run."""
    listed = cells.get(RUNS)
    for run in sorted(decode_runs(listed.value)) if listed is not None and listed.alive else ():
        if OPEN_RUN + run not in cells:
            raise SealBrokenError(
                f"run {run!r} of {name.kind} {name.id!r} has not ended, and its note was removed; nothing was changed",
                "Restore the store from a copy, or open the session with unreadable='leave_out' and resume or cancel "
                "that run.",
            )


def _rows_missing(name: Name, why: str) -> SealBrokenError:
    """Build the error for a history that differs from the written history: remaining rows may mislead."""
    return SealBrokenError(
        f"rows of {name.kind} {name.id!r} were removed, or put in another place: {why}; nothing was changed",
        _ACCEPT,
    )


def head_broken(name: Name) -> SealBrokenError:
    """The error for a cell of the head that does not open."""
    return SealBrokenError(f"the sealed head of {name.kind} {name.id!r} was altered; nothing was changed", _ACCEPT)


_ACCEPT = (
    "Restore the store from a copy. To read what is left, open the session with unreadable='leave_out'; reseal() then "
    "accepts it as it is."
)
