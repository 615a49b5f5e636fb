"""Parser of docstrings in the Google, NumPy and Sphinx styles: descriptions of a function and its parameters.

The parser is forgiving: a part that it does not understand gives no description, never an error. The description is the
text before the first section; everything after the sections is for people.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from textwrap import dedent
from typing import Literal

DocstringStyle = Literal["google", "numpy", "sphinx"]

_PARAMETER_SECTIONS = frozenset(
    first + second for first in ("", "keyword ", "other ") for second in ("args", "arguments", "params", "parameters")
)
_GOOGLE_HEADER = re.compile(r"^([A-Z][A-Za-z ]*):\s*$")
_GOOGLE_ENTRY = re.compile(r"^(\*{0,2}\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)$")
_NUMPY_ENTRY = re.compile(r"^(\*{0,2}\w+(?:\s*,\s*\*{0,2}\w+)*)\s*(?::.*)?$")
_SPHINX_FIELD = re.compile(r"^:(\w+)(?:\s+([^:]*?))?\s*:\s*(.*)$")
_SPHINX_PARAMETERS = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})

_SIGNS: dict[DocstringStyle, tuple[str, ...]] = {
    "sphinx": (r"^:param\s", r"^:type\s", r"^:returns?:", r"^:rtype:"),
    "numpy": (r"^Parameters\s*\n\s*-{3,}", r"^Returns\s*\n\s*-{3,}", r"^Yields\s*\n\s*-{3,}"),
    "google": (r"^(Args|Arguments|Params|Parameters):", r"^Returns:", r"^Raises:"),
}


@dataclass(frozen=True, slots=True)
class Documentation:
    """Description of a function, and of its described parameters; names are without stars."""

    description: str | None = None
    parameters: dict[str, str] = field(default_factory=dict)


def read_docstring(text: str | None, style: DocstringStyle | None = None) -> Documentation:
    """Parse a docstring (as `inspect.getdoc` gives it), in the given style or in the detected one."""
    if not text or not text.strip():
        return Documentation()
    lines = text.expandtabs().splitlines()
    match style or _style_of(text):
        case "sphinx":
            before, parameters = _sphinx(lines)
        case "numpy":
            before, parameters = _numpy(lines)
        case _:
            before, parameters = _google(lines)
    return Documentation("\n".join(before).strip() or None, parameters)


def _style_of(text: str) -> DocstringStyle:
    """The style with the most signs; in a tie Sphinx, then NumPy, whose signs are harder to write by chance."""
    scores = {style: sum(bool(re.search(sign, text, re.M)) for sign in signs) for style, signs in _SIGNS.items()}
    best = max(scores.values())
    return next(style for style, score in scores.items() if score == best) if best else "google"


def _google(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    before: list[str] = []
    parameters: dict[str, str] = {}
    in_text, index = True, 0
    while index < len(lines):
        header = _GOOGLE_HEADER.match(lines[index])
        body_end = _indented_until(lines, index + 1)
        if header and body_end > index + 1:
            in_text = False
            if header.group(1).lower() in _PARAMETER_SECTIONS:
                parameters |= _google_entries(lines[index + 1 : body_end])
            index = body_end
            continue
        if in_text:
            before.append(lines[index])
        index += 1
    return before, parameters


def _indented_until(lines: list[str], start: int) -> int:
    """Return the end of the indented block at `start`, blank lines inside included; `start` itself without a block."""
    end = start
    for index in range(start, len(lines)):
        if lines[index].strip():
            if not lines[index].startswith(" "):
                break
            end = index + 1
    return end


def _google_entries(block: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in dedent("\n".join(block)).splitlines():
        if line.strip() and not line.startswith(" "):
            entry = _GOOGLE_ENTRY.match(line)
            current = found.setdefault(entry.group(1).lstrip("*"), [entry.group(2)]) if entry else None
        elif current is not None:
            current.append(line)
    return _texts(found)


def _numpy(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    starts = [
        index
        for index in range(len(lines) - 1)
        if lines[index].strip() and re.fullmatch(r"\s*-{3,}\s*", lines[index + 1])
    ]
    if not starts:
        return lines, {}
    parameters: dict[str, str] = {}
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        if lines[start].strip().lower() in _PARAMETER_SECTIONS:
            parameters |= _numpy_entries(lines[start + 2 : end])
    return lines[: starts[0]], parameters


def _numpy_entries(block: list[str]) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    current: list[list[str]] = []
    for line in block:
        entry = _NUMPY_ENTRY.match(line) if not line.startswith(" ") else None
        if entry:
            names = [name.strip().lstrip("*") for name in entry.group(1).split(",")]
            current = [found.setdefault(name, []) for name in names]
        else:
            for text in current:
                text.append(line)
    return _texts(found)


def _sphinx(lines: list[str]) -> tuple[list[str], dict[str, str]]:
    before: list[str] = []
    found: dict[str, list[str]] = {}
    current: list[str] | None = before
    for line in lines:
        match = _SPHINX_FIELD.match(line)
        if match is None:
            if current is not None:
                current.append(line)
            continue
        kind, subject, text = match.groups()
        current = None
        if kind in _SPHINX_PARAMETERS and subject:
            current = found.setdefault(subject.split()[-1].lstrip("*"), [text])
    return before, _texts(found)


def _texts(found: dict[str, list[str]]) -> dict[str, str]:
    """Join each entry's first line and its dedented rest; entries without text are left out."""
    texts: dict[str, str] = {}
    for name, lines in found.items():
        first, rest = (lines[0] if lines else ""), dedent("\n".join(lines[1:]))
        text = f"{first.strip()}\n{rest}".strip()
        if text:
            texts[name] = text
    return texts
