"""The short tier leaves out no promise: every clause is checked in it, on every kind of store that the clause is about.

The tests look at the whole suite. Where pytest was asked for a part of it, another pytest collects the rest for them.
"""

from __future__ import annotations

import pytest

from standfast._kits.contract.clauses import CLAUSES
from tests.helpers.collected import COLLECTED, Collected, collect_all
from tests.helpers.tiers import unused

STORAGES = ("TestMemory", "TestSQLite", "TestRedis", "TestPostgres", "TestSQLAlchemySQLite")
WRAPPERS = ("TestSealedMemory", "TestCompactingMemory")


@pytest.fixture(scope="module")
def collected(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Collected]:
    found = request.config.stash.get(COLLECTED, None)
    return found if found is not None else collect_all(tmp_path_factory.mktemp("collected") / "tests.json")


def short(collected: list[Collected]) -> list[Collected]:
    return [test for test in collected if test.tier == "short"]


def test_every_clause_has_a_check_in_the_short_tier(collected: list[Collected]) -> None:
    proved = {clause_id for test in short(collected) for clause_id in test.clauses}
    assert not CLAUSES.keys() - proved


@pytest.mark.parametrize("suite", [*STORAGES, *WRAPPERS])
def test_what_the_kit_checks_on_a_store_is_checked_there_in_the_short_tier(
    suite: str, collected: list[Collected]
) -> None:
    """Parts A and B on the five storages, and once through each wrapper."""
    of_suite = [test for test in collected if test.suite == suite]
    everywhere = {clause_id for test in of_suite for clause_id in test.clauses}
    proved = {clause_id for test in short(of_suite) for clause_id in test.clauses}
    assert everywhere
    assert not everywhere - proved


@pytest.mark.parametrize("part", ["C", "D", "E"])
def test_what_a_run_promises_is_checked_with_and_without_a_server(part: str, collected: list[Collected]) -> None:
    """Parts C to E on SQLite and on a server; part D is about the model's server, and needs no store."""
    clause_ids = {clause_id for clause_id in CLAUSES if clause_id[0] == part}
    embedded = {clause_id for test in short(collected) if not test.servers for clause_id in test.clauses}
    assert not clause_ids - embedded
    served_anywhere = {clause_id for test in collected if test.servers for clause_id in test.clauses}
    served = {clause_id for test in short(collected) if test.servers for clause_id in test.clauses}
    assert not (clause_ids & served_anywhere) - served


def test_every_row_of_the_table_matches_a_test(collected: list[Collected]) -> None:
    assert not unused(test.test_id for test in collected)
