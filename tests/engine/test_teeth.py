"""The properties can fail: each of these wrong engines is caught by them."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from holdfast.errors import HoldfastError
from tests.engine import strategies as some
from tests.engine.mutants import MUTANTS, Mutant
from tests.engine.properties import check


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.fault.replace(" ", "-"))
def test_a_wrong_engine_is_caught(mutant: Mutant):
    engine = mutant.engine()

    @settings(
        deadline=None,
        max_examples=4_000,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(some.scripts(), some.anything, some.saves)
    def properties(script, schedule, saves):
        check(script, schedule, saves, engine)

    with pytest.raises((AssertionError, HoldfastError)):
        properties()
