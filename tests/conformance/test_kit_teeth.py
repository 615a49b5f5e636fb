"""The kit sees every mistake of `mistakes`, by the clause that it breaks."""

from __future__ import annotations

import pytest

from standfast._kits.conformance.catalogue import checks_of
from standfast._kits.conformance.results import BROKEN as SEEN_BROKEN, KEPT
from standfast.conformance import Options, check
from tests.conformance.kit_backends import Memory, StandfastSQLite
from tests.conformance.mistakes import BROKEN, Mistake
from tests.conformance.mistakes.files import Lines
from tests.conformance.mistakes.lifetime import Expires

QUICK = Options(rounds=12, examples=150, objects=2_000, repeatable=True, soon_s=2, shrink=False)


@pytest.mark.parametrize("mistake", BROKEN, ids=str)
def test_a_mistake_is_seen_by_the_clause_it_breaks(mistake: Mistake) -> None:
    (found,) = check(mistake.backend, mistake.clause, only=mistake.check, options=QUICK)
    assert found.value == SEEN_BROKEN, f"{mistake.backend.name!r} got through: {found}"
    assert found.detail, "it does not say what was seen"


def test_every_check_has_a_mistake_that_it_catches() -> None:
    """A check that nothing can fail is no check."""
    checks = {(found.clause_id, found.name) for found in checks_of()}
    assert checks == {(mistake.clause, mistake.check) for mistake in BROKEN}


def test_the_stores_that_the_mistakes_are_made_of_are_right() -> None:
    """Otherwise a mistake could be caught for another reason than the one it was made for."""
    results = check(Lines(), "A1", "A5", "A6", "A9", "A10", "A11", "A23", options=QUICK) + check(
        Expires(), "A20", options=QUICK
    )
    assert not [result for result in results if result.value == SEEN_BROKEN]
    assert {"A5", "A20", "A23"} <= {result.clause_id for result in results if result.value == KEPT}
    assert Memory().can("stall")
    assert StandfastSQLite().can("peer")
