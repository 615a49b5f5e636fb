"""Every check there is: importing the package of checks registers them."""

from __future__ import annotations

from standfast.conformance import checks as checks
from standfast.conformance.registry import CHECKS, Check
from standfast.sessions.clauses import sort_key


def checks_of(*clause_ids: str) -> list[Check]:
    """The checks of these clauses, or of all, in the order of the contract."""
    wanted = clause_ids or tuple(CHECKS)
    return [check for clause_id in sorted(wanted, key=sort_key) for check in CHECKS.get(clause_id, [])]
