"""The tiers of the test suite, read from `tests/tiers.toml`.

A tier contains the ones before it. A test is in the short tier unless a row of the table moves it to a later one; of
several rows that match a test the longest counts. `one_in` keeps a part of a large table of cases in the short tier:
the cases whose CRC is divisible by it. The same cases are kept in every run, so that a failure can be repeated.
"""

from __future__ import annotations

import tomllib
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TIERS = ("short", "all", "deep")
FILE = Path(__file__).resolve().parents[1] / "tiers.toml"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table: tests whose id begins with `at` belong to `tier`, but for one in `one_in` of them."""

    at: str
    tier: str
    why: str
    one_in: int = 0

    def tier_of(self, test_id: str) -> str:
        """Return the tier of a test that this row matches."""
        kept = self.one_in > 0 and zlib.crc32(test_id.encode()) % self.one_in == 0
        return TIERS[0] if kept else self.tier


@cache
def rows() -> tuple[Row, ...]:
    """Return the rows of the table, the most specific first."""
    found = [Row(**row) for row in tomllib.loads(FILE.read_text(encoding="utf-8"))["tests"]]
    for row in found:
        if row.tier not in TIERS or not row.why.strip():
            raise ValueError(f"{FILE.name}: {row.at} needs a tier of {', '.join(TIERS)} and a reason. Correct the row.")
    return tuple(sorted(found, key=lambda row: len(row.at), reverse=True))


def row_of(test_id: str) -> Row | None:
    """Return the row that decides about a test, or None for a test of the short tier."""
    return next((row for row in rows() if test_id.startswith(row.at)), None)


def tier_of(test_id: str) -> str:
    """Return the tier of a test by its id, such as `tests/cli/test_help.py::test_a_command_has_help`."""
    row = row_of(test_id)
    return TIERS[0] if row is None else row.tier_of(test_id)


def is_in(test_id: str, tier: str) -> bool:
    """Return whether a run of `tier` includes the test."""
    return TIERS.index(tier_of(test_id)) <= TIERS.index(tier)


def unused(test_ids: Iterable[str]) -> list[str]:
    """Return the rows that match none of the tests: their file or test was renamed or removed."""
    seen = {row for test_id in test_ids if (row := row_of(test_id)) is not None}
    return [row.at for row in rows() if row not in seen]
