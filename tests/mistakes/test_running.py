"""The run of the mistakes: which tests look at one, in which order, and what its page says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mistakes.registry import Mistake
from tools import mutants
from tools.mutants import CAUGHT, SURVIVED, Book, Listed, Planting, Verdict, digest_of, page, selection

ONE = Mistake("engine/one", "one is two", ("C3",), "src/standfast/_src/runs/engine/due.py", "1", "2")
OTHER = Mistake("engine/other", "a | b", ("C3", "C8"), "src/standfast/_src/runs/engine/due.py", "3", "4")


def listed(test: str, *clauses: str, needs: tuple[str, ...] = ()) -> Listed:
    return Listed(test, frozenset(clauses), needs, "")


def test_the_tests_of_its_clauses_look_at_a_mistake_and_the_likeliest_first() -> None:
    tests = [
        listed("tests/a.py::test_many[1]", "C3", "C4"),
        listed("tests/a.py::test_many[2]", "C3", "C4"),
        listed("tests/a.py::test_of_another_clause", "C4"),
        listed("tests/b.py::test_on_a_server", "C3", needs=("redis",)),
        listed("tests/c.py::test_of_due", "C3", "C4", "C5"),
        listed("tests/d.py::test_slow", "C3"),
        listed("tests/d.py::test_quick", "C3"),
    ]
    stages = selection(ONE, tests, "tests/b.py::test_on_a_server", {"tests/d.py::test_slow": 9.0})
    assert [[one.test.partition("::")[2] for one in stage] for stage in stages] == [
        ["test_on_a_server"],  # it caught the mistake the last time
        ["test_of_due", "test_quick", "test_many[1]", "test_slow"],
        ["test_many[2]"],
        ["test_on_a_server"],
    ]


def test_a_planted_file_is_as_it_was_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "due.py"
    path.write_text("right = 1\n", encoding="utf-8")
    before, times = path.read_bytes(), path.stat().st_mtime_ns
    seconds = set()
    for wrong in ("wrong = 1\n", "wrong = 2\n"):
        with Planting(path, wrong):
            assert path.read_text(encoding="utf-8") == wrong
            seconds.add(int(path.stat().st_mtime))
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, times)
    # Python takes a compiled file for that of a source of the same second and size.
    assert len({*seconds, times // 10**9}) == 3


def test_the_page_names_survivors_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "STATE", tmp_path)
    monkeypatch.setattr(mutants, "VERDICTS", tmp_path / "verdicts.json")
    book = Book([ONE, OTHER])
    book.enter(ONE, Verdict(digest_of(ONE), SURVIVED))
    book.enter(OTHER, Verdict(digest_of(OTHER), CAUGHT, "tests/a.py::test_it", is_proved=True))
    again = Book([ONE, OTHER])
    assert [again.stands(ONE), again.knows(ONE), again.stands(OTHER)] == [False, True, False]  # its files are others
    text = page([ONE, OTHER], again)
    assert "Mistakes: 2. Caught: 1. Survivors: 1." in text
    assert text.index("| **engine/one** | [C3](contract.md#c3) | one is two |") < text.index("## [C3]")
    assert "| a \\| b (also [C8](contract.md#c8)) | `_src/runs/engine/due.py` | `a.py::test_it` |" in text
    assert "**no check: survived**" in text
