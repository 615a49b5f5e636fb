"""The kit as a pytest class: `TestMyStore = suite(MyStore())`.

One test for every check that can be made on the backend, named after its clause, such as
`test_A5_a_large_batch_keeps_its_order`.
Clauses that are left out get no test; the scorecard has them with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from standfast._kits.conformance.backend import Backend
from standfast._kits.conformance.catalogue import checks_of, clauses_of
from standfast._kits.conformance.check_context import Options
from standfast._kits.conformance.registry import Check
from standfast._kits.conformance.results import LEFT_OUT, Result, excuse, value_of
from standfast._kits.conformance.run import declared_abilities, run_check
from standfast._kits.conformance.scorecard import Scorecard
from standfast._kits.contract.clauses import CLAUSES


class Described:
    """A suite's declarations about its backend besides its tests: found by the plugin on the class."""

    def __init__(self, backend: Backend, left_out: list[Result], parts: str) -> None:
        self.backend, self.left_out, self.parts = backend, left_out, parts

    def declare(self, card: Scorecard) -> None:
        """Record every clause without a test, with the reason."""
        tested = {check.clause_id for check in checks_of()} - self.untested()
        clause_ids = clauses_of(self.parts)
        card.declare(self.backend, clause_ids, self.left_out)
        for clause_id in clause_ids:
            if clause_id not in tested:
                value, reason = value_of(self.backend, clause_id, self.left_out)
                card.set_value(self.backend, clause_id, value, reason)

    def untested(self) -> set[str]:
        """Return the clauses without a possible check."""
        left = {(result.clause_id, result.check) for result in self.left_out}
        made = {check.clause_id for check in checks_of() if (check.clause_id, check.name) not in left}
        return {check.clause_id for check in checks_of()} - made


def suite(backend: Backend, *, parts: str = "ABCF", options: Options | None = None) -> type:
    """Build a test class with a test for each check of these parts that the backend supports.

    Give it a name that pytest collects: `TestMyStore = suite(MyStore())`. `options` is the amount of work; None:
    pytest's command line.
    """
    backend.check_description()
    declared = declared_abilities(backend)
    members: dict[str, Any] = {"__doc__": f"The contract, on {backend.name}."}
    left_out = []
    for check in checks_of():
        if check.clause_id[0] not in parts:
            continue
        missing = excuse(backend, check.clause_id) or check.missing(backend, declared)
        if missing:
            left_out.append(Result(check.clause_id, check.name, LEFT_OUT, missing))
        else:
            members[f"test_{check.clause_id}_{check.name}"] = _test(backend, check, options)
    members["conformance"] = Described(backend, left_out, parts)
    return type(f"Conformance of {backend.name}", (), members)


def _test(backend: Backend, check: Check, options: Options | None) -> Callable[..., None]:
    def test(self: object, request: pytest.FixtureRequest) -> None:
        run_check(backend, check, options or options_of(request.config))

    test.__doc__ = f"{check.clause_id}: {CLAUSES[check.clause_id].text}"
    pytest.mark.clause(check.clause_id, backend=backend.name, check=check.name)(test)
    return test


def options_of(config: pytest.Config) -> Options:
    """Return the amount of work by pytest's command line."""
    return Options(
        rounds=config.getoption("conformance_rounds"),
        examples=config.getoption("conformance_examples"),
        objects=config.getoption("conformance_objects"),
        repeatable=_is_repeatable(),
    )


def _is_repeatable() -> bool:
    """Return whether generated examples are the same in every run, by the suite's own profile of Hypothesis."""
    try:
        from hypothesis import settings
    except ImportError:  # then the checks that generate any are left out
        return False
    return bool(settings().derandomize)
