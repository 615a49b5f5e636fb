"""Catalogue of all checks: importing the package of checks registers them."""

from __future__ import annotations

from standfast._kits.conformance import checks as checks
from standfast._kits.conformance.registry import CHECKS, Check
from standfast._kits.contract.clauses import CLAUSES, clause, sort_key


def clauses_of(parts: str) -> list[str]:
    """Return the clauses of these parts that apply to a store: A and B whole, of the remaining parts those with a
    check.
    """
    answered = {clause_id for clause_id in CLAUSES if clause_id[0] in "AB" or clause_id in CHECKS}
    return [clause_id for clause_id in CLAUSES if clause_id in answered and clause_id[0] in parts]


def checks_of(*clause_ids: str) -> list[Check]:
    """Return the checks of these clauses, or of all, in the order of the contract; NotFoundError for an unknown id."""
    wanted = [clause(one).id for one in clause_ids] or list(CHECKS)
    return [check for clause_id in sorted(wanted, key=sort_key) for check in CHECKS.get(clause_id, [])]
