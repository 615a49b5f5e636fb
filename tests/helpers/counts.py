"""How much an attack tried: processes, signals, cancellations, effects. Told at the end of a run of tests/attacks."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

tried: Counter[str] = Counter()
"""What was tried in this process: by what it is called in the summary."""

_effects: dict[str, int] = {}


def saw_effects(book: str | Path, count: int) -> None:
    """Count what is in a book, once, however often it is read."""
    _effects[str(book)] = max(count, _effects.get(str(book), 0))


def summary() -> str:
    """One line, in the order of the alphabet; empty if nothing was tried."""
    told = Counter(tried)
    if effects := sum(_effects.values()):
        told["effects"] = effects
    return ", ".join(f"{count:,} {name}" for name, count in sorted(told.items()))
