"""The diagrams of states in the docs are those of the code."""

from __future__ import annotations

from realtime.machine.diagrams import PAGE, drawn


def test_the_diagrams_in_the_docs_are_drawn_from_the_code():
    """After a change that was meant: `python tests/realtime/machine/diagrams.py`, and read what has become of them."""
    text = PAGE.read_text(encoding="utf-8")
    assert drawn(text) == text
