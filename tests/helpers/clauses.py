"""Clauses of the contract that a test proves: one rule for the tiers, the scorecard and the run of the mistakes.

A test names its clauses by the marker `clause("C3")` and in its docstring ("C3: …", "(clause B1)", "E5 to E10"). A
sentence of a clause ("C15b") counts for the clause. Where neither names one, the docstring of its class counts, then
that of its module. A check of the kit carries its marker only: its docstring is the text of the clause, which mentions
others.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from standfast._kits.contract.clauses import CLAUSES, GROUP_OF, clause_with

_NAMED = re.compile(r"\b([A-Z])(\d{1,2})([a-z]?)\b(?:(?:\s+to\s+|–)\1(\d{1,2})\b)?")


def named_clauses(text: str | None) -> frozenset[str]:
    """Return the ids of clauses that a text names, with those between two of a range such as "E5 to E10"."""
    found: set[str] = set()
    for letter, first, part, last in _NAMED.findall(text or ""):
        found.add(f"{letter}{first}{part}")
        found.update(f"{letter}{number}" for number in range(int(first) + 1, int(last or first) + 1))
    return frozenset(GROUP_OF.get(clause_id, clause_id) for clause_id in found) & CLAUSES.keys()


def clauses_of(item: pytest.Item) -> frozenset[str]:
    """Return the ids of the clauses that this test proves; none where neither it nor what it stands in names one."""
    markers = list(item.iter_markers("clause"))
    marked = frozenset(clause_with(clause_id).id for marker in markers for clause_id in marker.args)
    if any("check" in marker.kwargs for marker in markers):
        return marked
    own = marked | named_clauses(_docstring(item, "function"))
    return own or named_clauses(_docstring(item, "cls")) or named_clauses(_docstring(item, "module"))


def _docstring(item: pytest.Item, part: str) -> str | None:
    described: Any = getattr(item, part, None)
    return getattr(described, "__doc__", None)
