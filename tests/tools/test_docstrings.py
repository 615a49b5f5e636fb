"""Docstrings in three styles say the same about a function."""

from __future__ import annotations

import inspect

import pytest
from hypothesis import given, strategies as st

from standfast._src.tools.docstrings import Documentation, read_docstring

GOOGLE = """Send a message.

It goes out at once.

Args:
    to (str): Who gets it.
    body: What it says,
        on several
        lines.
    **extra: More.

Returns:
    A receipt.
"""
NUMPY = """Send a message.

It goes out at once.

Parameters
----------
to : str
    Who gets it.
body
    What it says,
    on several
    lines.
**extra : Any
    More.

Returns
-------
str
    A receipt.
"""
SPHINX = """Send a message.

It goes out at once.

:param str to: Who gets it.
:param body: What it says,
    on several
    lines.
:param extra: More.
:type extra: Any
:return: A receipt.
"""
SAID = Documentation(
    "Send a message.\n\nIt goes out at once.",
    {"to": "Who gets it.", "body": "What it says,\non several\nlines.", "extra": "More."},
)


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_each_style_is_recognised_and_read(text: str):
    assert read_docstring(inspect.cleandoc(text)) == SAID


def test_a_style_can_be_insisted_on():
    assert read_docstring(GOOGLE, "sphinx").parameters == {}
    assert read_docstring(GOOGLE, "google").parameters == SAID.parameters


def test_a_section_without_a_blank_line_before_it_is_still_a_section():
    said = read_docstring("Add.\nArgs:\n    a: One.\n    b: Two.")
    assert said == Documentation("Add.", {"a": "One.", "b": "Two."})


def test_words_with_a_colon_are_no_section():
    said = read_docstring("See Args: below.\nNote: this is text.\n\nArgs:\n    a: One: the first.")
    assert said == Documentation("See Args: below.\nNote: this is text.", {"a": "One: the first."})


def test_text_behind_the_sections_is_for_people():
    said = read_docstring("Add.\n\nArgs:\n    a: One.\n\nSome remark.\n")
    assert said == Documentation("Add.", {"a": "One."})


def test_other_sections_are_not_parameters():
    said = read_docstring("Add.\n\nRaises:\n    ValueError: Never.\n\nExample:\n    a: b\n")
    assert said == Documentation("Add.", {})


def test_several_names_may_share_a_description_in_numpy_style():
    said = read_docstring("Add.\n\nParameters\n----------\na, b : int\n    A number.\n")
    assert said.parameters == {"a": "A number.", "b": "A number."}


@pytest.mark.parametrize("text", [None, "", "   \n"])
def test_nothing_says_nothing(text: str | None):
    assert read_docstring(text) == Documentation()


def test_a_docstring_of_parameters_only_has_no_description():
    assert read_docstring("Args:\n    a: One.") == Documentation(None, {"a": "One."})


@given(st.text(alphabet="Aa:-*() \n\tsparm", max_size=80), st.sampled_from([None, "google", "numpy", "sphinx"]))
def test_any_text_is_read_without_an_error(text: str, style: None):
    said = read_docstring(text, style)
    assert all(name and about for name, about in said.parameters.items())
