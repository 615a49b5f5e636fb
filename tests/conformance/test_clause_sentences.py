"""The contract as data: every sentence of it is short enough to be tested, and can be named."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from standfast import NotFoundError
from standfast._kits.contract.clauses import CLAUSES, GROUP_OF, clause, clause_with

ROOT = Path(__file__).parent.parent.parent
WORDS_MAX = 80


def test_no_sentence_of_the_contract_is_longer_than_80_words() -> None:
    """Split a longer one with `Clause.group`: what cannot be read at once is not tested as a whole."""
    sentences = {name: text for each in CLAUSES.values() for name, text in each.lettered.items()}
    assert sentences.keys() == GROUP_OF.keys()
    assert not [name for name, text in sentences.items() if len(text.split()) > WORDS_MAX]


def test_a_group_has_at_least_two_sentences_and_no_more_than_letters() -> None:
    groups = [each for each in CLAUSES.values() if each.sentences]
    assert groups
    assert not [each.id for each in groups if not 2 <= len(each.sentences) <= 26]
    assert not [each.id for each in groups if " ".join(each.lettered.values()) != each.text]


def test_a_clause_is_found_by_a_sentence_of_it_and_checked_as_a_whole() -> None:
    assert clause_with("C15b") is clause("C15") is clause_with("C15")
    assert clause_with("A1") is clause("A1")
    with pytest.raises(NotFoundError, match=r"C15b is a sentence of C15.*Name C15\."):
        clause("C15b")
    with pytest.raises(NotFoundError, match="no clause 'A1a'"):
        clause_with("A1a")


@pytest.mark.parametrize(
    ("wanted", "said"), [("B7a", "B7a is a sentence of B7"), ("b7", "no clause 'b7'"), ("Z9", "no clause 'Z9'")]
)
def test_the_kits_command_refuses_a_clause_that_it_cannot_check(wanted: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "stores.py").write_text(STORE)
    command = [sys.executable, "-m", "standfast.conformance", "stores.py:Mine", "--clause", wanted]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert ended.returncode == 1
    assert ended.stderr.startswith(("there is ", wanted))
    assert said in ended.stderr
    assert "Traceback" not in ended.stderr


def test_standfast_verify_refuses_a_sentence_by_name() -> None:
    command = [sys.executable, "-m", "standfast", "verify", "talks.db", "--clause", "a13b"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert ended.returncode != 0
    assert "is a sentence of A13" in ended.stderr


STORE = """
from standfast import InMemorySession
from standfast.conformance import Backend

class Mine(Backend):
    name = "mine"
    def open(self, session_id, **options):
        return InMemorySession(session_id, **options)
"""


def test_every_sentence_that_a_page_names_is_there() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    links = [
        found for page in pages for found in re.findall(r"contract\.md#([a-z]\d+[a-z]?)\b", page.read_text("utf-8"))
    ]
    assert links
    assert not {link.upper()[:1] + link[1:] for link in links} - GROUP_OF.keys() - CLAUSES.keys()
