"""Every check there is: importing the package of checks registers them."""

from __future__ import annotations

from holdfast.sessions.clauses import sort_key

from . import checks as checks
from .registry import CHECKS, Check


def checks_of(*clause_ids: str) -> list[Check]:
    """The checks of these clauses, or of all, in the order of the contract."""
    wanted = clause_ids or tuple(CHECKS)
    return [check for clause_id in sorted(wanted, key=sort_key) for check in CHECKS.get(clause_id, [])]
