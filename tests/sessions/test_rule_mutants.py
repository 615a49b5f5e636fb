"""Every rule is needed: a small change of it is seen by the clause it breaks."""

from __future__ import annotations

import pytest
from helpers.catching import check_caught

from standfast.conformance import Options, check
from tests.conformance.kit_backends import Memory
from tests.driver.driver_mutants import Mutant
from tests.sessions.rule_mutants import MUTANTS

QUICK = Options(rounds=4, examples=120, objects=200, repeatable=True, shrink=False)


@pytest.mark.parametrize(("mutant", "clause", "seen_by"), MUTANTS, ids=lambda value: getattr(value, "fault", ""))
def test_a_wrong_rule_is_seen_by_the_clause_it_breaks(mutant: Mutant, clause: str, seen_by: str) -> None:
    with mutant.at_work():
        results = check(Memory(), clause, only=seen_by, options=QUICK)
    check_caught(results, f"{mutant.fault} ({clause})")
