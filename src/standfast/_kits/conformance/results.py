"""Outcome of a check, and the value of a clause after all of its checks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from standfast._kits.conformance.backend import Backend
from standfast._kits.contract.clauses import CLAUSES

KEPT, BROKEN, NOT_APPLICABLE, NOT_CLAIMED, LEFT_OUT = "kept", "broken", "not applicable", "not claimed", "left out"
NOT_RUN = "not run"
"""The value of a clause that no check has looked at."""


@dataclass(frozen=True, slots=True)
class Result:
    """Outcome of a check: kept, broken or left out; `detail` is the observation or the reason."""

    clause_id: str
    check: str
    value: str
    detail: str = ""
    has_hung: bool = False
    """True if it counts as broken because of a timeout; on a slow machine that may prove nothing."""


def excuse(backend: Backend, clause_id: str) -> str | None:
    """Return the author's reason for leaving a clause out, or None if claimed."""
    return backend.not_applicable.get(clause_id) or backend.not_claimed.get(clause_id)


def value_of(backend: Backend, clause_id: str, results: Iterable[Result]) -> tuple[str, str]:
    """Return the value of a clause in a scorecard, and the reason unless kept."""
    if clause_id in backend.not_applicable:
        return NOT_APPLICABLE, backend.not_applicable[clause_id]
    if clause_id in backend.not_claimed:
        return NOT_CLAIMED, backend.not_claimed[clause_id]
    mine = [result for result in results if result.clause_id == clause_id]
    broken = [result for result in mine if result.value == BROKEN]
    if broken:
        return BROKEN, broken[0].detail
    if any(result.value == KEPT for result in mine):
        return KEPT, ""
    reasons = "; ".join(dict.fromkeys(result.detail for result in mine))
    if backend.permitted is not None:
        return NOT_RUN, reasons  # on a shared store, a missing check says nothing about the store
    return NOT_CLAIMED, reasons or f"the kit has no check of {CLAUSES[clause_id].title}"
