"""The scorecard in docs/ shows every clause that the kit has, for every backend of ours and the SDK's."""

from __future__ import annotations

import pytest

from standfast._kits.conformance.catalogue import clauses_of
from tools.scorecards import COLUMNS, PAGE, THEIRS, Page, loaded, stale

TEXT = PAGE.read_text(encoding="utf-8")
NAMES = [loaded(reference).name for reference in COLUMNS]


def test_it_has_a_value_for_every_clause_of_the_kit_and_every_backend() -> None:
    """A clause that was added to the kit and is missing here means: run `./dev scorecards --stale`."""
    fields = Page.read(TEXT).fields
    assert list(fields) == clauses_of("ABCF")
    assert {clause_id: row for clause_id, row in fields.items() if not all(row.get(name) for name in NAMES)} == {}


@pytest.mark.parametrize("reference", COLUMNS)
def test_a_column_tells_of_as_many_checks_as_the_kit_has(reference: str) -> None:
    """A check that was added to the kit and is missing here means: run `./dev scorecards --stale`."""
    assert stale(Page.read(TEXT), reference) == []


def test_no_backend_of_ours_is_shown_with_a_broken_clause() -> None:
    ours = [loaded(reference).name for reference in COLUMNS if reference not in THEIRS]
    fields = Page.read(TEXT).fields
    assert [clause_id for clause_id, row in fields.items() if any("broken" in row[name] for name in ours)] == []


def test_it_is_what_the_command_writes_and_a_field_seen_again_replaces_its_reasons() -> None:
    page = Page.read(TEXT)
    assert page.text(NAMES) == TEXT
    name, check = loaded("kit_backends:AgentsSQLite").name, {"check": "a_check", "value": "kept", "detail": ""}
    assert ("A2", name) in page.reasons
    page.update(name, "", {"A2": {"value": "kept", "reason": "", "checks": [check]}})
    again = Page.read(page.text(NAMES))
    assert again.fields["A2"][name] == "kept (1/1)"
    assert ("A2", name) not in again.reasons
    assert again.reasons.keys() == Page.read(TEXT).reasons.keys() - {("A2", name)}
