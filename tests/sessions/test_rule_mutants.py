"""Every rule is needed: a small change of it is seen by the clause it breaks."""

from __future__ import annotations

import pytest

from standfast.conformance import Options, check
from standfast.conformance.results import BROKEN
from tests.conformance.kit_backends import Memory
from tests.runs.driver_mutants import Mutant
from tests.sessions.rule_mutants import MUTANTS

QUICK = Options(rounds=4, examples=120, objects=200, repeatable=True, soon_s=2)


class Impatient(Memory):
    patience_s = 8


@pytest.mark.parametrize(("mutant", "clause"), MUTANTS, ids=lambda value: getattr(value, "fault", ""))
def test_a_wrong_rule_is_seen_by_the_clause_it_breaks(mutant: Mutant, clause: str) -> None:
    with mutant.at_work():
        results = check(Impatient(), clause, options=QUICK)
    assert [result for result in results if result.value == BROKEN], f"{mutant.fault}: {clause} did not see it"
