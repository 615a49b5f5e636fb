"""Every rule is needed: a small change of it is seen by the clause it breaks."""

from __future__ import annotations

import pytest
from helpers.catching import check_caught

from standfast.conformance import Options, check
from tests.conformance.kit_backends import Memory
from tests.mistakes.planting import planted
from tests.mistakes.registry import Mistake, proving

QUICK = Options(rounds=4, examples=120, objects=200, repeatable=True, shrink=False)


@pytest.mark.parametrize("mistake", proving("rules"), ids=lambda mistake: mistake.id)
def test_a_wrong_rule_is_seen_by_the_clause_it_breaks(mistake: Mistake) -> None:
    with planted(mistake):
        results = check(Memory(), *mistake.clauses, only=mistake.check, options=QUICK)
    check_caught(results, mistake.id)
