"""What is printed: safe for a terminal whatever was stored, tables that fit, JSON, and questions that are asked."""

from __future__ import annotations

import io
import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given, strategies as st

from standfast._kits.cli.output import Column, Node, Output
from standfast._kits.operators.exit_codes import RefusedError
from standfast._src.base.safe_text import safe, safe_lines, shorten, width_of


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def output(*, terminal: bool = True, answer: str | None = None, **settings: Any) -> tuple[Output, Any, Any]:
    kind = Terminal if terminal else io.StringIO
    out, err = kind(), kind()
    asked = io.StringIO() if answer is None else Terminal(answer)
    return Output(stdout=out, stderr=err, stdin=asked, **settings), out, err


COLUMNS = [
    Column("SESSION", "id"),
    Column("ITEMS", "items", is_right=True),
    Column("FIRST WORDS", "words", gives_way=True),
]
EVIL = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe\u2066\x9b31m\r\n\x7f[bold]x[/]\ud800"

anything = st.text(st.characters())


def acts_on_a_terminal(text: str) -> list[str]:
    return [
        one
        for one in text
        if unicodedata.category(one) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(one) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
    ]


@given(anything)
def test_no_text_can_act_on_a_terminal(text: str) -> None:
    assert not acts_on_a_terminal(safe(text))
    assert not any(acts_on_a_terminal(line) for line in safe_lines(text))


@given(st.text(st.characters(categories=["L", "N", "P", "S", "Zs"])))
def test_what_people_write_is_shown_as_it_is(text: str) -> None:
    if not any(one in text for one in "\u115f\u1160\u3164\uffa0"):  # letters that cannot be seen
        assert safe(text) == text


def test_emoji_and_persian_keep_their_joiners() -> None:
    for text in ("👨\u200d👩\u200d👧", "می\u200cخواهم"):
        assert safe(text) == text


@given(st.lists(st.tuples(anything, st.integers(), anything), max_size=4), st.booleans(), st.booleans())
def test_nothing_that_is_printed_can_act_on_a_terminal(
    rows: list[tuple[str, int, str]], terminal: bool, as_json: bool
) -> None:
    """Tables, trees, notes, errors and JSON alike. With rich there is colour: only its own."""
    out, told, beside = output(terminal=terminal, as_json=as_json)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_COLOR", "1")
        out.table("standfast.thing/1", COLUMNS, [{"id": a, "items": b, "words": c} for a, b, c in rows])
        for one, _, two in rows:
            out.line(one)
            out.text(one, indent="  ")
            out.tree(Node(one, [Node(two)]))
            out.note(two)
            out.page(one, two)
            out.report_failure(5, one, two)
    for text in (told.getvalue(), beside.getvalue()):
        assert not acts_on_a_terminal(text.replace("\n", "").replace("\t", ""))
    if as_json:
        lines = [json.loads(line) for line in beside.getvalue().splitlines()]
        assert [line["what"] for line in lines] == [one for one, _, _ in rows]


def test_a_table_is_cut_to_the_terminal_and_whole_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [{"id": "a", "items": 3, "words": "x" * 80}, {"id": "日本", "items": 12345, "words": EVIL}]
    out, told, _ = output()
    assert out.table("standfast.thing/1", COLUMNS, rows) == 2
    lines = told.getvalue().splitlines()
    assert lines[0] == "SESSION  ITEMS  FIRST WORDS"
    assert lines[1] == "a            3  " + "x" * 23 + "…"
    assert all(width_of(line) <= 40 for line in lines)
    out, told, _ = output(terminal=False)
    out.table("standfast.thing/1", COLUMNS, rows)
    assert [line.split("\t")[:2] for line in told.getvalue().splitlines()] == [["a", "3"], ["日本", "12345"]]
    assert "x" * 80 in told.getvalue()


def test_with_rich_a_table_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra adds bold and a rule, and reads no marks in stored text."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    out, told, _ = output()
    out.table("standfast.thing/1", COLUMNS, [{"id": "a", "items": 3, "words": "[bold red]hello[/] :smile:"}])
    text = told.getvalue()
    assert "[bold red]hello[/] :smile:" in text
    assert "\x1b[1m" in text
    assert "─" in text


def test_json_is_one_object_on_a_line_with_its_schema() -> None:
    out, told, _ = output(as_json=True)
    out.table("standfast.thing/1", COLUMNS, [{"id": EVIL, "items": 3, "words": "é", "more": (1, 2)}])
    out.page("cursor")
    first, last = told.getvalue().splitlines()
    assert json.loads(first) == {"schema": "standfast.thing/1", "id": EVIL, "items": 3, "words": "é", "more": [1, 2]}
    assert json.loads(last) == {"schema": "standfast.page/1", "after": "cursor"}
    assert first.isascii()


def test_shortened_text_fits() -> None:
    assert shorten("hello", 5) == "hello"
    assert shorten("hello", 4) == "hel…"
    assert width_of(shorten("日本語日本語", 5)) <= 5


def test_progress_is_for_people_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("standfast._kits.cli.output.PROGRESS_AFTER_S", 0.0)
    monkeypatch.setenv("TERM", "xterm")
    for terminal, as_json in ((True, False), (False, False), (True, True)):
        out, told, beside = output(terminal=terminal, as_json=as_json)
        with out.progress("reading", 10) as progress:
            for _ in range(10):
                progress.advance()
        assert told.getvalue() == ""
        assert bool(beside.getvalue()) == (terminal and not as_json)
    out, _, beside = output()
    with out.progress("reading", 10) as progress:
        progress.advance()
    assert "reading: 1 of 10" in beside.getvalue()
    assert beside.getvalue().endswith("\r\x1b[2K")


@pytest.mark.parametrize(("answer", "agreed"), [("y\n", True), ("Yes\n", True), ("n\n", False), ("", False)])
def test_what_cannot_be_undone_is_asked(answer: str, agreed: bool) -> None:
    out, _, beside = output(answer=answer)
    if agreed:
        out.confirm("This removes it", details=["for good"])
    else:
        with pytest.raises(RefusedError, match="nothing was changed"):
            out.confirm("This removes it", details=["for good"])
    assert beside.getvalue() == "This removes it.\nfor good\nGo on? [y/N] "


def test_where_nobody_can_be_asked_it_is_refused_unless_it_is_meant() -> None:
    out, _, beside = output(terminal=False)
    with pytest.raises(RefusedError, match="--yes"):
        out.confirm("This removes it")
    out, _, beside = output(terminal=False, yes=True)
    out.confirm("This removes it")
    assert beside.getvalue() == "This removes it.\n"
