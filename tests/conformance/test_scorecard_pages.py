"""The scorecards in docs/ show every clause that the kit has, for every backend of their page."""

from __future__ import annotations

from pathlib import Path

import pytest

from standfast._kits.conformance.catalogue import clauses_of
from tools.scorecards import PAGES, THEIRS, Page, loaded, rows_of as rows_of_text, stale

ROOT = Path(__file__).resolve().parents[2]


def rows_of(page: Page) -> list[list[str]]:
    return rows_of_text((ROOT / page.path).read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_has_a_value_for_every_clause_of_the_kit_and_every_backend(page: Page) -> None:
    """A clause that was added to the kit and is missing here means: run `./dev scorecards`."""
    heading, _, *rows = rows_of(page)
    assert heading[2:] == [loaded(reference).name for reference in page.backends]
    values = {row[0]: row[2:] for row in rows if not row[0].startswith("**")}
    assert list(values) == clauses_of("ABCF")
    empty = {clause_id: cells for clause_id, cells in values.items() if not all(cells)}
    assert empty == {}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_tells_of_as_many_checks_as_the_kit_has(page: Page) -> None:
    """A check that was added to the kit and is missing here means: run `./dev scorecards --stale`."""
    assert [(reference, clauses) for reference in page.backends if (clauses := stale(page, reference))] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_backend_of_ours_is_shown_with_a_broken_clause(page: Page) -> None:
    _, _, *rows = rows_of(page)
    ours = [place for place, reference in enumerate(page.backends, 2) if reference not in THEIRS]
    assert [row for row in rows if any("broken" in row[place] for place in ours)] == []
