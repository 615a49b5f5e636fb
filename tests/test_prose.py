"""The lint of prose finds what it is for, and its table only ever goes down."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tools"))
try:
    import prose
finally:
    sys.path.pop(0)  # tools/site.py is not the standard library's

PAIRS = prose.word_pairs(prose.GLOSSARY.read_text(encoding="utf-8"))
CLEAR = 'def store(item):\n    """Store an item once."""\n'


def kinds(folder: Path, source: str) -> list[str]:
    file = folder / "module.py"
    file.write_text(source, encoding="utf-8")
    return sorted(finding.kind for finding in prose.read(file, PAIRS)[0])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (CLEAR, []),
        ('"""What a run costs."""', ["openers"]),
        ('"""Whether the run has ended."""', ["openers"]),
        ('"""Return whether the run has ended."""', []),
        ('"""Keep those of others that it has for them."""', ["actors", "dense"]),
        ("# A caller waits here; nobody else does.\n", ["actors"]),
        ("raise ValueError('somebody else has the session')\n", ["actors"]),
        ("somebody = others = 1\n", []),
        ('"""Continue a run that goes on."""', ["everyday"]),
        ("def told():\n    pass\n", ["names"]),
        ("def of(run):\n    pass\n", ["names"]),
        ("class A:\n    @property\n    def finished(self):\n        pass\n", []),
    ],
)
def test_each_rule_finds_its_mistake_and_nothing_else(tmp_path, source, expected):
    assert kinds(tmp_path, source) == expected


def test_the_glossary_gives_the_words_that_are_suggested(tmp_path):
    assert len(PAIRS) >= 10
    file = tmp_path / "module.py"
    file.write_text('"""Wake a caller that is told."""', encoding="utf-8")
    (finding,), _ = prose.read(file, PAIRS)
    assert PAIRS["told"] in str(finding)


def test_a_folder_may_not_become_worse_and_says_where(tmp_path):
    room = tmp_path / "_src" / "room"
    room.mkdir(parents=True)
    (room / "module.py").write_text(CLEAR, encoding="utf-8")
    figures, found = prose.measure(tmp_path, PAIRS)
    table = {folder: prose.lowered(now, None) for folder, now in figures.items()}
    assert prose.check(figures, found, table) == []

    (room / "module.py").write_text(CLEAR + '\n\ndef cost():\n    """What it costs."""\n', encoding="utf-8")
    figures, found = prose.measure(tmp_path, PAIRS)
    message = "\n".join(prose.check(figures, found, table))
    assert "_src/room: openers: 1, and 0 are allowed" in message
    assert "module.py:5: openers" in message


def test_neither_a_good_docstring_nor_a_deleted_one_makes_a_folder_worse():
    allowed = {"pronouns": 10, "words": 100}
    counts = dict.fromkeys(prose.KINDS, 0)
    assert prose.exceeded(counts | {"pronouns": 11, "words": 140}, allowed) == []
    assert prose.exceeded(counts | {"pronouns": 9, "words": 60}, allowed) == []
    assert prose.exceeded(counts | {"pronouns": 11, "words": 105}, allowed) == ["pronouns"]


def test_the_table_is_only_ever_lowered():
    allowed = dict.fromkeys(prose.KINDS, 3) | {"pronouns": 10, "words": 100}
    worse = dict.fromkeys(prose.KINDS, 5) | {"pronouns": 30, "words": 100}
    better = dict.fromkeys(prose.KINDS, 1) | {"pronouns": 5, "words": 90}
    assert prose.lowered(worse, allowed) == allowed
    assert prose.lowered(better, allowed) == better


def test_the_command_line_lists_the_findings_of_a_file(tmp_path):
    (tmp_path / "module.py").write_text('"""Who waits."""', encoding="utf-8")
    ended = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "prose.py"), str(tmp_path)], capture_output=True, text=True
    )
    assert ended.returncode == 0
    assert "module.py:1: openers" in ended.stdout
