"""Every clause has a deliberate mistake in the product's own code, and each mistake can be planted."""

from __future__ import annotations

from collections import Counter

from standfast._kits.contract.clauses import CLAUSES
from tests.mistakes.registry import every_mistake, source_mistakes


def test_every_text_that_a_mistake_replaces_occurs_once() -> None:
    problems = []
    for mistake in source_mistakes():
        try:
            compile(mistake.wrong_source(), mistake.file, "exec")
        except (LookupError, SyntaxError, OSError) as error:
            problems.append(f"{mistake.id}: {error}")
    assert not problems, "\n".join(problems)


def test_ids_are_unique_and_clauses_exist() -> None:
    assert not [name for name, count in Counter(mistake.id for mistake in every_mistake()).items() if count > 1]
    assert not [
        mistake.id for mistake in every_mistake() if not mistake.clauses or set(mistake.clauses) - CLAUSES.keys()
    ]


def test_every_clause_has_a_mistake_in_the_products_own_code() -> None:
    planted = {clause for mistake in source_mistakes() for clause in mistake.clauses}
    assert planted == CLAUSES.keys()
