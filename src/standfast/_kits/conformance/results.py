"""What came of a check, and what a clause is worth after all of its checks."""

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
    """What came of one check: kept, broken or left out; `detail` says what was seen or why it was not made."""

    clause_id: str
    check: str
    value: str
    detail: str = ""
    has_hung: bool = False
    """Whether it is broken because the check did not come back in time; on a slow machine that may prove nothing."""


def excuse(backend: Backend, clause_id: str) -> str | None:
    """Why the backend's author leaves this clause out; None if it is claimed."""
    return backend.not_applicable.get(clause_id) or backend.not_claimed.get(clause_id)


def value_of(backend: Backend, clause_id: str, results: Iterable[Result]) -> tuple[str, str]:
    """The value of one clause in a scorecard, and the reason for it where it is not kept."""
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
        return NOT_RUN, reasons  # on a store that others use, that it was not looked at says nothing about the store
    return NOT_CLAIMED, reasons or f"the kit has no check of {CLAUSES[clause_id].title}"
