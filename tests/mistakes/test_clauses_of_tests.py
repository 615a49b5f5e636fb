"""A test proves the clauses that its marker and its docstring name, else those of its class, then of its module."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.clauses import clauses_of

# Written in parts, so that this file itself names no clause.
EXAMPLES = '''"""A module about CLAUSE-A9."""
import pytest

def test_that_names_none(): ...

def test_with_a_sentence():
    """A gap is refused (CLAUSE-B1b); CLAUSE-B1z is not a sentence."""

def test_with_a_docstring():
    """A lost answer is repeated (clause CLAUSE-B1), as CLAUSE-C12 says; CLAUSE-A99 is not a clause, nor is XA1."""

def test_with_a_range():
    """CLAUSE-E5 to CLAUSE-E7, CLAUSE-E13."""

@pytest.mark.clause("CLAUSE-D4", backend="runs")
def test_with_a_marker():
    """Says nothing."""

@pytest.mark.clause("CLAUSE-D4", backend="runs")
def test_with_a_marker_and_a_docstring():
    """CLAUSE-D6 too."""

@pytest.mark.clause("CLAUSE-C15c", "CLAUSE-C15d", backend="runs")
def test_with_a_marker_of_sentences(): ...

@pytest.mark.clause("CLAUSE-A6", backend="memory", check="of the kit")
def test_of_the_kit():
    """CLAUSE-A6: repeating it under CLAUSE-B1 is safe."""

class TestOfAClass:
    """About CLAUSE-E2."""

    def test_inside(self): ...

    def test_inside_with_its_own(self):
        """CLAUSE-E3."""
'''.replace("CLAUSE-", "")


@pytest.fixture
def proved(tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, str]:
    path = tmp_path / "test_examples.py"
    path.write_text(EXAMPLES, encoding="utf-8")
    module: pytest.Module = pytest.Module.from_parent(request.session, path=path)
    return {item.name: " ".join(sorted(clauses_of(item))) for item in items_in(module)}


def items_in(node: pytest.Collector) -> Iterator[pytest.Item]:
    for each in node.collect():
        if isinstance(each, pytest.Item):
            yield each
        elif isinstance(each, pytest.Collector):
            yield from items_in(each)


def test_the_nearest_name_counts(proved: dict[str, str]) -> None:
    assert proved == {
        "test_that_names_none": "A9",
        "test_with_a_sentence": "B1",
        "test_with_a_docstring": "B1 C12",
        "test_with_a_range": "E13 E5 E6 E7",
        "test_with_a_marker": "D4",
        "test_with_a_marker_and_a_docstring": "D4 D6",
        "test_with_a_marker_of_sentences": "C15",
        "test_of_the_kit": "A6",
        "test_inside": "E2",
        "test_inside_with_its_own": "E3",
    }
